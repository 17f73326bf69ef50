"""The periodic work of one node."""

from collections.abc import Callable

from holdfast.daemon.brokers.silence import IsLeftOut
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.maintenance.log_checks import ClusterAccess, LogChecks
from holdfast.daemon.maintenance.reader_offsets import ReaderOffsets
from holdfast.daemon.maintenance.schedule import Schedule
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.group_offsets import GroupOffsets
from holdfast.share.deleted_state import DeletedState
from holdfast.share.group_metrics.group_metrics import GroupMetrics


class Maintenance:
    """The periodic work, and its findings for an admin."""

    def __init__(
        self,
        deleted_state: DeletedState,
        log_checks: LogChecks,
        readers: LogReaders,
        reader_offsets: ReaderOffsets,
        group_metrics: GroupMetrics,
        schedule: Schedule,
    ) -> None:
        """Take the parts; nothing is done before `start`."""
        self.deleted_state = deleted_state
        self.log_checks = log_checks
        self.readers = readers
        self.reader_offsets = reader_offsets
        self._group_metrics = group_metrics
        self._schedule = schedule

    def start(self, settings: Settings) -> None:
        """Begin to work."""
        every, checks = self._schedule.every, self.log_checks
        every(settings.log.state_topic_check_interval_ms, checks.check_topic)
        # As after any alarm: log partitions of another log are read as a whole.
        every(settings.load.alarm_backoff_ms, checks.look_again)
        if self._group_metrics.is_wanted:
            every(self._group_metrics.interval_ms, self._group_metrics.refresh)
        if self.readers.groups:
            every(settings.pruning.pruning_check_interval_ms, self.reader_offsets.look_up)

    async def stop(self) -> None:
        """Stop all of it."""
        await self._schedule.stop()


def make_maintenance(
    settings: Settings,
    access: ClusterAccess,
    topic: StateTopic,
    partitions: Partitions,
    offsets: GroupOffsets,
    group_metrics: GroupMetrics,
    internal_errors: InternalErrors,
    *,
    cluster_id: str,
    log_renewed: Callable[[StateTopic], None],
    is_left_out: IsLeftOut,
) -> Maintenance:
    """Return the periodic work of a node over its log."""
    numbers = range(topic.partition_count)
    return Maintenance(
        DeletedState(settings.deleted_topics, cluster_id, partitions, access.metrics.deleted_topics_alarm),
        LogChecks(access, topic, partitions, log_renewed=log_renewed, is_left_out=is_left_out),
        partitions.readers,
        ReaderOffsets(
            partitions.readers,
            lambda group: offsets.fetch_offsets(group, topic.name, numbers),
            partitions.committed_offsets,
            access.metrics,
            is_left_out,
        ),
        group_metrics,
        Schedule(settings.load.retry_backoff_max_ms, internal_errors, is_left_out),
    )
