"""A node: everything it consists of, started and stopped in one place, top to bottom.

The wire server comes first and goes last but one: clients that connect early or late get an answer at once.
While the node starts, a handler answers that it starts (`daemon.starting`); when all parts exist, requests go to them.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException

from holdfast.clock import now_ms
from holdfast.daemon.access.acl_file import AclFileError
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.following import make_audit, make_authorizer
from holdfast.daemon.admin.commands import LogCommands, NodeCommands
from holdfast.daemon.admin.host_metrics import HostMetrics
from holdfast.daemon.brokers.watch import BrokerWatch
from holdfast.daemon.components import log_readers
from holdfast.daemon.config_topic.node_settings import Load, NodeSettings
from holdfast.daemon.context import NodeContext
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.guard import GuardRefused
from holdfast.daemon.http.port import open_http_port
from holdfast.daemon.http.queries import MakeSite
from holdfast.daemon.http.server import CannotListenHttp
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.maintenance.log_checks import ClusterAccess, check_snapshots
from holdfast.daemon.maintenance.maintenance import make_maintenance
from holdfast.daemon.maintenance.reader_offsets import ReaderReport
from holdfast.daemon.membership.allotments import make_allotment
from holdfast.daemon.node_exit import NodeExit, explain
from holdfast.daemon.node_parts import NodeParts
from holdfast.daemon.partitions.identity import KnownMembers, NodeIdentity
from holdfast.daemon.partitions.leadership import LogLeadership
from holdfast.daemon.partitions.owners import ANSWER_TIMEOUT_MS, Owners, query_status_at
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import ApiHandler
from holdfast.daemon.server.cluster_view import ClusterView
from holdfast.daemon.server.cluster_view import Node as NodeAddress
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.metrics import ServerMetrics
from holdfast.daemon.server.other_nodes import OtherNodes
from holdfast.daemon.server.security import CannotAdmit, NodeSecurity
from holdfast.daemon.server.sockets import CannotListen
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.settings.logging import warn_of_client, warn_of_library
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.shards import Snapshots
from holdfast.daemon.starting import BrokerWait, StartingView, starting_commands
from holdfast.daemon.steps import NodeSteps, Stopped, cancelled
from holdfast.daemon.tenant import Answers, LogParts, ServingTenant, Tables, find_site, find_topics, merge_rows
from holdfast.daemon.topics.cluster_queries import make_cluster_queries, make_first_look
from holdfast.daemon.topics.metadata_cache import ClusterMetadata
from holdfast.daemon.topics.name_look_ups import TopicNames
from holdfast.daemon.topics.remains import Remains
from holdfast.daemon.topics.state_topic import StateTopic, StateTopicError, ensure_state_topic
from holdfast.daemon.worker_place import ALONE, WorkerPlace
from holdfast.distribution import VERSION
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.group_offsets import GroupOffsets
from holdfast.kafka.librdkafka import KafkaClients, check_properties
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.build import BUILD
from holdfast.runtime.metrics import RuntimeMetrics

_log = structlog.get_logger(__name__)

#: A setting is wrong, as only its use shows.
_WRONG_USAGE: Final = (PropertyRefused, AclFileError, GuardRefused, CannotAdmit)
#: The node cannot start where it is, or not now.
_REFUSALS: Final = (StateTopicError, ConnectionFailed, CannotListen, CannotListenHttp, KafkaException)

#: Adds a step of the shutdown: its name, what it does, and optionally how long it may take.
#: A connection waits so long at the address of all workers, before a worker accepts it that knows no owners yet.
_ACCEPT_TIMEOUT_MS: Final = 500
_AtExit = Callable[..., None]


class Node:
    """One process of Holdfast."""

    def __init__(
        self, settings: Settings, tables: Tables, load: Load | None = None, place: WorkerPlace = ALONE
    ) -> None:
        """Prepare a node that serves what its `tables` hold."""
        self._tables = tables = tables.on(settings)
        self.node_settings = NodeSettings(settings, load)
        registry = Registry()
        self._metrics, self._runtime_metrics = LogMetrics(registry), RuntimeMetrics(registry)
        bugs = InternalErrors(self._runtime_metrics.internal_errors)
        self.context = NodeContext(now_ms, registry, bugs, LineLimiter(now_ms))
        self.host_metrics, self._sockets = HostMetrics(settings, self.context, place), place.sockets
        #: The port it listens on, once it does.
        self.port = 0
        #: By which this process knows itself under any address.
        self.run_id = os.urandom(8).hex()
        self._exit: asyncio.Future[NodeExit] = asyncio.get_running_loop().create_future()
        group = settings.members.group_of(settings.log.state_topic)
        self._identity = NodeIdentity(self.run_id, group, KnownMembers(), self._refused)
        #: What settings name, and a running node reads again.
        self.files = FileWatch(self.context)
        #: None while the node starts.
        self.parts: NodeParts | None = None
        #: Those of the start, and of the node that has all parts.
        self._admins: list[Admin] = []
        #: None while the node starts.
        self.make_site: MakeSite | None = None
        #: None until it listens.
        self.authorizer: Authorizer | None = None
        #: That of the HTTP port, once it listens there.
        self.http_port: int | None = None
        #: None until it listens.
        self._server_metrics: ServerMetrics | None = None
        #: Beside how it ended; empty until it is to stop.
        self.why_stopped = ""
        self._steps = NodeSteps(self._exit)
        self._shard_tenant = tables.shard_tenant.make(self)
        self._other_tenants = [tenant.make(self) for tenant in tables.others]
        #: It was given its log partitions, maybe none, and can say who has the others.
        self._knows_work = asyncio.Event()
        #: Every log partition serves, as far as this node knows.
        self._is_loaded = False
        self._began_s = time.monotonic()
        #: While the node starts.
        self.brokers_awaited = BrokerWait()

    def stop(self, reason: NodeExit = NodeExit.STOPPED, why: str = "a stop was requested") -> None:
        """Begin to stop; the first reason given is the one that counts."""
        if not self._exit.done():
            self.why_stopped = why
            self._exit.set_result(reason)

    async def run(self) -> NodeExit:
        """Start, serve until `stop`, and stop again; returns how it ended, as its last log line does."""
        settings = self.settings
        _log.info(
            "node_starting",
            version=VERSION,
            build=BUILD,
            node_id=settings.node_id,
            brokers=settings.kafka.properties["bootstrap.servers"],
            state_topic=settings.log.state_topic,
        )
        outcome = await self._run()
        _log.info("node_stopped", reason=self.why_stopped, exit_code=int(outcome))
        return outcome

    async def _run(self) -> NodeExit:
        try:
            check_properties(self.settings.kafka.properties)
            async with self._started():
                outcome = await self._exit
        except (*_WRONG_USAGE, *_REFUSALS) as refusal:
            self.why_stopped = explain(refusal)
            _log.error("node_start_failed", why=self.why_stopped)
            return NodeExit.WRONG_USAGE if isinstance(refusal, _WRONG_USAGE) else NodeExit.REFUSED
        except Stopped:
            outcome = self._exit.result()
        if outcome is NodeExit.STOPPED and self._steps.has_failed:
            self.why_stopped = "a stop was requested, and a step of the shutdown failed or did not end in time"
            return NodeExit.FAILED_TO_STOP
        return outcome

    @property
    def settings(self) -> Settings:
        """The settings that hold now."""
        return self.node_settings.current

    @property
    def is_ready(self) -> bool:
        """Whether every log partition serves, and the brokers that hold them answer."""
        return not self.why_not_ready()

    def why_not_ready(self) -> str:
        """Return what keeps this node from serving; empty if it is ready."""
        if self._exit.done():
            return "the node stops"
        if self.parts is None:
            return self.brokers_awaited.why or "the node starts"
        _, allotment, partitions, watch, _ = self.parts
        return watch.problem or allotment.why_not_ready() or ("" if self._is_loaded else partitions.why_not_loaded())

    @property
    def admin(self) -> Admin:
        """The commands of an admin, by now."""
        return self._admins[-1]

    def describe_readiness(self) -> list[dict[str, Any]]:
        """See `Partitions.describe_readiness`; none while the node starts."""
        return [] if self.parts is None else self.parts.partitions.describe_readiness(self.parts.watch.silence.cut_off)

    def status(self) -> dict[str, Any]:
        """Return whether the node is ready, why if it is not, what it serves, and the longest turn of its loop."""
        parts, metrics = self.parts, self._server_metrics
        topic, why = None if parts is None else parts.view.state_topic, self.why_not_ready()
        return {
            "node_id": self.settings.node_id,
            "group": self._identity.group,
            "run_id": self.run_id,
            "is_ready": not why,
            "why_not_ready": why or None,
            "superseded_by": [] if parts is None else parts.partitions.superseded_by(),
            "cluster_id": None if parts is None else parts.view.cluster_id,
            "state_topic": None if topic is None else topic.name,
            "topic_id": None if topic is None else format_topic_id(topic.topic_id),
            "log_partitions": None if topic is None else topic.partition_count,
            "placement": None if parts is None or (by := parts.partitions.placement) is None else by.value,
            "log_partitions_held": 0 if parts is None or self._exit.done() else parts.partitions.held_count(),
            "log_partitions_cut_off": 0
            if parts is None
            else len(parts.watch.silence.cut_off & parts.partitions.wanted.keys()),
            "membership": None if parts is None else parts.allotment.describe_membership(),
            "port": self.port,
            "http_port": self.http_port,
            "longest_turn_ms": None if metrics is None else round(metrics.longest_turn_ms, 1),
        }

    # ---- start and stop, top to bottom -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:

            def at_exit(name: str, step: Callable[[], Awaitable[object]], timeout_ms: int = 0) -> None:
                timeout_ms = timeout_ms or self.settings.shutdown.shutdown_step_timeout_ms
                stack.push_async_callback(self._steps.do, name, step, timeout_ms)

            at_exit("admin commands", lambda: _close(self._admins))

            # It listens first and answers that it starts.
            options = self.node_settings.kafka.connection_options()
            self.node_settings.follow_files(self.files)
            server, this_node, self.authorizer = await self._listen(options, at_exit)
            authorizer = self.authorizer
            http = await open_http_port(self, self.settings, self.files, self._tables.queries, self._tables.pages)
            if http is not None:
                self.http_port = http.port
                at_exit("HTTP server", http.stop)

            # By which settings: those of all nodes, too, which brokers have.
            first_look = make_first_look(self.settings, options)
            stack.callback(first_look.close)
            patiently, state_topic = self.brokers_awaited.patiently, self.settings.log.state_topic
            await self._steps.unless_stopped(patiently(lambda: first_look.query_names([state_topic])))
            first_look.close()

            stack.enter_context(self.files.watched(self.settings.files.reload_interval_ms))
            await stack.enter_async_context(self.node_settings.followed(self._steps.unless_stopped, self._steps.do))
            settings = self.settings
            step_ms, drain_ms = settings.shutdown.shutdown_step_timeout_ms, settings.shutdown.drain_timeout_ms
            server.connections.reconfigure(settings.limits)

            # What it serves: the topic that is the log, in the cluster that the brokers say they are.
            cluster = make_cluster_queries(settings, options, now_ms)
            metadata = ClusterMetadata(
                cluster.client,
                settings.metadata,
                self.context,
                random=Random(),
                report_after_ms=settings.log.broker_silence_max_ms,
            )
            tenants: list[ServingTenant] = []
            # In one step: both close connections, and wait for nobody.
            at_exit("tenants and topic names", lambda: _end([*tenants, cluster.look_ups.names]))
            refreshing = asyncio.create_task(metadata.run(), name="holdfast-metadata")
            at_exit("metadata", lambda: cancelled(refreshing))
            image = await self._steps.unless_stopped(metadata.wait_for_first_image(settings.log.request_timeout_ms))
            kafka = KafkaClients(self.node_settings.kafka, partial(warn_of_library, self.context.limiter))
            access = ClusterAccess(kafka, settings, self._metrics, cluster.client)
            topic = await self._steps.unless_stopped(patiently(lambda: self._find_topic(access)))
            await self._steps.unless_stopped(check_snapshots(access, topic))

            # All its parts.
            log = LogPlace(topic, image.cluster_id, options, this_node)
            partitions = self._make_partitions(log, metadata, at_exit)
            allotment = make_allotment(partitions, self.node_settings, self._identity, self.context)
            view = allotment.view
            brokers, throttle_time_ms = (
                (lambda: cluster.client.addresses.values()),
                self._runtime_metrics.throttle_time_ms,
            )
            offsets = GroupOffsets(options, settings.log.request_timeout_ms, brokers, throttle_time_ms)
            stack.callback(offsets.close)
            maintenance = make_maintenance(access, partitions, offsets, self.context, log_renewed=view.log_renewed)
            watch = BrokerWatch(
                options,
                topic,
                image.cluster_id,
                self.context,
                silence_max_ms=settings.log.broker_silence_max_ms,
                timeout_ms=settings.log.request_timeout_ms,
                answered_again=partitions.load_again_soon,
            )
            batch, leadership = server.connections.batch, LogLeadership(view, partitions)
            others_have, unheard_since_s = allotment.describe_elsewhere, watch.silence.leader_unheard_since_s
            parts = LogParts(log, partitions, metadata, cluster, batch, others_have, leadership, unheard_since_s)
            shard_tenant = self._shard_tenant.serve(parts, authorizer)
            others = [each.serve(parts, authorizer, shard_tenant.access) for each in self._other_tenants]
            tenants += [shard_tenant, *others]
            decisions = merge_rows("decision", *(each.decisions for each in tenants))
            commands = {
                **NodeCommands(self, *cluster.look_ups).table(),
                **LogCommands(self, partitions, maintenance, allotment, watch, decisions).table(),
                **{name: command for each in tenants for name, command in each.answers.commands.items()},
            }
            admin = Admin(commands, self._tables.needs, settings.log.request_timeout_ms, self.context.internal_errors)

            # They work, and it answers for them.
            await self._steps.unless_stopped(patiently(partitions.start))
            self.context.limiter.leave_effects_to(watch.silence.leave_out)
            self.parts = NodeParts(view, allotment, partitions, watch, metadata)
            self._admins.append(admin)
            self.make_site = find_site(each.answers for each in tenants)
            server.hand_over(self._handler([each.answers for each in tenants], view, admin, authorizer))
            watch.start()
            at_exit("broker watch", watch.stop)
            maintenance.start(settings, [duty for each in tenants for duty in each.duties])
            at_exit("maintenance", maintenance.stop)

            # It takes the log partitions.
            await self._steps.unless_stopped(maintenance.log_checks.look_at_beginnings())
            for each in tenants:
                each.start_up(partitions.runtime.config.log)
            at_exit("requests in flight", lambda: server.drain_all(drain_ms), drain_ms + step_ms)
            for each in tenants:
                stack.callback(each.shut_down)
            allotment.start(watch.silence.leader_quiet_s)
            at_exit("membership", allotment.stop, 2 * step_ms + drain_ms + settings.compaction.stop_timeout_ms)
            yield
            _log.info("node_stopping")

    async def _listen(self, options: ConnectionOptions, at_exit: _AtExit) -> tuple[Server, NodeAddress, Authorizer]:
        """Listen, with a handler that says that the node starts; returns also where clients reach it, and who may do what."""
        settings, context = self.settings, self.context
        look_ups = make_cluster_queries(settings, options, now_ms).look_ups
        at_exit("topic names of the start", look_ups.names.close)
        host, advertised_port = settings.listener.advertised_address

        def find_this_node() -> NodeAddress:
            return NodeAddress(settings.node_id, host, advertised_port or server.port)

        needs = self._tables.needs
        audit = make_audit(context, needs)
        authorizer = make_authorizer(settings, audit, needs, self.files)
        answers = [
            self._shard_tenant.starting(authorizer),
            *(each.starting(authorizer) for each in self._other_tenants),
        ]
        commands = starting_commands(self, look_ups, [each.commands for each in answers])
        admin = Admin(commands, needs, settings.log.request_timeout_ms, self.context.internal_errors)
        self._admins.append(admin)
        handler = self._handler(answers, StartingView(find_this_node), admin, authorizer)
        report = partial(warn_of_client, context.limiter)
        security = NodeSecurity(settings.security, self.files, context, audit)
        at_exit("logins", security.stop)
        server = Server(
            Connections(
                handler, self._tables.apis, settings.limits, report, context.internal_errors, security=security
            ),
            self._sockets,
        )
        await server.start(*settings.listener.listen_address)
        if self._sockets:  # of whoever accepts there, clients expect to hear who serves what, or soon that nobody knows
            server.accept_shared_when(self._knows_work, _ACCEPT_TIMEOUT_MS)
        at_exit("server", lambda: server.drain(0))
        self._server_metrics = ServerMetrics(context.registry, server.connections)
        self.port = server.port
        _log.info("node_listening", host=settings.listener.listen_address[0], port=server.port)
        return server, find_this_node(), authorizer

    def _handler(self, tenants: list[Answers], view: ClusterView, admin: Admin, authorizer: Authorizer) -> ApiHandler:
        """Return the handler of requests, with the calls of the tenants."""
        return ApiHandler(
            {key: answer for each in tenants for key, answer in each.calls.items()},
            merge_rows("key type", *(each.key_types for each in tenants)),
            self._tables.apis,
            view,
            admin,
            authorizer,
            topics=find_topics(tenants),
        )

    async def _find_topic(self, access: ClusterAccess) -> StateTopic:
        # The client of librdkafka ends with this function, and with it what it would say in an outage.
        with access.kafka.admin() as admin:
            where = admin, access.metadata, self.settings.log, access.bootstrap
            topic, findings = await ensure_state_topic(*where, Remains(admin, self.settings, self.node_settings.kafka))
        for finding in findings:
            _log.warning("state_topic_weakened", finding=str(finding))
        self._metrics.state_topic_warnings.value = len(findings)
        self._metrics.state_topic_partitions.value = topic.partition_count
        return topic

    def _make_partitions(self, log: LogPlace, metadata: ClusterMetadata, at_exit: _AtExit) -> Partitions:
        settings, step_ms = self.settings, self.settings.shutdown.shutdown_step_timeout_ms
        others = OtherNodes(self.context.limiter, settings.security.client_properties_file)

        def make_owners(partitions: Partitions) -> Owners:
            return Owners(
                settings.load,
                self._identity,
                partitions,
                self.context.internal_errors,
                partial(query_status_at, others, timeout_ms=ANSWER_TIMEOUT_MS),
            )

        def make_snapshots(partitions: Partitions) -> Snapshots:
            return self._shard_tenant.make_snapshots(log, self.node_settings.kafka, partitions, metadata)

        partitions = Partitions(
            settings,
            log,
            log_readers(settings, now_ms, ReaderReport(self._metrics)),
            self,
            self._shard_tenant.shard_kind(log),
            self._metrics,
            self._runtime_metrics,
            self.context.limiter,
            image=metadata.image,
            make_owners=make_owners,
            make_snapshots=make_snapshots if settings.snapshots.topic else None,
        )
        at_exit("partitions", lambda: partitions.stop(step_ms), 3 * step_ms)
        return partitions

    # ---- what its parts report -------------------------------------------------------------------------------------

    def all_loaded(self, is_all_loaded: bool) -> None:
        """See `PartitionsHost.all_loaded`."""
        self._knows_work.set()
        if is_all_loaded and not self._is_loaded:
            if self.parts is not None:
                self.parts.metadata.refresh_soon()  # the topics of all that was loaded are wanted soon
            _log.info("node_ready", seconds=round(time.monotonic() - self._began_s, 3))
        self._is_loaded = is_all_loaded

    def taken_over(self, index: int, winner: Checkpoint) -> bool:
        """See `PartitionsHost.taken_over`."""
        return self.parts is not None and self.parts.allotment.taken_over(index, winner.generation)

    def lost(self, winner: Checkpoint) -> None:
        """See `PartitionsHost.lost`."""
        address = f" at {winner.advertised_address}" if winner.advertised_address else ""
        self.stop(NodeExit.SUPERSEDED, f"node {winner.node_id}{address} took over")

    def turned(self, late_ms: float) -> None:
        """See `PartitionsHost.turned`."""
        if self._server_metrics is not None:
            self._server_metrics.ticked(late_ms)

    def _refused(self, why: str, *, is_setting_wrong: bool) -> None:
        """Stop, because another node serves this log and is not to be replaced."""
        if not self._exit.done():
            _log.error("take_over_refused", why=why)
        self.stop(NodeExit.WRONG_USAGE if is_setting_wrong else NodeExit.SUPERSEDED, why)


async def _end(parts: Sequence[ServingTenant | TopicNames]) -> None:
    for part in parts:
        await part.close()


async def _close(admins: list[Admin]) -> None:
    for admin in admins:
        await admin.close()
