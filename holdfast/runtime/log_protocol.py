"""The interface between the runtime and the log: the requests of the runtime, and the reports of the log.

`kafka_log` implements it over a real topic, `tests/simulated/memory_log.py` in memory and with faults.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol


class LogRecord(NamedTuple):
    """A record of the log."""

    offset: int
    key: bytes | None
    value: bytes | None
    #: The `hf` header; None where it is missing.
    header: bytes | None


#: Makes a LogRecord of its four values in order, in half the time of the class's own constructor.
make_log_record: Final[Callable[[Iterable[Any]], LogRecord]] = partial(tuple.__new__, LogRecord)


class ReadError(NamedTuple):
    """Why reading a partition cannot go on."""

    text: str
    #: The log was truncated or is out of range, so a retry would hide a loss.
    is_alarm: bool


class Log(Protocol):
    """The log as a node sees it; every call returns at once, and its outcome is reported to the `LogListener`."""

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        """Hand one record to the producer of this node; it is appended after the earlier ones of its partition, or not at all.

        Raises:
            AppendRefused: the record was not taken; it will never be appended.
        """

    def flush_if_all_wait(self) -> None:
        """Send the appended records now if no more of them can be expected at once; otherwise they are sent soon."""

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        """Read from an offset, or from the log's start if that is higher, and go on until `stop_reading`.

        A second call reads from scratch under the new instance.
        """

    def stop_reading(self, partition: int) -> None:
        """Stop reading; records of the instance that are in flight may still be reported."""

    def query_log_start(self, partition: int, instance: int) -> None:
        """Request the log's start from the broker."""

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """Request the offset after the last record below the high watermark, as it is now or later."""

    def delete_records(self, partition: int, before_offset: int) -> None:
        """Delete the records below an offset."""


class LogListener(Protocol):
    """The receiver of the log's reports; always called on the runtime's own thread."""

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """Report the log start and the high watermark as they were when reading began."""

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """Report records below the high watermark, in offset order, each once per instance."""

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """Report that the next `count` records are byte for byte the ones this node appended, from `first_header` on.

        Returns:
            Whether the listener has accepted them; if not, they are reported by `records_read`.
        """

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """Report that every record below an offset was reported."""

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """Report, once for each instance, that the end that the log had when reading began was reached."""

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """Report the new start of the log after we or another program deleted records; only after `caught_up`."""

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """Report that reading of this instance ended."""

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """Report that a record that was handed over failed (None: not known which); it may still be appended."""

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """Answer `query_log_start`; None if the broker did not say."""

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """Answer `query_latest_offsets`, once for each partition, together or one by one; None if the broker did not say.

        The round is the newest one that was requested before the request was sent.
        """

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """Report the new log start after `delete_records`, or None and why it failed."""
