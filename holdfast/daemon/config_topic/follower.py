"""The follower of the config topic: it is read to the end that it has then, and whatever comes behind is taken at once.

A value is shown only when the end was reached: in the middle of the topic lie values that do not hold any more.
What was read stays in effect while the topic cannot be read again.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.daemon.config_topic.values import PARTITION, ClusterValues, TooManyValues
from holdfast.runtime.log_protocol import LogRecord, ReadError


class ConfigLog(Protocol):
    """The part of `KafkaLog` that the follower uses, for the config topic."""

    def has_topic(self) -> bool:
        """Return whether some broker has known the topic, or hides whether there is one."""

    def start_reading(self, partition: int, instance: int) -> None:
        """See `Log.start_reading`."""

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""


class FollowerHost(Protocol):
    """What the follower reports to."""

    def progressed(self) -> None:
        """Learn that more was read, or that reading ended."""

    def values_changed(self) -> None:
        """Learn that other values hold than before."""

    def read_again_later(self) -> None:
        """Call `begin` after a pause."""

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""


class ConfigFollower:
    """What the config topic holds (`LogListener`)."""

    def __init__(self, log: ConfigLog, host: FollowerHost, bytes_max: int) -> None:
        """Prepare; nothing is read before `begin`.

        Args:
            log: the config topic.
            host: what is reported to.
            bytes_max: of all names and values.
        """
        self._log = log
        self._host = host
        self._bytes_max = bytes_max
        #: What holds.
        self.values = ClusterValues(bytes_max)
        #: What is read; the same once its end was reached.
        self._reading = self.values
        #: Times that reading began.
        self.begun = 0
        #: Of these, the newest that reached the end, or found that there is no topic; 0: none yet.
        self.ended = 0
        self._problem = ""

    def begin(self) -> None:
        """Read the topic from its start to the end that it has now, and go on from there."""
        self.begun += 1
        self._reading = ClusterValues(self._bytes_max)
        self._log.start_reading(PARTITION, self.begun)

    def begin_without_topic(self) -> None:
        """End at once, because the brokers were looked up just now and the one that answered knows no topic; it is looked for later.

        Another look would come after the pause between two, for which no start of a node should wait: a topic that is so new that
        a broker has not heard of it is followed soon in either case.
        """
        self.begun += 1
        self._end_without_topic()

    def failed(self, why: str) -> None:
        """Learn that the topic cannot be read; it is read again later."""
        if why != self._problem:
            self._problem = why
            self._host.note("warning", "config_topic_unread", {"why": why})
        self._host.read_again_later()
        self._host.progressed()

    # ---- what the log reports (LogListener) ------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        if instance != self.begun:
            return
        reading, is_followed = self._reading, self._reading is self.values
        before = reading.texts() if is_followed else {}
        try:
            foreign = reading.add((offset, key, value) for offset, key, value, _ in records)
        except TooManyValues as error:
            self._log.stop_reading(PARTITION)
            self.failed(str(error))
            return
        if foreign:
            self._host.note("warning", "config_records_passed_over", {"offsets": foreign})
        if is_followed and reading.texts() != before:
            self._host.values_changed()
        self._host.progressed()

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        return False

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""
        if instance == self.begun:
            self._reading.reached(next_offset)
            self._host.progressed()

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        if instance != self.begun:
            return
        self._reading.reached(next_offset)
        is_other = self._reading.texts() != self.values.texts()
        is_news = is_other or self.ended == 0 or bool(self._problem)
        self.values, self.ended, self._problem = self._reading, instance, ""
        if is_news:
            fields: dict[str, object] = {"offset": self.values.offset, "settings": len(self.values.values)}
            self._host.note("info", "config_topic_read", fields)
        if is_other:
            self._host.values_changed()
        self._host.progressed()

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`."""
        if instance != self.begun:
            return
        if self._log.has_topic():
            self.failed(error.text)
            return
        self._end_without_topic()

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """Ignore it: nothing is appended by this `Log`."""

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """Ignore it: what was deleted was read."""

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """Ignore it: the follower requests none."""

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """Ignore it: the follower requests none."""

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        """Ignore it: the follower deletes none."""

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _end_without_topic(self) -> None:
        self.ended = self.begun
        self._host.read_again_later()
        self._host.progressed()
