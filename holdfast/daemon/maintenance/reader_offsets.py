"""How far the registered readers of the log are: looked up in Kafka, and reported when one falls silent or comes back."""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.pruning.log_readers import Change, LogReaders
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import GroupRefused
from holdfast.metrics.line_limit import LineLimiter

_log = structlog.get_logger(__name__)


class ReaderReport:
    """The log lines and counts of changes of readers."""

    def __init__(self, metrics: LogMetrics) -> None:
        self._metrics = metrics

    def __call__(self, change: Change, group: str, silent_ms: int) -> None:
        """Report a change of the reader that is this consumer group."""
        if change is Change.SILENT:
            _log.error("log_reader_stalled", reader=group, silent_ms=silent_ms)
            self._metrics.silent_readers.value += 1
        elif change is Change.DROPPED:
            _log.error("log_reader_expired", reader=group, silent_ms=silent_ms)
            self._metrics.dropped_readers.value += 1
        else:
            _log.warning("log_reader_returned", reader=group)


class ReaderOffsets:
    """The look-up of what the registered readers have committed."""

    def __init__(
        self,
        readers: LogReaders,
        fetch: Callable[[str], Awaitable[Mapping[int, int]]],
        ends: Callable[[], Mapping[int, int]],
        metrics: LogMetrics,
        limiter: LineLimiter,
    ) -> None:
        """Begin.

        Args:
            readers: learn what is found.
            fetch: returns what a group has committed, by log partition; raises GroupRefused or ConnectionFailed.
            ends: returns where the log partitions end that serve here.
            metrics: count dropped readers.
            limiter: of the lines of the node.
        """
        self._readers = readers
        self._fetch = fetch
        self._ends = ends
        self._metrics = metrics
        self._limiter = limiter
        #: By group; why the last look-up failed.
        self._problems: dict[str, str] = {}

    async def look_up(self) -> None:
        """Look all of them up; one that fails does not keep the others from it."""
        for group in self._readers.groups:
            try:
                found = await self._fetch(group)
            except (GroupRefused, ConnectionFailed) as failure:
                # Every broker that cannot be reached may word it differently.
                problem = str(failure) if isinstance(failure, GroupRefused) else "Kafka does not answer"
                is_effect = isinstance(failure, ConnectionFailed) and self._limiter.leave_out()
                if self._problems.get(group) != problem and not is_effect:
                    self._problems[group] = problem
                    _log.warning("log_reader_lookup_failed", reader=group, why=str(failure))
                continue
            self._problems.pop(group, None)
            self._readers.learn(group, found, self._ends())

    def drop(self, group: str, reason: str) -> None:
        """Let a registered reader block pruning no more before it commits again, because an admin says so."""
        self._readers.drop(group)
        self._metrics.dropped_readers.value += 1
        _log.warning("log_reader_dropped", reader=group, reason=reason)
