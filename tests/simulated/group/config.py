"""The config topic, and the real follower of it in each process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from holdfast.daemon.config_topic.follower import ConfigFollower
from holdfast.daemon.config_topic.values import PARTITION
from holdfast.runtime.log_protocol import LogRecord, ReadError
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.network import Pause

if TYPE_CHECKING:
    from tests.simulated.group.node import GroupNode
    from tests.simulated.group.world import GroupWorld

NAMES = ("linger", "patience", "a setting of a later version")
RETRY_MS = 300
#: How long reading may rest beside that.
UNREAD_MAX_MS = 1_000
BYTES_MAX = 100_000


class ConfigLog:
    """The config topic as the brokers hold it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._written = 0
        #: By offset; None: compacted away.
        self.records: list[LogRecord | None] = []
        #: By offset: what holds behind its record.
        self.holds: list[dict[str, str]] = []
        #: How often it was recreated under its name.
        self.times_made = 0

    @property
    def end(self) -> int:
        """Return the offset behind the newest record."""
        return len(self.records)

    def texts_at(self, offset: int) -> dict[str, str]:
        """Return what holds up to an offset, inclusive."""
        return self.holds[offset] if 0 <= offset < self.end else {}

    def write(self) -> None:
        """Set or unset a setting, or write what is none."""
        self._written += 1
        name, chance = self._random.choice(NAMES), self._random.random()
        holds = dict(self.texts_at(self.end - 1))
        key: bytes | None = name.encode()
        value: bytes | None = str(self._written).encode()
        if chance < 0.05:
            key = self._random.choice((None, b"\xff"))
        elif chance < 0.3:
            value = None
            holds.pop(name, None)
        else:
            holds[name] = str(self._written)
        self.records.append(LogRecord(self.end, key, value, None))
        self.holds.append(holds)

    def compact(self) -> bool:
        """Drop what a later record replaces; tombstones stay, as they do for a while."""
        newest = {record.key: record.offset for record in self.records if record is not None}
        found = [record for record in self.records if record is not None and newest[record.key] > record.offset]
        for record in found:
            self.records[record.offset] = None
        return bool(found)

    def recreate(self) -> bool:
        """Lose the topic and all that is in it; another one has its name."""
        was_empty = not self.records
        self.records, self.holds = [], []
        self.times_made += 1
        return not was_empty


class ConfigReader:
    """The config topic as one process reads it: `ConfigSource` for the membership, log and host for the real follower."""

    def __init__(self, world: GroupWorld, node: GroupNode, now_ms: Callable[[], int]) -> None:
        self._world = world
        self._node = node
        self._now_ms = now_ms
        #: Nothing is read.
        self.is_stalled = False
        #: What the node goes by, as it was told.
        self._taken: dict[str, str] = {}
        self._instance = 0
        #: Where it reads, up to where the log went when it began, and in which of the logs; -1: it does not read.
        self._position = -1
        self._end = 0
        self._has_caught_up = False
        self._times_made = -1
        #: In which of the logs what it goes by was read; -1: it has read none yet.
        self.made = -1
        self._unread_since_ms = 0
        self.follower = ConfigFollower(self, self, BYTES_MAX)
        self.follower.begin()

    @property
    def offset(self) -> int:
        """See `ConfigSource.offset`."""
        return self.follower.values.offset

    @property
    def is_current(self) -> bool:
        """See `ConfigSource.is_current`; as `ConfigTopic` has it."""
        return self.follower.ended == self.follower.begun

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to be read."""
        log = self._world.config
        return self._has_caught_up and self._position == log.end and self._times_made == log.times_made

    def follow(self) -> bool:
        """Read to the end, if that is possible; returns whether it was."""
        log = self._world.config
        is_read = not self.is_stalled and self._world.network.reaches(self._node.name, "log")
        since_ms = max(self._unread_since_ms, self._node.thawed_ms)
        if self._position < 0 and self._world.now_ms - since_ms > RETRY_MS + UNREAD_MAX_MS:
            violate(Invariant.CONFIG_IS_READ_AGAIN, f"{self._node.name} has not read on since {since_ms} ms")
        if not is_read or self._position < 0:
            return is_read
        if self._times_made != log.times_made:
            self.fail("the topic was recreated under its name")
            return False
        if self._position == log.end and self._has_caught_up:
            return True
        while 0 <= self._position < log.end:
            self._read(log)
        if self._position >= self._end and not self._has_caught_up:
            self._has_caught_up, self.made = True, self._times_made
            self.follower.caught_up(PARTITION, self._instance, self._position)
        self._check(log)
        return True

    def _read(self, log: ConfigLog) -> None:
        count = self._world.random.choice((1, 2, 50))
        rest = log.records[self._position :]
        # Before the end of what was compacted lie values that never held together.
        found = [record for record in rest if record is not None][: None if None in rest else count]
        self._position = found[-1].offset + 1 if found else log.end
        if found:
            self.follower.records_read(PARTITION, self._instance, found)
        self.follower.position_reached(PARTITION, self._instance, self._position)
        self._check(log)

    def _check(self, log: ConfigLog) -> None:
        values = self.follower.values
        if self._times_made != log.times_made or not self.follower.ended:
            return
        found, wanted = values.texts(), log.texts_at(values.offset)
        is_of_this_log = self.follower.ended == self._instance
        if is_of_this_log and found != wanted:
            text = f"{self._node.name} goes by {found}, and at offset {values.offset} hold {wanted}"
            violate(Invariant.CONFIG_IS_WHOLE, text)
        if self._taken != found:
            violate(Invariant.CONFIG_IS_TAKEN, f"{self._node.name} has read {found}, and goes by {self._taken}")

    def why_behind(self) -> str:
        """Return what is missing for the process to go by all that holds; empty: nothing."""
        log = self._world.config
        wanted = log.texts_at(log.end - 1)
        is_there = self.offset == log.end - 1 and self._taken == wanted
        return "" if is_there else f"goes by {self._taken} at {self.offset}, and at {log.end - 1} hold {wanted}"

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """See `ConfigSource.refresh`; as `ConfigTopic` does it."""
        until_ms = self._now_ms() + timeout_ms
        number = self.follower.begun + 1
        self.follower.begin()
        await Pause(self._world.random.choice((1, 5, 30)))
        while True:
            self.follow()
            is_read = self.follower.ended >= number and self.offset >= offset
            if is_read or self._now_ms() >= until_ms:
                return self.offset
            await Pause(50)

    def go_on(self) -> None:
        """Read again."""
        self.is_stalled = False

    def fail(self, text: str) -> None:
        """End reading with an error that passes."""
        self._position, self._unread_since_ms = -1, self._world.now_ms
        self.follower.read_failed(PARTITION, self._instance, ReadError(text, is_alarm=False))

    # ---- the log of the follower (ConfigLog) -------------------------------------------------------------------------

    def has_topic(self) -> bool:
        """See `follower.ConfigLog.has_topic`."""
        return True

    def start_reading(self, partition: int, instance: int) -> None:
        """See `Log.start_reading`."""
        log = self._world.config
        self._instance, self._position, self._end, self._has_caught_up = instance, 0, log.end, False
        self._times_made = log.times_made

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""
        self._position = -1

    # ---- what the follower reports to (FollowerHost) -------------------------------------------------------------------

    def progressed(self) -> None:
        """Ignore it: who waits looks again."""

    def values_changed(self) -> None:
        """Go by what was read."""
        self._taken = self.follower.values.texts()

    def read_again_later(self) -> None:
        """See `FollowerHost.read_again_later`."""
        self._world.network.after(RETRY_MS, partial(self._node.run, self.follower.begin))

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Count it."""
        self._world.count(f"note: {event}")
