"""When the oldest unfinished records were written: looked up for some of them at a time, each in its turn, and kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.kafka.topics.record_times import RecordTimes

#: Records whose times are looked up at a time; each takes a request.
_PER_TURN: Final = 100
#: Times that are kept, beside those that are wanted.
_KEPT_MAX: Final = 20_000

#: Topic id, partition and offset of a record.
Wanted = tuple[bytes, int, int]


class Ages:
    """The times of records."""

    def __init__(self, times: RecordTimes) -> None:
        """Take what looks them up."""
        self._times = times
        #: Those that were found, in ms since 1970.
        self.written: dict[Wanted, int] = {}
        #: By record, the turn in which it was asked for and not found.
        self._asked: dict[Wanted, int] = {}
        self._turn = 0

    async def look_up(self, wanted: Collection[Wanted]) -> None:
        """Look up some of the times that are wanted and not known: those first that were not asked for, or longest ago."""
        missing = sorted(
            (each for each in wanted if each not in self.written), key=lambda each: self._asked.get(each, -1)
        )
        self._turn += 1
        offsets: dict[tuple[bytes, int], int] = {}
        for topic_id, partition, offset in missing:
            if len(offsets) == _PER_TURN:
                break
            # Another group's record of the same partition has the next turn.
            offsets.setdefault((topic_id, partition), offset)
        if offsets:
            found = await self._times.look_up(offsets)
            for place, offset in offsets.items():
                if (at_ms := found.get(place)) is None:
                    self._asked[*place, offset] = self._turn
                else:
                    self.written[*place, offset] = at_ms
        if len(self.written) > _KEPT_MAX + len(wanted):
            self.written = {each: self.written[each] for each in wanted if each in self.written}
        if len(self._asked) > _KEPT_MAX + len(wanted):
            self._asked = {each: self._asked[each] for each in wanted if each in self._asked}
