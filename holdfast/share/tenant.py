"""Share state as a tenant of the host: its calls, commands, HTTP paths and shards, in one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from holdfast.api import share_state
from holdfast.api.results import StateRequest, StateResponse
from holdfast.clock import exact_now_ms, now_ms
from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import CHANGES, LOOKS, Command, Need
from holdfast.daemon.http.guard import own_names
from holdfast.daemon.http.queries import Ask, Parameter, Query
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.maintenance.schedule import Duty
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.admin import AdminCommand
from holdfast.daemon.server.other_nodes import OtherNodes
from holdfast.daemon.server.wire.requests import WORK_PER_BYTE, Api
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.tenant import Answers, Call, Host, LogParts, Tenant
from holdfast.daemon.topics.metadata_cache import ClusterMetadata
from holdfast.kafka.connection_options import LiveProperties
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.settings import LogIdentity
from holdfast.runtime.state_machine import Operation as StateOperation
from holdfast.share.access import ShareAccess
from holdfast.share.calls import KEY_TYPE, ShareAnswers, ShareCalls, ShareKeys
from holdfast.share.commands import ShareCommands, StartingShareCommands
from holdfast.share.deleted_state import DeletedState
from holdfast.share.group_metrics.group_metrics import make_group_metrics
from holdfast.share.group_pages import PAGES
from holdfast.share.metrics import ShareMetrics
from holdfast.share.page.samples import Samples
from holdfast.share.page.site import PageSite, wall_now_ms
from holdfast.share.service import ShareService
from holdfast.share.settings import COMPONENTS, DeletedTopicSettings, ShareSettings
from holdfast.share.shard_kind import ShareShards
from holdfast.share.snapshots.store import Snapshots
from holdfast.share.topic_gate import TopicGate

#: A state batch has twenty bytes in a frame, and as an object ten times as many.
_WORK_PER_BYTE_OF_WRITES: Final = 16


def _call(api_key: int, name: str, operation: Operation, work_per_byte: int = WORK_PER_BYTE) -> Call:
    api = Api(name, *share_state.VERSIONS[api_key], work_per_byte=work_per_byte, is_batched=True)
    return Call(api, operation)


CALLS: Final[Mapping[int, Call]] = {
    share_state.INITIALIZE: _call(share_state.INITIALIZE, "InitializeShareGroupState", Operation.WRITE),
    # It may raise the leader epoch.
    share_state.READ: _call(share_state.READ, "ReadShareGroupState", Operation.READ),
    share_state.WRITE: _call(share_state.WRITE, "WriteShareGroupState", Operation.WRITE, _WORK_PER_BYTE_OF_WRITES),
    share_state.DELETE: _call(share_state.DELETE, "DeleteShareGroupState", Operation.DELETE),
    share_state.SUMMARY: _call(share_state.SUMMARY, "ReadShareGroupStateSummary", Operation.DESCRIBE),
}

COMMANDS: Final[Mapping[str, Command]] = {
    "share-partitions": Command(LOOKS, ("group", "topic_id", "after", "limit")),
    # For the page of another node.
    "page-states": Command(LOOKS, ("after",)),
    "page-state": Command(LOOKS, ("group", "topic_id", "partition")),
    # Shows all of a state, as a Read does, and changes none.
    "state-preview": Command(
        Need(Operation.READ, ResourceType.GROUP),
        (
            "call",
            "group",
            "topic_id",
            "partition",
            "state_epoch",
            "leader_epoch",
            "start_offset",
            "delivery_complete_count",
            "state_batches",
        ),
        previews="call",
        previewed={
            "initialize": CALLS[share_state.INITIALIZE].operation,
            "write": CALLS[share_state.WRITE].operation,
            "delete": CALLS[share_state.DELETE].operation,
        },
    ),
    "topics-accept-deleted": Command(CHANGES, ("run_id", "reason")),
}


#: HTTP paths that show the answer of one command.
QUERIES: Final = (
    Query(
        "share-partitions",
        "A page of share partitions as the log has committed them, in the order of group, topic id and partition.",
        "object",
        (
            Parameter("group", "string", "Share partitions of this group alone."),
            Parameter("topic_id", "string", "Share partitions of this topic alone."),
            Parameter("after", "json", "The `next` of the page before."),
            Parameter("limit", "integer", "Rows at most; share_partitions_per_page_max is the most."),
        ),
    ),
)


class _NoPartitions:
    """The runtime of a service that is never started, and so refuses every call itself."""

    def write_many(self, operations: Sequence[tuple[int, StateOperation]], waited_ms: int = 0) -> None:
        raise AssertionError("a service that was not started runs no operation")


class StartingShareCalls:
    """The five share-state calls while the node starts (`calls.ShareCalls`): a service that is not started refuses them."""

    def __init__(self, metrics: ShareMetrics, clock_ms: Callable[[], float], internal_errors: InternalErrors) -> None:
        service = self._service = ShareService(_NoPartitions(), metrics, clock_ms, internal_errors)
        self.partition_for: Callable[[SharePartitionKey], int] = service.partition_for

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], caller: str
    ) -> None:
        """Answer a call: the share partition is not available yet."""
        self._service.handle(api_key, request, respond)


class NodeShare:
    """Share state on one node (`daemon.tenant.NodeShardTenant`)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._metrics = ShareMetrics(host.context.registry)

    def starting(self, authorizer: Authorizer) -> Answers:
        """See `NodeShardTenant.starting`."""
        host = self._host
        calls = StartingShareCalls(self._metrics, exact_now_ms, host.context.internal_errors)
        return self._answers(calls, authorizer, StartingShareCommands(calls).table())

    def shard_kind(self, place: LogPlace) -> ShareShards:
        """See `NodeShardTenant.shard_kind`."""
        return ShareShards(self._host.settings, place.topic, self._metrics)

    def make_snapshots(
        self, place: LogPlace, kafka: LiveProperties, partitions: Partitions, metadata: ClusterMetadata
    ) -> Snapshots:
        """See `NodeShardTenant.make_snapshots`."""
        host = self._host
        return Snapshots(host.settings, kafka, place, host.context, partitions, metadata)

    def serve(self, log: LogParts, authorizer: Authorizer) -> ServingShare:
        """See `NodeShardTenant.serve`."""
        return ServingShare(self._host, self._metrics, log, authorizer, partial(self._answers, authorizer=authorizer))

    def _answers(self, calls: ShareCalls, authorizer: Authorizer, commands: Mapping[str, AdminCommand]) -> Answers:
        answer = ShareAnswers(calls, authorizer).answer
        return Answers(dict.fromkeys(CALLS, answer), {KEY_TYPE: ShareKeys(calls)}, commands)


class ServingShare:
    """Share state on a node that has found its log (`daemon.tenant.ServingShardTenant`)."""

    def __init__(
        self,
        host: Host,
        metrics: ShareMetrics,
        log: LogParts,
        authorizer: Authorizer,
        make_answers: Callable[..., Answers],
    ) -> None:
        settings, partitions = host.settings, log.partitions
        self._service = ShareService(
            partitions.writes,
            metrics,
            exact_now_ms,
            host.context.internal_errors,
            end_with=log.batch.end_with,
        )
        gate = TopicGate(self._service, log.metadata, settings.of(ShareSettings).write_timeout_ms, now_ms)
        deleted_state = DeletedState(
            settings.of(DeletedTopicSettings), log.place.cluster_id, partitions, metrics.deleted_topics_alarm
        )
        log.metadata.add_user(deleted_state)
        groups = make_group_metrics(settings, partitions, log.cluster, host.context.registry)
        commands = ShareCommands(gate, partitions, deleted_state, settings.limits, log.describe_elsewhere)
        self._sites: list[PageSite] = []
        samples = Samples(partitions, wall_now_ms)
        others = OtherNodes(host.context.limiter, settings.security.client_properties_file)
        self._make_page = partial(
            PageSite,
            log,
            authorizer,
            others.query,
            names=_names(settings),
            connections_max=settings.http.connections_max,
            internal_errors=host.context.internal_errors,
            samples=samples,
            history_dir=settings.compaction.history_dir,
        )
        self.access = ShareAccess(gate, self._service.partition_of_topic, log.batch.begin_with)
        self.answers = make_answers(gate, commands=commands.table())._replace(make_site=self._make_site)
        self.decisions = commands.decisions()
        self.duties = [
            *([Duty(groups.interval_ms, groups.refresh)] if groups.is_wanted else []),
            *(
                [Duty(0, samples.follow)] if settings.http.listen_address is not None else []
            ),  # it waits for each minute
        ]
        self.shut_down: Callable[[], None] = self._service.shut_down

    def start_up(self, log: LogIdentity) -> None:
        """See `ServingTenant.start_up`."""
        self._service.start_up(log.partition_count, log.placement)

    async def close(self) -> None:
        """See `ServingTenant.close`."""
        for site in self._sites:
            await site.close()

    def _make_site(self, ask: Ask) -> PageSite:
        site = self._make_page(ask)
        self._sites.append(site)
        return site


def _names(settings: Settings) -> Collection[str] | None:
    """Return the names by which requests may call the HTTP port; None: any, because its certificate says how it is called."""
    http = settings.http
    if http.tls_certificate_file or http.listen_address is None:
        return None
    return own_names(http.listen_address[0], http.allowed_hosts)


SHARE_TENANT: Final[Tenant[NodeShare]] = Tenant(
    "share", CALLS, COMMANDS, QUERIES, PAGES, NodeShare, settings=COMPONENTS
)
