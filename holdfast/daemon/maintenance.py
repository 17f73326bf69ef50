"""What a node does by the clock: the state topic is checked again, deleted topics lose their state, log readers are looked up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from threading import Event
from typing import Any

import structlog
from confluent_kafka import KafkaException

from holdfast.daemon.brokers.silence import IsLeftOut, none_left_out
from holdfast.daemon.partitions.shards import Shards
from holdfast.daemon.pruning.log_readers import Change, LogReaders
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.share.decisions import ShareShard
from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.daemon.topics.deleted_topics import CleanUp, CleanUpStopped, DeletedTopics
from holdfast.daemon.topics.log_identity import (
    Beginning,
    LogProblem,
    find_foreign,
    find_problem,
    read_beginnings,
    refuse_foreign_topic,
)
from holdfast.daemon.topics.metadata_cache import MetadataImage, Refresh
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, check_snapshot_topic, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import Finding, StateTopic, StateTopicError, TopicMissing, check_state_topic
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import GroupOffsets, GroupRefused
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.metrics.registry import Registry
from holdfast.runtime.errors import Alarm, CoordinatorError
from holdfast.runtime.machine import Decision

_log = structlog.get_logger(__name__)

#: How often the metrics' windows may turn.
_ROLL_INTERVAL_MS = 1_000
_WAY_OUT = "`holdfast partitions accept P --reason …` goes on with what is there"


class TopicCleanUp:
    """Tombstones for the share partitions of deleted topics in one shard, a slice at a time."""

    name = "clean-up-deleted-topics"

    def __init__(self, topic_ids: frozenset[bytes], records_max: int, again: Callable[[], None]) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self._topic_ids = topic_ids
        self._records_max = records_max
        self._again = again
        self._count = 0

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide the next tombstones."""
        decision = machine.decide_topic_cleanup(self._topic_ids, self._records_max)
        self._count = len(decision.records)
        return decision

    def complete(self, outcome: object) -> None:
        """Go on with the next slice; a failed one is tried again after the next refresh."""
        if self._count == self._records_max and not isinstance(outcome, CoordinatorError):
            self._again()


class Upkeep:
    """The clockwork of one node."""

    def __init__(
        self,
        settings: Settings,
        shards: Shards,
        metrics: ShareMetrics,
        registry: Registry,
        read_beginnings: Callable[..., list[Beginning]] = read_beginnings,
        is_left_out: IsLeftOut = none_left_out,
    ) -> None:
        self.deleted: DeletedTopics | None = None
        self.alarm: CleanUpStopped | None = None  #: a clean-up that waits for an admin
        self.log_problem: LogProblem | None = None  #: what the beginnings of the log partitions say against serving any
        self._topic: StateTopic | None = None  #: as it was when last looked at; its id changes when it is made again
        self._log_renewed: Callable[[StateTopic], None] = lambda _: None
        self._settings = settings
        self._shards = shards
        self._metrics = metrics
        self._registry = registry
        self._read_beginnings = read_beginnings
        self._is_left_out = is_left_out
        self._kafka: KafkaClients | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reader_problems: dict[str, str] = {}  #: by group; why the last look failed

    def start(
        self,
        topic: StateTopic,
        cluster_id: str,
        kafka: KafkaClients,
        offsets: GroupOffsets,
        log_renewed: Callable[[StateTopic], None],
    ) -> None:
        """Begin to work, for a state topic just checked; `log_renewed` is told when another one takes its name."""
        settings = self._settings
        self._topic, self._kafka, self._log_renewed = topic, kafka, log_renewed
        self.deleted = DeletedTopics(settings.deleted_topics, cluster_id)
        self._every(settings.log.state_topic_check_interval_ms, lambda: self._check_topic(kafka))
        # As after any alarm: log partitions of another log are read as a whole.
        self._every(settings.load.alarm_backoff_ms, self._look_again)
        self._every(_ROLL_INTERVAL_MS, self._roll)
        readers = self._shards.readers = self._make_readers()
        if readers.groups:
            partitions = range(topic.partition_count)

            def look_up() -> Coroutine[Any, Any, None]:
                return self._look_up(readers, lambda group: offsets.fetch_offsets(group, topic.name, partitions))

            self._every(settings.pruning.pruning_check_interval_ms, look_up)

    async def stop(self) -> None:
        """Stop all of it."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ---- deleted topics --------------------------------------------------------------------------------------------

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """Take a refresh of the metadata: shards learn the image; after one that asked for every topic, deleted ones their fate."""
        self._shards.new_metadata_image(image)
        deleted = self.deleted
        if deleted is None:
            return
        if not refresh.is_full:
            deleted.observe(refresh)
            return
        counts: Counter[bytes] = Counter()
        for _, machine in self._shards.active():
            held = machine.state.topic_sizes()
            counts.update(held)
            if not machine.load.is_accepted:
                deleted.count_as_seen(held)
        deleted.observe(refresh)
        self._act(deleted.decide(counts, refresh.at_ms))

    def _act(self, decided: CleanUp | CleanUpStopped | None) -> None:
        was_alarmed = self.alarm is not None
        self.alarm = decided if isinstance(decided, CleanUpStopped) else None
        self._metrics.deleted_topics_alarm.value = int(self.alarm is not None)
        if self.alarm is not None and not was_alarmed:
            _log.error("the clean-up of deleted topics stopped", why=self.alarm.text)
        if isinstance(decided, CleanUp):
            _log.info("deleted topics lose their state", topics=len(decided.topic_ids), keys=decided.key_count)
            for partition, machine in list(self._shards.active()):
                if machine.state.share_partition_count(decided.topic_ids):
                    self._clean_up(partition.index, decided.topic_ids)

    def _clean_up(self, index: int, topic_ids: frozenset[bytes]) -> None:
        records_max = self._settings.deleted_topics.deleted_topic_keys_per_slice_max
        operation = TopicCleanUp(topic_ids, records_max, lambda: self._go_on(index, topic_ids))
        self._shards.runtime.write(index, operation)

    def _go_on(self, index: int, topic_ids: frozenset[bytes]) -> None:
        """Clean the next slice up, unless a topic was seen again while the last one was written."""
        assert self.deleted is not None
        still_gone = self.deleted.still_gone(topic_ids)
        if still_gone:
            self._clean_up(index, still_gone)

    # ---- by the clock ----------------------------------------------------------------------------------------------

    def _every(self, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        retry_ms = min(interval_ms, self._settings.load.retry_backoff_max_ms)

        async def repeat() -> None:
            is_unanswered = is_told = False  # that Kafka does not answer is told once, until it does
            while True:
                await asyncio.sleep((retry_ms if is_unanswered else interval_ms) / 1_000)
                try:
                    await work()
                    is_unanswered = is_told = False
                except (KafkaException, ConnectionFailed) as failure:
                    if not is_told and not self._is_left_out(None):
                        _log.warning("upkeep could not ask Kafka", why=str(failure), again_in_ms=retry_ms)
                        is_told = True
                    is_unanswered = True
                except Exception:  # a bug in one turn must not be the last of them
                    _log.exception("upkeep failed")

        self._tasks.append(asyncio.create_task(repeat(), name="holdfast-upkeep"))

    async def _roll(self) -> None:
        self._registry.roll()

    async def _check_topic(self, kafka: KafkaClients) -> None:
        """Look at the state topic again; one that became unsafe, or another one under its name, stops all shards.

        A topic made again is the log from now on, of which nothing is taken before an admin accepts it.
        """
        bootstrap = self._settings.kafka.properties["bootstrap.servers"]
        topic, runtime = self._topic, self._shards.runtime
        assert topic is not None
        try:
            found, findings = await asyncio.to_thread(self._checked, kafka, bootstrap)
        except StateTopicError as unsafe:
            self._distrust(str(unsafe))
            return
        self._metrics.state_topic_warnings.value = len(findings)
        await self.look_at_snapshots(kafka, found)
        if found.partition_count != topic.partition_count:
            problem = (
                f"the topic {topic.name} has {found.partition_count} partitions and had {topic.partition_count}, so share "
                f"partitions would be looked for in others; copy the log to a new topic with the old number, and name it in state_topic"
            )
            self.log_problem = LogProblem(problem, is_acceptable=False)
            self._distrust(problem)
        elif found.topic_id != topic.topic_id:
            self._topic = found
            self._log_renewed(found)
            self.log_problem = None
            runtime.renew_log(found.topic_id)
            self._distrust(f"the topic {topic.name} was made again, for its id changed; {_WAY_OUT}")
        elif self.log_problem is not None:
            self._distrust(self.log_problem.text)
        else:
            runtime.trust_log()

    async def look_at_beginnings(self) -> None:
        """Wait until every log partition was read to its first checkpoint, and distrust the log if one is of another.

        While a log partition cannot be read, the others wait as well: it may be the one that knows.

        Raises:
            StateTopicError: another program writes the topic.
        """
        assert self._topic is not None
        said = ""
        beginnings = await self._look()
        while find_foreign(beginnings) is None and (unread := [found for found in beginnings if not found.is_known]):
            numbers = ", ".join(str(found.partition) for found in unread)
            why = (
                f"no log partition is served before each was read to its first checkpoint, and {len(unread)} could not be: "
                f"log partition {numbers} ({unread[0].why_unread})"
            )
            self._shards.hold_all(why)
            if why != said and not self._is_left_out(None):
                _log.warning("the node waits for log partitions", why=why)
                said = why
            beginnings = await self._look()
        self._shards.hold_all(None)
        refuse_foreign_topic(self._topic.name, beginnings)
        self._judge(beginnings)

    async def _look(self) -> list[Beginning]:
        topic, settings = self._topic, self._settings
        assert topic is not None
        assert self._kafka is not None
        identity, timeout_ms = self._shards.runtime.config.log, settings.log.admin_timeout_ms
        stop = Event()
        try:
            return await asyncio.to_thread(self._read_beginnings, self._kafka, topic, identity, timeout_ms, stop)
        finally:
            stop.set()  # a thread does not end with the task that waits for it, and the process waits for the thread

    def _judge(self, beginnings: list[Beginning]) -> None:
        assert self._topic is not None
        self.log_problem = find_problem(self._topic.name, self._shards.runtime.config.log, beginnings)
        if self.log_problem is not None:
            self._distrust(self.log_problem.text)

    async def _look_again(self) -> None:
        """Trust the log again once nothing is left that speaks against it: it was restored, or accepted, meanwhile.

        Until then the first words stand, so that no log partition that an admin accepted is stopped by others.
        """
        if self.log_problem is None or not self.log_problem.is_acceptable:
            return
        beginnings, topic = await self._look(), self._topic
        assert topic is not None
        if not all(found.is_known for found in beginnings):
            return
        if find_problem(topic.name, self._shards.runtime.config.log, beginnings) is None:
            problem, self.log_problem = self.log_problem, None
            if str(self._shards.runtime.log_alarm) == problem.text:
                self._shards.runtime.trust_log()

    def _checked(self, kafka: KafkaClients, bootstrap: str) -> tuple[StateTopic, tuple[Finding, ...]]:
        with kafka.admin() as admin:
            return check_state_topic(admin, self._settings.log, bootstrap)

    async def look_at_snapshots(self, kafka: KafkaClients, topic: StateTopic) -> bool:
        """Look at the snapshot topic, which is made first where this node runs the job; returns whether it can be used."""
        snapshots, bootstrap = self._settings.snapshots, self._settings.kafka.properties["bootstrap.servers"]
        if not snapshots.topic:
            return False
        problem = None

        def look() -> tuple[Finding, ...]:
            look_at = ensure_snapshot_topic if self._settings.compaction.run else check_snapshot_topic
            with kafka.admin() as admin:
                return look_at(admin, topic, snapshots, self._settings.log, bootstrap)

        try:
            for finding in await asyncio.to_thread(look):
                _log.warning("the snapshot topic could be better", finding=str(finding))
        except TopicMissing:
            return False
        except (SnapshotTopicError, ConnectionFailed) as unfit:
            problem = str(unfit)
            _log.error("the snapshot topic is not fit", why=problem)
        self._metrics.snapshot_topic_problems.value = int(problem is not None)
        return problem is None

    def _distrust(self, problem: str) -> None:
        """Stop all shards because of a problem, once: what an admin accepted since goes on."""
        runtime = self._shards.runtime
        if runtime.log_alarm is None or str(runtime.log_alarm) != problem:
            runtime.distrust_log(Alarm(problem))

    def _make_readers(self) -> LogReaders:
        """Return the readers that are registered: those an admin named, and the job that writes the snapshot topic.

        A job that nobody runs holds nothing, and one that runs elsewhere is known by its commits.
        """
        pruning, compaction = self._settings.pruning, self._settings.compaction
        job = (compaction.group,) if self._settings.snapshots.topic else ()
        return LogReaders(
            (*pruning.log_readers, *job),
            pruning.reader_timeout_ms,
            self._shards.runtime.now_ms,
            self._reader_changed,
            from_first_commit=() if compaction.run else set(job) - set(pruning.log_readers),
            drop_after_ms=pruning.reader_drop_after_ms,
        )

    async def _look_up(self, readers: LogReaders, fetch: Callable[[str], Awaitable[Mapping[int, int]]]) -> None:
        for group in readers.groups:
            try:
                found = await fetch(group)
            except (GroupRefused, ConnectionFailed) as failure:
                # Brokers that cannot be reached are so in many words.
                problem = str(failure) if isinstance(failure, GroupRefused) else "Kafka does not answer"
                is_left_out = isinstance(failure, ConnectionFailed) and self._is_left_out(None)
                if self._reader_problems.get(group) != problem and not is_left_out:
                    self._reader_problems[group] = problem
                    _log.warning("what a log reader has committed cannot be asked", reader=group, why=str(failure))
                continue
            self._reader_problems.pop(group, None)
            ends = {partition.index: partition.committed_offset for partition, _ in self._shards.active()}
            readers.learn(group, found, ends)

    def drop_reader(self, group: str, reason: str) -> None:
        """Let a registered reader hold the log no more before it commits again, because an admin says so."""
        self._shards.readers.drop(group)
        self._metrics.dropped_readers.value += 1
        _log.warning("an admin drops a log reader, which holds the log no more", reader=group, reason=reason)

    def _reader_changed(self, change: Change, group: str, silent_ms: int) -> None:
        if change is Change.SILENT:
            _log.error("a registered log reader is silent and holds the log", reader=group, silent_ms=silent_ms)
            self._metrics.silent_readers.value += 1
        elif change is Change.DROPPED:
            _log.error("a silent log reader was dropped, and holds the log no more", reader=group, silent_ms=silent_ms)
            self._metrics.dropped_readers.value += 1
        else:
            _log.warning("a dropped log reader has committed again, and holds the log again", reader=group)
