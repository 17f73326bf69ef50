"""The share gateway as a tenant of the host: its calls and topics, in one value."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NoReturn

import structlog

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import Fault, find_malformed_group_id
from holdfast.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatResponse
from holdfast.api.share_state_access import ShareStateAccess
from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import Command, Need
from holdfast.daemon.admin.plans import Decide
from holdfast.daemon.http.queries import Parameter, Query
from holdfast.daemon.maintenance.schedule import Duty
from holdfast.daemon.server.admin import NodeStarting
from holdfast.daemon.server.find_coordinator import GROUP
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Api, ClientConnection, Request, Respond, Steps
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.tenant import Answers, Call, Host, LogParts, Tenant
from holdfast.delivery.sessions import ShareSessions
from holdfast.gateway import refusals
from holdfast.gateway.consumers import ConsumerCalls
from holdfast.gateway.heartbeats import Heartbeats
from holdfast.gateway.holdings import Holdings
from holdfast.gateway.leaders import GroupKeys, TopicLeaders
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.starts import Starts
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.placement import NodePlacement
from holdfast.gateway.settings import COMPONENTS, GatewaySettings, GroupSettings
from holdfast.gateway.topics.offered import OfferedTopics, StartingTopics
from holdfast.gateway.topics.source import ClusterTopics
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.records.room import RecordRoom
from holdfast.runtime.settings import LogIdentity

_log = structlog.get_logger(__name__)

#: Acknowledgements of one request become objects; a range has 20 bytes in a frame.
_WORK_PER_BYTE: Final = 16
#: A node that starts answers a fetch so late, for the client asks again at once.
_STARTING_ANSWER_S: Final = 0.5
#: So late a heartbeat hears of a right that it lacks: before its first success a client has no interval, and Java sends 150 a second.
_DENIED_ANSWER_S: Final = 1.0
#: 2026, before which no gateway was.
_EPOCHS_FROM_S: Final = 1_767_225_600
_STARTING: Final = "the node starts"

HEARTBEAT: Final = api_keys.SHARE_GROUP_HEARTBEAT
FETCH: Final = api_keys.SHARE_FETCH
ACKNOWLEDGE: Final = api_keys.SHARE_ACKNOWLEDGE


def _call(name: str, versions: tuple[int, int]) -> Call:
    return Call(Api(name, *versions, work_per_byte=_WORK_PER_BYTE), Operation.READ)


CALLS: Final[Mapping[int, Call]] = {
    **refusals.CALLS,
    HEARTBEAT: _call("ShareGroupHeartbeat", share_group_heartbeat.VERSIONS),
    FETCH: _call("ShareFetch", share_fetch.VERSIONS),
    ACKNOWLEDGE: _call("ShareAcknowledge", share_acknowledge.VERSIONS),
}


COMMANDS: Final[Mapping[str, Command]] = {
    "group-members": Command(Need(Operation.DESCRIBE, ResourceType.GROUP), ("group", "topic_id", "partition")),
}
#: HTTP paths that show the answer of one command.
QUERIES: Final = (
    Query(
        "group-members",
        "The members of a group of this gateway, and the ranges of offsets that each holds under a lock, and until when.",
        "object",
        (
            Parameter("group", "string", "The group.", is_needed=True),
            Parameter("topic_id", "string", "Ranges of this topic alone."),
            Parameter("partition", "integer", "Ranges of this partition of topics alone."),
        ),
    ),
)


class NodeGateway:
    """The gateway on one node (`daemon.tenant.NodeTenant`)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._metrics = GatewayMetrics(host.context.registry, host.context.limiter)

    def starting(self, authorizer: Authorizer) -> Answers:
        """See `NodeTenant.starting`."""
        calls = {
            **refusals.ANSWERS,
            HEARTBEAT: _starting_heartbeat,
            FETCH: _starting_fetch,
            ACKNOWLEDGE: _starting_acknowledge,
        }
        return Answers(calls, {GROUP: GroupKeys()}, {"group-members": _refuse_starting}, StartingTopics())

    def serve(self, log: LogParts, authorizer: Authorizer, access: ShareStateAccess) -> ServingGateway:
        """See `NodeTenant.serve`."""
        return ServingGateway(self._host, self._metrics, log, authorizer, access)


class ServingGateway:
    """The gateway on a node that has found its log (`daemon.tenant.ServingTenant`)."""

    def __init__(
        self, host: Host, metrics: GatewayMetrics, log: LogParts, authorizer: Authorizer, access: ShareStateAccess
    ) -> None:
        settings = host.settings
        gateway = settings.of(GatewaySettings)
        config_of = settings.of(GroupSettings).configs()
        self._authorizer = authorizer
        self._group_keys = GroupKeys()
        options = log.place.connection
        leaders = TopicLeaders(log.leadership, log.place.topic.partition_count)
        self._topics = OfferedTopics(
            gateway.topics,
            settings.own_topics,
            ClusterTopics(log.cluster.shown),
            leaders,
            host.context,
            cluster_id=log.place.cluster_id,
            refresh_interval_ms=settings.metadata.metadata_refresh_interval_ms,
            random=Random(),
        )
        self._placement = placement = NodePlacement(self._topics, leaders, log, self._group_keys, authorizer)
        #: By whether only committed records are read; all share one room.
        self._readers: dict[bool, TopicReader] = {}
        room = RecordRoom(gateway.fetch_buffer_bytes)

        def reader_of(is_committed: bool) -> TopicReader:
            reader = self._readers.get(is_committed)
            if reader is None:
                cluster, config = Cluster(options, settings.log.request_timeout_ms), ReaderConfig(is_committed)
                reader = TopicReader(options, cluster, config, metrics.throttle_time_ms, room)
                self._readers[is_committed] = reader
            return reader

        starts = Starts(log.cluster.look_ups.ends, lambda: int(time.time() * 1_000))
        sessions = ShareSessions(gateway.share_sessions_max)
        self._leader = Leader(
            access, placement, reader_of, starts, config_of, gateway.share_partitions_max, metrics, sessions
        )
        self._calls = ConsumerCalls(self._leader, sessions, placement, config_of)
        self._heartbeats = Heartbeats(placement, placement, config_of, gateway.members_max, _minutes)
        metrics.watch(
            self._leader.__len__,
            sessions.__len__,
            lambda: self._calls.waiting_count,
            lambda: len(self._heartbeats.group_ids),
        )
        self._has_other_nodes = False
        log.leadership.watch(self._leadership_changed)
        self._topics.on_change(self._topics_changed)
        holdings = Holdings(self._heartbeats, self._leader, lambda: int(time.time() * 1_000))
        self.answers = Answers(
            {
                **refusals.ANSWERS,
                HEARTBEAT: self._answer_heartbeat,
                FETCH: self._answer_fetch,
                ACKNOWLEDGE: self._answer_acknowledge,
            },
            {GROUP: self._group_keys},
            {"group-members": holdings.describe},
            self._topics,
        )
        self.decisions: Mapping[str, Decide] = {}
        self.duties: tuple[Duty, ...] = ()
        self._refreshing: asyncio.Task[None] | None = None
        #: Those that tell of their end.
        self._connections: set[ClientConnection] = set()

    def start_up(self, log: LogIdentity) -> None:
        """See `ServingTenant.start_up`."""
        self._group_keys.log_partitions = log.partition_count
        self._refreshing = asyncio.create_task(self._topics.run(), name="holdfast-gateway-topics")

    def shut_down(self) -> None:
        """See `ServingTenant.shut_down`."""
        self._group_keys.log_partitions = 0
        self._topics.answer_waiting()
        self._calls.answer_waiting()
        self._heartbeats.close()
        self._leader.close()

    async def close(self) -> None:
        """See `ServingTenant.close`."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        for reader in self._readers.values():
            await reader.close()

    def _leadership_changed(self, log_partition: int) -> None:
        self._leader.look_at_leadership(log_partition)
        if not self._has_other_nodes and self._placement.has_other_nodes(self._group_keys.log_partitions):
            self._has_other_nodes = True
            _log.warning(
                "gateway_has_other_nodes", next_step="run one node, or expect records twice when log partitions move"
            )

    def _topics_changed(self, _: Collection[str]) -> None:
        self._leader.forget_topics(lambda topic_id: self._topics.topic_by_id(topic_id) is not None)

    def _caller(self, request: Request) -> Request:
        """Return the client of a request, whose connection tells of its end from now on."""
        connection = request.connection
        if connection is not None and connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(partial(self._connection_closed, connection))
        return request

    def _connection_closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._calls.connection_closed(connection)

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def _answer_heartbeat(self, request: Request, respond: Respond) -> Steps | None:
        beat = share_group_heartbeat.decode_request(request.frame, request.body_offset)
        answer: HeartbeatResponse | None = None
        if not self._authorizer.may_call(request, HEARTBEAT, beat.group_id):
            answer = HeartbeatResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, _may_not(request), beat.member_id)
        elif denied := self._find_denied(request, beat.topic_names or ()):
            text = f"{request.principal} may not DESCRIBE the topic {denied}"
            answer = HeartbeatResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text, beat.member_id)
        if answer is not None:
            _answer_late(request, partial(respond, share_group_heartbeat.encode_response(answer)))
            return None

        def take() -> None:
            if not request.is_wanted:
                respond(b"")
                return
            answer = self._heartbeats.handle(beat, request.client_id, request.client_address)
            respond(share_group_heartbeat.encode_response(answer))

        # A client hears of a topic by its assignment alone, and the next chance for that is its next heartbeat.
        self._placement.when_known(beat.topic_names or (), request.client_address, take)
        return None

    def _find_denied(self, request: Request, names: Sequence[str]) -> str:
        """Return a topic that a client may not subscribe to; empty: it may subscribe to all of them."""
        may = self._authorizer.may
        for name in names:
            if not may(request, "ShareGroupHeartbeat", Operation.DESCRIBE, ResourceType.TOPIC, name):
                return name
        return ""

    def _answer_fetch(self, request: Request, respond: Respond) -> Steps | None:
        if len(request.frame) > SMALL_FRAME_BYTES:
            return self._fetch_in_steps(request, respond)
        self._fetch(request, share_fetch.decode_request(*_body(request)), respond)
        return None

    def _fetch_in_steps(self, request: Request, respond: Respond) -> Steps:
        self._fetch(request, (yield from share_fetch.decode_in_steps(*_body(request))), respond)

    def _fetch(self, request: Request, fetch: ShareFetchRequest, respond: Respond) -> None:
        fault = self._find_fault(request, fetch.group_id)
        if fault is not None:
            respond(share_fetch.encode_response(ShareFetchResponse((), 0, *fault)))
        else:
            self._calls.fetch(self._caller(request), fetch, respond)

    def _find_fault(self, request: Request, group_id: str | None) -> Fault | None:
        """Return why a group gets no answer: there can be none of this id, or the client may not READ it."""
        fault = find_malformed_group_id(group_id)
        if fault is None and not self._authorizer.may_call(request, request.api_key, group_id or ""):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, _may_not(request)
        return fault

    def _answer_acknowledge(self, request: Request, respond: Respond) -> Steps | None:
        if len(request.frame) > SMALL_FRAME_BYTES:
            return self._acknowledge_in_steps(request, respond)
        self._acknowledge(request, share_acknowledge.decode_request(*_body(request)), respond)
        return None

    def _acknowledge_in_steps(self, request: Request, respond: Respond) -> Steps:
        self._acknowledge(request, (yield from share_acknowledge.decode_in_steps(*_body(request))), respond)

    def _acknowledge(self, request: Request, acknowledge: ShareAcknowledgeRequest, respond: Respond) -> None:
        version, fault = request.api_version, self._find_fault(request, acknowledge.group_id)
        if fault is not None:
            respond(share_acknowledge.encode_response(version, ShareAcknowledgeResponse((), 0, *fault)))
        else:
            self._calls.acknowledge(self._caller(request), version, acknowledge, respond)


def _body(request: Request) -> tuple[int, bytes, int]:
    """Return the version and bytes of a request, and where its body begins; the request keeps no bytes."""
    frame, request.frame = request.frame, b""
    return request.api_version, frame, request.body_offset


def _may_not(request: Request) -> str:
    return f"{request.principal} may not READ the group"


def _answer_late(request: Request, answer: Callable[[], None]) -> None:
    """Answer a client that asks again at once, unless the node stops or too many wait."""
    timer = asyncio.get_running_loop().call_later(_DENIED_ANSWER_S, answer)

    def answer_now() -> None:
        timer.cancel()
        answer()

    if not request.wait(answer_now):
        answer_now()


def _minutes() -> int:
    """Return a number that grows with the time, and is small enough for an epoch of a group."""
    return int(time.time() - _EPOCHS_FROM_S) // 60


def _starting_heartbeat(request: Request, respond: Respond) -> Steps | None:
    beat = share_group_heartbeat.decode_request(request.frame, request.body_offset)
    answer = HeartbeatResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _STARTING, beat.member_id)
    respond(share_group_heartbeat.encode_response(answer))
    return None


def _starting_fetch(request: Request, respond: Respond) -> Steps | None:
    share_fetch.decode_request(request.api_version, request.frame, request.body_offset)
    answer = b"".join(
        share_fetch.encode_response(ShareFetchResponse((), 0, ErrorCode.SHARE_SESSION_NOT_FOUND, _STARTING))
    )
    asyncio.get_running_loop().call_later(_STARTING_ANSWER_S, respond, answer)
    return None


def _starting_acknowledge(request: Request, respond: Respond) -> Steps | None:
    version = request.api_version
    share_acknowledge.decode_request(version, request.frame, request.body_offset)
    answer = ShareAcknowledgeResponse((), 0, ErrorCode.SHARE_SESSION_NOT_FOUND, _STARTING)
    respond(share_acknowledge.encode_response(version, answer))
    return None


def _refuse_starting(arguments: dict[str, Any]) -> NoReturn:
    raise NodeStarting


def _is_on(settings: Settings) -> bool:
    return bool(settings.of(GatewaySettings).topics)


GATEWAY_TENANT: Final[Tenant[NodeGateway]] = Tenant(
    "gateway", CALLS, COMMANDS, QUERIES, (), NodeGateway, _is_on, COMPONENTS
)
