"""The periodic work of one node."""

from collections.abc import Callable, Iterable

from holdfast.daemon.context import NodeContext
from holdfast.daemon.maintenance.log_checks import ClusterAccess, LogChecks
from holdfast.daemon.maintenance.reader_offsets import ReaderOffsets
from holdfast.daemon.maintenance.schedule import Duty, Schedule
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.group_offsets import GroupOffsets


class Maintenance:
    """The periodic work, and its findings for an admin."""

    def __init__(
        self,
        log_checks: LogChecks,
        readers: LogReaders,
        reader_offsets: ReaderOffsets,
        schedule: Schedule,
    ) -> None:
        self.log_checks = log_checks
        self.readers = readers
        self.reader_offsets = reader_offsets
        self._schedule = schedule

    def start(self, settings: Settings, duties: Iterable[Duty] = ()) -> None:
        """Begin to work, also on the duties of tenants."""
        every, checks = self._schedule.every, self.log_checks
        every(settings.log.state_topic_check_interval_ms, checks.check_topic)
        # As after any alarm: log partitions of another log are read as a whole.
        every(settings.load.alarm_backoff_ms, checks.look_again)
        for interval_ms, work in duties:
            every(interval_ms, work)
        if self.readers.groups:
            every(settings.pruning.pruning_check_interval_ms, self.reader_offsets.look_up)

    async def stop(self) -> None:
        """Stop all of it."""
        await self._schedule.stop()


def make_maintenance(
    access: ClusterAccess,
    partitions: Partitions,
    offsets: GroupOffsets,
    context: NodeContext,
    *,
    log_renewed: Callable[[StateTopic], None],
) -> Maintenance:
    """Return the periodic work of a node over its log."""
    topic = partitions.place.topic
    numbers = range(topic.partition_count)
    return Maintenance(
        LogChecks(access, topic, partitions, context.limiter, log_renewed=log_renewed),
        partitions.readers,
        ReaderOffsets(
            partitions.readers,
            lambda group: offsets.fetch_offsets(group, topic.name, numbers),
            partitions.committed_offsets,
            access.metrics,
            context.limiter,
        ),
        Schedule(access.settings.load.retry_backoff_max_ms, context),
    )
