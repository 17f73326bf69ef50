"""One ShareFetch that waits: for its acknowledgements to be in the log, and for records, an error, or the end of its time.

It tries its share partitions when it begins and whenever one of them wakes it. All wakes of one turn of the loop make one try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from holdfast.api.share_errors import OTHER_LEADER
from holdfast.delivery.sessions import Place
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Ended, Given, LedPartition, Wanted
from holdfast.records.share.keys import SharePartitionKey


class FetchBounds(NamedTuple):
    """How much a fetch may bring, and how long it may wait."""

    records_max: int
    bytes_max: int
    wait_ms: int


@final
class Fetch:
    """A ShareFetch that takes records.

    Args:
        leader: leads share partitions.
        group_id: whose share partitions.
        places: of the session, in the order in which they get their turn.
        wanted: by whom, and how.
        bounds: how much, and how long.
        finished: called once, when there is nothing more to wait for.
    """

    __slots__ = (
        "_bounds",
        "_bytes_left",
        "_finished",
        "_given",
        "_group_id",
        "_is_awake",
        "_is_done",
        "_leader",
        "_loop",
        "_places",
        "_records_left",
        "_timer",
        "_waits_at",
        "_wanted",
        "ended",
    )

    def __init__(
        self,
        leader: Leader,
        group_id: str,
        places: Sequence[Place],
        wanted: Wanted,
        bounds: FetchBounds,
        finished: Callable[[], None],
    ) -> None:
        self._leader: Final = leader
        self._group_id: Final = group_id
        self._places: Final = places
        self._wanted: Final = wanted
        self._bounds: Final = bounds
        self._finished: Final = finished
        self._loop: Final = asyncio.get_running_loop()
        self._records_left = bounds.records_max
        self._bytes_left = bounds.bytes_max
        #: Records that it got, by place, and of which share partition.
        self._given: dict[Place, tuple[LedPartition, Given]] = {}
        #: Why it gets nothing, by place.
        self.ended: dict[Place, Ended] = {}
        self._is_awake = False
        self._is_done = False
        self._timer: asyncio.TimerHandle | None = None
        #: Share partitions that wake it.
        self._waits_at: list[LedPartition] = []

    @property
    def is_done(self) -> bool:
        """Tell whether it waits no more."""
        return self._is_done

    def take_given(self) -> dict[Place, Given]:
        """Return the records that it got, by place, and keep none; those of a share partition that has ended belong to others by now."""
        taken, self._given = self._given, {}
        return {place: given for place, (led, given) in taken.items() if led.ended is None}

    def begin(self) -> None:
        """Try, and wait if there is nothing; may finish before this returns."""
        if self._records_left <= 0:
            self.finish()
            return
        self._try()
        if not self._is_done:
            if self._bounds.wait_ms <= 0:
                self.finish()
            else:
                self._timer = self._loop.call_later(self._bounds.wait_ms / 1_000, self.finish)

    def wake(self) -> None:
        """Try again in the next turn of the loop."""
        if not self._is_awake and not self._is_done:
            self._is_awake = True
            self._loop.call_soon(self._try_again)

    def finish(self) -> None:
        """Wait no more; a second call is ignored."""
        if self._is_done:
            return
        self._is_done = True
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        self._finished()

    def _try_again(self) -> None:
        self._is_awake = False
        if not self._is_done:
            self._try()

    def _try(self) -> None:
        """Take what is at hand from each share partition in turn, and wait at all of them if none has anything."""
        self._stop_waiting()
        self._leader.look_at_clock()
        is_over = False
        for place in self._places:
            if place in self.ended:
                continue
            led = self._leader.lead(SharePartitionKey(self._group_id, *place))
            if isinstance(led, Ended):
                self.ended[place] = led
                is_over |= led.error_code in OTHER_LEADER
                continue
            # It waits before it asks, for it may be woken by its own question: records that nobody gets were passed over.
            led.waiters[self] = None
            self._waits_at.append(led)
            given = led.give(self._wanted, self._records_left, self._bytes_left)
            if given is not None:
                self._given[place] = (led, given)
                self._records_left -= given.record_count
                self._bytes_left -= given.size_bytes
                if self._records_left <= 0 or self._bytes_left <= 0:
                    break
            elif led.ended is not None:
                self.ended[place] = led.ended
                is_over |= led.ended.error_code in OTHER_LEADER
        if self._given or is_over:
            self.finish()

    def _stop_waiting(self) -> None:
        for led in self._waits_at:
            led.waiters.pop(self, None)
        self._waits_at.clear()
