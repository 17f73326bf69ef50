"""A node: everything it consists of, started and stopped in one place, top to bottom.

The wire server comes first and goes last but one: whoever connects early or late gets an answer at once.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from enum import IntEnum
from random import Random
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from holdfast.daemon.admin.commands import AdminCommands
from holdfast.daemon.brokers.watch import BrokerWatch
from holdfast.daemon.maintenance import Upkeep
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.owners import Owners
from holdfast.daemon.partitions.shards import Shards
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import APIS, ApiHandler
from holdfast.daemon.server.listener import CannotListen, Server
from holdfast.daemon.server.metrics import ServerMetrics
from holdfast.daemon.server.protocol import Peers
from holdfast.daemon.settings.logging import ClientLines, LibraryLines
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.daemon.share.service import ShareService
from holdfast.daemon.share.topic_gate import TopicGate
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.daemon.snapshots.job_supervisor import Supervisor
from holdfast.daemon.snapshots.store import Snapshots
from holdfast.daemon.topics.metadata_cache import ClusterMetadata
from holdfast.daemon.topics.state_topic import Finding, StateTopic, StateTopicError, ensure_state_topic
from holdfast.daemon.topics.topic_names import TopicNames
from holdfast.distribution import VERSION
from holdfast.kafka.connection import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.group_offsets import GroupOffsets
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.metadata import MetadataClient
from holdfast.kafka.security import check_properties, connection_options
from holdfast.kafka.topic_ends import TopicEndSource
from holdfast.metrics.registry import Registry
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.keys import format_topic_id
from holdfast.runtime.build import BUILD

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Exit(IntEnum):
    """How a node ends."""

    STOPPED = 0  #: asked to stop, and did so cleanly
    FAILED_TO_STOP = 1  #: asked to stop, and some step did not end in time or failed
    WRONG_USAGE = 2  #: a setting is wrong: a property of the Kafka client, or a node id that another node has
    REFUSED = 3  #: the state topic or the cluster is not fit to be used; the line above says what mends it
    SUPERSEDED = 4  #: another node took over what this one owned, or serves it and was not to be replaced


class Node:
    """One process of Holdfast."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = Registry(_now_ms)
        self.port = 0  #: the port it listens on, once it does
        self.run_id = os.urandom(8).hex()  #: by which this process knows itself under any address
        self._metrics = ShareMetrics(self.registry)
        self._shards = Shards(
            settings,
            self._metrics,
            self.registry,
            self._set_ready,
            self._superseded,
            is_left_out=self._is_left_out,
        )
        self.view = OwnView(settings.node_id, self._shards.find)
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._metadata: ClusterMetadata | None = None
        self._why_stopped = ""  #: beside how it ended
        self._has_failed_step = False
        self._is_loaded = False  #: every log partition serves, as far as this node knows
        self._server_metrics: ServerMetrics | None = None  #: None until it listens
        self._watch: BrokerWatch | None = None  #: None while the node starts
        self._began_s = time.monotonic()

    def stop(self, reason: Exit = Exit.STOPPED, why: str = "it was asked to") -> None:
        """Begin to stop; the first reason given is the one that counts."""
        if not self._exit.done():
            self._why_stopped = why
            self._exit.set_result(reason)

    async def run(self) -> Exit:
        """Start, serve until `stop`, and stop again; returns how it ended, which its last line tells as well."""
        settings = self.settings
        _log.info(
            "starting",
            version=VERSION,
            build=BUILD,
            node_id=settings.node_id,
            brokers=settings.kafka.properties["bootstrap.servers"],
            state_topic=settings.log.state_topic,
        )
        outcome = await self._run()
        _log.info("stopped", reason=self._why_stopped, exit_code=int(outcome))
        return outcome

    async def _run(self) -> Exit:
        try:
            check_properties(self.settings.kafka.properties)
            async with self._started():
                outcome = await self._exit
        except (StateTopicError, ConnectionFailed, CannotListen, PropertyRefused, KafkaException) as refusal:
            self._why_stopped = _explain(refusal)
            _log.error("the node cannot start", why=self._why_stopped)
            return Exit.WRONG_USAGE if isinstance(refusal, PropertyRefused) else Exit.REFUSED
        except _Stopped:
            outcome = self._exit.result()
        if outcome is Exit.STOPPED and self._has_failed_step:
            self._why_stopped = "it was asked to, and a step of the shutdown failed or did not end in time"
            return Exit.FAILED_TO_STOP
        return outcome

    @property
    def is_ready(self) -> bool:
        """Whether every log partition serves, and the brokers that hold them answer."""
        return not self.why_not_ready()

    def why_not_ready(self) -> str:
        """Return what keeps this node from serving; empty if it is ready."""
        if self._exit.done():
            return "the node stops"
        if self._watch is None:
            return "the node starts"
        return self._watch.problem or ("" if self._is_loaded else self._shards.why_not_loaded())

    def status(self) -> dict[str, Any]:
        """Return whether the node is ready, why if it is not, what it serves, and the longest turn of its loop."""
        metrics = self._server_metrics
        topic, why = self.view.state_topic, self.why_not_ready()
        return {
            "node_id": self.settings.node_id,
            "run_id": self.run_id,
            "is_ready": not why,
            "why_not_ready": why or None,
            "superseded_by": self._shards.superseded_by(),
            "cluster_id": self.view.cluster_id,
            "state_topic": None if topic is None else topic.name,
            "topic_id": None if topic is None else format_topic_id(topic.topic_id),
            "log_partitions": None if topic is None else topic.partition_count,
            "log_partitions_held": 0 if self._exit.done() else self._shards.held_count(),
            "port": self.port,
            "longest_turn_ms": None if metrics is None else round(metrics.longest_turn_ms, 1),
        }

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        settings, shards, metrics = self.settings, self._shards, self._metrics
        step_ms, drain_ms = settings.shutdown.shutdown_step_timeout_ms, settings.shutdown.drain_timeout_ms
        async with AsyncExitStack() as stack:

            def at_exit(name: str, step: Callable[[], Awaitable[object]], timeout_ms: int = step_ms) -> None:
                stack.push_async_callback(self._do_step, name, step, timeout_ms)

            options = connection_options(settings.kafka.properties)
            service = ShareService(
                shards, metrics, lambda: time.monotonic_ns() / 1_000_000, settings.share.cached_keys_max
            )
            gate = TopicGate(service, settings.share.write_timeout_ms, _now_ms)
            upkeep = Upkeep(settings, shards, metrics, self.registry, is_left_out=self._is_left_out)
            commands = AdminCommands(self, shards, upkeep)
            admin = Admin(commands.table(), settings.log.admin_timeout_ms)
            at_exit("admin commands", admin.close)
            handler = ApiHandler(gate, self.view, admin, settings.limits)
            report = ClientLines(settings.logging.client_lines_per_minute_max)
            server = Server(Peers(handler, APIS, settings.limits, report))
            await server.start(*settings.listener.listen_address)
            at_exit("server", lambda: server.drain(0))
            self._server_metrics = server_metrics = ServerMetrics(self.registry, server.peers)
            server_metrics.start()
            at_exit("server metrics", server_metrics.stop)
            self.port = server.port
            host, port = settings.listener.advertised_address
            self.view.listens(host, port or server.port)
            _log.info("listening", host=settings.listener.listen_address[0], port=server.port)

            client = _metadata_client(options, settings)
            # Half the time of an admin command, which then has an answer although a broker is silent.
            timeout_ms = max(1, settings.log.admin_timeout_ms // 2)
            names = TopicNames(_metadata_client(options, settings), settings.metadata, _now_ms, timeout_ms=timeout_ms)
            metadata = ClusterMetadata(
                client,
                settings.metadata,
                topics_in_use=shards.topics_in_use,
                on_refresh=upkeep.refreshed,
                random=Random(),
                tell_after_ms=settings.log.broker_silence_max_ms,
                is_left_out=self._is_left_out,
            )
            gate.metadata = self._metadata = metadata
            commands.topic_names = names
            commands.share_calls = gate
            commands.topic_ends = TopicEndSource(
                options,
                timeout_ms=settings.metadata.metadata_timeout_ms,
                topics_per_request_max=settings.metadata.metadata_topics_per_request_max,
                waiting_max=settings.metadata.topic_ends_waiting_max,
                known_brokers=lambda: client.brokers,
            )
            at_exit("topic names", names.close)
            refreshing = asyncio.create_task(metadata.run(), name="holdfast-metadata")
            at_exit("metadata", lambda: _cancelled(refreshing))
            image = await self._unless_stopped(metadata.wait_for_first_image(settings.log.admin_timeout_ms))
            lines = LibraryLines(settings.logging.library_lines_per_minute_max, is_left_out=self._is_left_out)
            kafka = KafkaClients(settings.kafka.properties, lines)
            topic, findings = await self._unless_stopped(_find_topic(kafka, client, settings))
            for finding in findings:
                _log.warning("the state topic weakens the log", finding=str(finding))
            metrics.state_topic_warnings.value = len(findings)
            await self._unless_stopped(upkeep.look_at_snapshots(kafka, topic))

            self.view.cluster_id, self.view.state_topic = image.cluster_id, topic
            at_exit("shards", lambda: shards.stop(step_ms), 3 * step_ms)
            has_snapshots = bool(settings.snapshots.topic)
            snapshots = Snapshots(settings, options, self.registry, self._is_left_out) if has_snapshots else None
            owners = Owners(settings.load, self.run_id, self._refused)
            await self._unless_stopped(
                shards.start(
                    topic,
                    image.cluster_id,
                    options,
                    snapshots,
                    advertised_address=self.view.advertised_address,
                    owners=owners,
                )
            )
            at_exit("owners", owners.close)
            self._watch = BrokerWatch(
                options,
                topic.name,
                topic.partition_count,
                silence_max_ms=settings.log.broker_silence_max_ms,
                timeout_ms=settings.log.admin_timeout_ms,
                registry=self.registry,
                answered_again=shards.load_again_soon,
            )
            self._watch.start()
            at_exit("broker watch", self._watch.stop)
            offsets = GroupOffsets(options, settings.log.admin_timeout_ms, lambda: client.brokers)
            stack.callback(offsets.close)
            upkeep.start(topic, image.cluster_id, kafka, offsets, self._log_renewed)
            at_exit("upkeep", upkeep.stop)
            await self._unless_stopped(upkeep.look_at_beginnings())
            service.start_up(topic.partition_count)
            shards.load_all()
            at_exit("requests in flight", lambda: _drained(server, drain_ms), drain_ms + step_ms)
            stack.callback(service.shut_down)
            if settings.compaction.run:
                # One node runs the job. A node that stops because another took over ends its own.
                job = Supervisor(settings, JobMetrics(self.registry))
                job.start()
                at_exit("compaction", job.stop, settings.compaction.stop_timeout_ms + step_ms)
            yield
            _log.info("stopping")

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a step of the start, or leave it when the node is to stop.

        Raises:
            _Stopped: the node is to stop.
        """
        task = asyncio.ensure_future(work)
        waited: list[asyncio.Future[Any]] = [task, self._exit]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if self._exit.done():
            await _cancelled(task)
            raise _Stopped
        return task.result()

    async def _do_step(self, name: str, step: Callable[[], Awaitable[object]], timeout_ms: int) -> None:
        """Do one step of the shutdown; whatever becomes of it, the later ones are tried."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                outcome = await step()
        except Exception as error:
            self._has_failed_step = True
            _log.error("a step of the shutdown failed", step=name, error=repr(error))
            return
        if outcome is False:
            self._has_failed_step = True
            _log.error("a step of the shutdown did not end in time", step=name)

    def _is_left_out(self, partition: int | None) -> bool:
        """Leave what a silent broker causes to the watch, once it watches."""
        return self._watch is not None and self._watch.leaves_out(partition)

    def _set_ready(self, is_ready: bool) -> None:
        if is_ready and not self._is_loaded and self._metadata is not None:
            self._metadata.refresh_soon()  # the topics of all that was loaded are wanted soon
        if is_ready and not self._is_loaded:
            _log.info("ready", seconds=round(time.monotonic() - self._began_s, 3))
        self._is_loaded = is_ready

    def _log_renewed(self, topic: StateTopic) -> None:
        self.view.state_topic = topic

    def _superseded(self, winner: Checkpoint) -> None:
        address = f" at {winner.advertised_address}" if winner.advertised_address else ""
        self.stop(Exit.SUPERSEDED, f"node {winner.node_id}{address} took over")

    def _refused(self, why: str, is_setting_wrong: bool) -> None:
        """Stop, because another node serves this log and is not to be replaced."""
        if not self._exit.done():
            _log.error("the node does not take over", why=why)
        self.stop(Exit.WRONG_USAGE if is_setting_wrong else Exit.SUPERSEDED, why)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _metadata_client(options: ConnectionOptions, settings: Settings) -> MetadataClient:
    return MetadataClient(
        options,
        timeout_ms=settings.metadata.metadata_timeout_ms,
        topics_per_request_max=settings.metadata.metadata_topics_per_request_max,
        random=Random(),
    )


class _Stopped(Exception):
    """The node is to stop before it has started."""


async def _find_topic(
    kafka: KafkaClients, client: MetadataClient, settings: Settings
) -> tuple[StateTopic, tuple[Finding, ...]]:
    # The client of librdkafka ends with this function, and with it what it would say in an outage.
    with kafka.admin() as admin:
        return await ensure_state_topic(admin, client, settings.log, settings.kafka.properties["bootstrap.servers"])


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])


async def _drained(server: Server, deadline_ms: int) -> bool:
    """Let requests in flight finish; returns whether all of them did."""
    return await server.drain(deadline_ms) == 0


def _explain(refusal: Exception) -> str:
    if isinstance(refusal, KafkaException):
        error: KafkaError = refusal.args[0]
        return f"the Kafka client refused its settings or its work: {error.str()}"
    return str(refusal)
