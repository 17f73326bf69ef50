"""All that is known of the changes of one state topic: the history up to where the log starts, and the log from there on."""

from collections.abc import Container, Iterator

from holdfast.console.show.output import say
from holdfast.console.sources import log_reader
from holdfast.console.sources.history_files import HistoryFiles
from holdfast.console.sources.history_states import HistoryGap, KeyFilter, LogChange
from holdfast.console.sources.log_reader import LogReader
from holdfast.history.lost import cut_before, ends_before_log
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.records.share.values import Snapshot, Update

_KINDS = ("snapshot", "update", "tombstone")


class HistoryLog:
    """The changes of share partitions, those so far and those to come.

    Each is given once: from the history below the start of a log partition, and from the log itself from there on.
    """

    def __init__(self, files: HistoryFiles, log: LogReader | None, group: str, wanted: KeyFilter) -> None:
        """Look up where the log starts, and then how far the job is.

        Args:
            files: the history, whose files were not listed so far.
            log: the log; None: only the history is read.
            group: consumer group of the job that writes the history, whose committed offsets say how far a history of an earlier
                version goes.
            wanted: which share partitions.

        Raises:
            Failure: the log cannot be read.
        """
        self._files = files
        self._log = log
        self._wanted = wanted
        # Looked up before the files are listed: what was pruned by then is in them, unless the job never saw it.
        self._starts = {} if log is None else log.begin(self._partitions(log))
        # Looked up before the files are listed too, so what is covered is in them. A history of an earlier version does not name
        # what it covers; there the job's progress is used instead.
        self._covered = {} if log is None else log.kafka.committed(group, log.topic) | files.covered()

    def begin_ms(self) -> int | None:
        """Return the time of the first change in the history; None: there is none.

        Raises:
            Failure: the history cannot be read.
        """
        return self._files.begin_ms()

    def changes(self, until_ms: int | None = None) -> Iterator[LogChange | HistoryGap]:
        """Yield what is wanted; the changes of one log partition come in the order of their offsets.

        Args:
            until_ms: what is a day later may be left out; None: nothing may.

        Raises:
            Failure: history or log cannot be read.
        """
        #: By log partition in which something wanted was found: where the last gap ends.
        gap_ends: dict[int, int] = {}
        for change in self._files.changes(self._wanted, until_ms):
            partition = change.log_partition
            if isinstance(change, HistoryGap):
                if self._concerns(change, gap_ends):
                    gap_ends[partition] = change.end
                    _warn(change, until_ms, cut_before(partition, change.end))
                    yield change
            elif partition not in self._starts or change.offset < self._starts[partition]:
                gap_ends.setdefault(partition, 0)
                yield change
        if self._log is None:
            return
        for partition, gap_end in gap_ends.items():
            start = self._starts.get(partition, 0)
            if max(gap_end, self._covered.get(partition, 0)) >= start:
                continue
            offset, since_ms = self._files.newest(partition, start) or (-1, 0)
            end = max(gap_end, self._covered.get(partition, offset + 1))
            if end < start:
                gap = HistoryGap(partition, start, since_ms)
                _warn(gap, until_ms, ends_before_log(partition, end, start))
                yield gap
        yield from self.new_changes()

    def new_changes(self) -> Iterator[LogChange]:
        """Yield what the log has got since the last time.

        Raises:
            Failure: the log cannot be read.
        """
        assert self._log is not None, "only a log has something new"
        for entry in self._log.read(log_reader.LogSelection(tuple(self._starts))):
            if not entry.counts:
                continue
            if entry.problem is not None:
                say(f"Log partition {entry.partition}, offset {entry.offset}: {entry.problem}")
            if entry.kind in _KINDS and entry.key is not None and self._wanted.includes(entry.key):
                value = entry.value if isinstance(entry.value, Snapshot | Update) else None
                yield LogChange(entry.partition, entry.offset, entry.timestamp_ms, entry.key, value, entry.owner_epoch)

    def _partitions(self, log: LogReader) -> list[int]:
        """Return the log partitions that can hold what is wanted."""
        partitions = log.kafka.partitions(log.topic)
        group_id, topic_id, partition = self._wanted
        if group_id is None or topic_id is None or partition is None:
            return partitions
        key = SharePartitionKey(group_id, topic_id, partition)
        return [log_partition(key, len(partitions), log_reader.find_placement(log.kafka, log.topic))]

    def _concerns(self, gap: HistoryGap, found_in: Container[int]) -> bool:
        """Tell whether what is wanted may have changed in a gap of the history, and the log does not hold the change."""
        if self._log is not None:
            return gap.end <= self._starts.get(gap.log_partition, -1)
        return None in self._wanted or gap.log_partition in found_in


def _warn(gap: HistoryGap, until_ms: int | None, text: str) -> None:
    if until_ms is None or gap.since_ms <= until_ms:
        say(text)
