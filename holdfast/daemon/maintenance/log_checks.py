"""Whether the log may be served: checks of the state topic, at intervals, and of how each log partition begins.

A state topic that became unsafe, or another one under its name, stops all log partitions until it is safe or an admin accepts it.
"""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.log_identity import (
    FirstRecords,
    LogProblem,
    find_foreign,
    find_placement,
    find_problem,
    read_first_records,
    refuse_foreign_topic,
)
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, check_snapshot_topic, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import (
    Finding,
    StateTopic,
    StateTopicError,
    TopicMissing,
    check_state_topic,
    confirm_topic,
)
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topics.metadata_client import MetadataClient
from holdfast.metrics.line_limit import LineLimiter
from holdfast.records.log.checkpoint import Placement
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.errors import Alarm

_log = structlog.get_logger(__name__)

_WAY_OUT: Final = "`holdfast partitions accept P --reason …` goes on with what is there"


class LogHolder(Protocol):
    """The log partitions that are stopped or kept waiting; `partitions.Partitions`."""

    runtime: CoordinatorRuntime

    def renew_log(self, topic_id: bytes) -> None:
        """Expect the log in another topic."""

    def place_log(self, placement: Placement) -> None:
        """Expect this placement, by the first records of the log."""

    def list_all_unloaded(self, why: str | None) -> None:
        """List every log partition with why none is loaded yet; None: there is no reason any more."""


class ClusterAccess(NamedTuple):
    """The clients, settings and metrics of a check."""

    kafka: KafkaClients
    settings: Settings
    metrics: LogMetrics
    metadata: MetadataClient

    @property
    def bootstrap(self) -> str:
        """The brokers to begin with, as commands for people name them."""
        return self.settings.kafka.properties["bootstrap.servers"]


async def check_snapshots(access: ClusterAccess, topic: StateTopic) -> bool:
    """Check the snapshot topic, which is made first where this node runs the job; returns whether it can be used."""
    kafka, settings, metrics, _ = access
    if not settings.snapshots.topic:
        return False
    problem = None

    def check() -> tuple[Finding, ...]:
        of_topic = ensure_snapshot_topic if settings.compaction.run else check_snapshot_topic
        with kafka.admin() as admin:
            return of_topic(admin, topic, settings.snapshots, settings.log, access.bootstrap)

    try:
        for finding in await asyncio.to_thread(check):
            _log.warning("snapshot_topic_weakened", finding=str(finding))
    except TopicMissing:
        return False
    except (SnapshotTopicError, ConnectionFailed) as unfit:
        problem = str(unfit)
        _log.error("snapshot_topic_refused", why=problem)
    metrics.snapshot_topic_problems.value = int(problem is not None)
    return problem is None


class LogChecks:
    """What is found wrong with the log of one node as a whole."""

    def __init__(
        self,
        access: ClusterAccess,
        topic: StateTopic,
        partitions: LogHolder,
        limiter: LineLimiter,
        *,
        log_renewed: Callable[[StateTopic], None],
        read_first_records: Callable[..., list[FirstRecords]] = read_first_records,
    ) -> None:
        """Begin with a state topic just checked.

        Args:
            access: to Kafka.
            topic: the state topic.
            partitions: are stopped when the log is not to be trusted.
            limiter: of the lines of the node.
            log_renewed: called with the topic that has taken the name of the one before.
            read_first_records: see `log_identity.read_first_records`.
        """
        #: What the first records of the log partitions say against serving any.
        self.problem: LogProblem | None = None
        self._access = access
        #: As it was when last checked; its id changes when it is recreated.
        self._topic = topic
        self._partitions = partitions
        self._log_renewed = log_renewed
        self._limiter = limiter
        self._read_first_records = read_first_records

    async def check_topic(self) -> None:
        """Check the state topic again; one that became unsafe, or another one under its name, stops all log partitions.

        A topic that was recreated is the log from now on, of which nothing is taken before an admin accepts it.

        Raises:
            ConnectionFailed: no broker would describe the topic, or brokers do not agree which one it is now: nothing is known.
        """
        topic, runtime, metadata = self._topic, self._partitions.runtime, self._access.metadata
        try:
            found, findings = await asyncio.to_thread(self._checked)
        except StateTopicError as unsafe:
            await confirm_topic(metadata, topic.name, None)
            self._distrust(str(unsafe))
            return
        # Also one that is as it was: it may be this node that has not heard of another one.
        await confirm_topic(metadata, found.name, found.topic_id)
        self._access.metrics.state_topic_warnings.value = len(findings)
        await check_snapshots(self._access, found)
        if found.partition_count != topic.partition_count:
            problem = (
                f"the topic {topic.name} has {found.partition_count} partitions and had {topic.partition_count}, so share "
                f"partitions would be looked for in others; copy the log to a new topic with the old number, and name it in state_topic"
            )
            self.problem = LogProblem(problem, is_acceptable=False)
            self._distrust(problem)
        elif found.topic_id != topic.topic_id:
            self._topic = found
            self._log_renewed(found)
            self.problem = None
            self._partitions.renew_log(found.topic_id)
            self._distrust(f"the topic {topic.name} was recreated: its id changed; {_WAY_OUT}")
        elif self.problem is not None:
            self._distrust(self.problem.text)
        else:
            runtime.trust_log()

    async def look_at_beginnings(self) -> None:
        """Wait until every log partition was read to its first checkpoint, and distrust the log if one is of another.

        From then on the runtime knows the placement of the log.
        While a log partition cannot be read, the others wait as well: it may be the one that names another log.

        Raises:
            StateTopicError: another program writes the topic.
        """
        logged = ""
        first_records = await self._look()
        while find_foreign(first_records) is None and (
            unread := [found for found in first_records if not found.is_known]
        ):
            numbers = ", ".join(str(found.partition) for found in unread)
            why = (
                f"no log partition is served before each was read to its first checkpoint, and {len(unread)} could not be: "
                f"log partition {numbers} ({unread[0].why_unread})"
            )
            self._partitions.list_all_unloaded(why)
            if why != logged and not self._limiter.leave_out():
                _log.warning("node_start_delayed", why=why)
                logged = why
            first_records = await self._look()
        self._partitions.list_all_unloaded(None)
        refuse_foreign_topic(self._topic.name, first_records)
        self._partitions.place_log(find_placement(first_records))
        self._judge(first_records)

    async def _look(self) -> list[FirstRecords]:
        identity, timeout_ms = self._partitions.runtime.config.log, self._access.settings.log.request_timeout_ms
        stop = Event()
        try:
            return await asyncio.to_thread(
                self._read_first_records, self._access.kafka, self._topic, identity, timeout_ms, stop
            )
        finally:
            stop.set()  # a thread does not end with the task that waits for it, and the process waits for the thread

    def _judge(self, first_records: list[FirstRecords]) -> None:
        self.problem = find_problem(self._topic.name, self._partitions.runtime.config.log, first_records)
        if self.problem is not None:
            self._distrust(self.problem.text)

    async def look_again(self) -> None:
        """Trust the log again once no problem is left: it was restored, or accepted, meanwhile.

        Until then the first problem is kept, so that no log partition that an admin accepted is stopped by others.
        """
        if self.problem is None or not self.problem.is_acceptable:
            return
        first_records = await self._look()
        if not all(found.is_known for found in first_records):
            return
        if find_problem(self._topic.name, self._partitions.runtime.config.log, first_records) is None:
            problem, self.problem = self.problem, None
            if str(self._partitions.runtime.log_alarm) == problem.text:
                self._partitions.runtime.trust_log()

    def _checked(self) -> tuple[StateTopic, tuple[Finding, ...]]:
        kafka, settings, *_ = self._access
        with kafka.admin() as admin:
            return check_state_topic(admin, settings.log, self._access.bootstrap)

    def _distrust(self, problem: str) -> None:
        """Stop all log partitions because of a problem, once: what an admin accepted since goes on."""
        runtime = self._partitions.runtime
        if runtime.log_alarm is None or str(runtime.log_alarm) != problem:
            runtime.distrust_log(Alarm(problem))
