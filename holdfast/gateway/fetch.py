"""One ShareFetch that waits for records, an error, or the end of its time.

It asks the share partitions of its session that may have changed, when it begins and whenever one of them wakes it. All wakes of one
turn of the loop make one try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, final

from holdfast.api.share_errors import OTHER_LEADER
from holdfast.delivery.sessions import Place, Session
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
        session: whose share partitions.
        refused: partitions that the client gets nothing of, and why.
        wanted: by whom, and how.
        bounds: how much, and how long.
        finished: called once, when there is nothing more to wait for.
    """

    __slots__ = (
        "_bounds",
        "_bytes_left",
        "_finished",
        "_given",
        "_is_awake",
        "_is_done",
        "_leader",
        "_loop",
        "_records_left",
        "_session",
        "_timer",
        "_wanted",
        "ended",
        "since_s",
    )

    def __init__(
        self,
        leader: Leader,
        session: Session,
        refused: dict[Place, Ended],
        wanted: Wanted,
        bounds: FetchBounds,
        finished: Callable[[], None],
    ) -> None:
        self._leader: Final = leader
        self._session: Final = session
        self._wanted: Final = wanted
        self._bounds: Final = bounds
        self._finished: Final = finished
        self._loop: Final = asyncio.get_running_loop()
        self.since_s: Final = self._loop.time()
        self._records_left = bounds.records_max
        self._bytes_left = bounds.bytes_max
        #: Records that it got, by place, and of which share partition.
        self._given: dict[Place, tuple[LedPartition, Given]] = {}
        #: Why it gets nothing, by place.
        self.ended: Final = refused
        self._is_awake = False
        self._is_done = False
        self._timer: asyncio.TimerHandle | None = None

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
        self._session.waiter = self
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
        if self._session.waiter is self:
            self._session.waiter = None
        if self._timer is not None:
            self._timer.cancel()
        self._finished()

    def _try_again(self) -> None:
        self._is_awake = False
        if not self._is_done:
            self._try()

    def _try(self) -> None:
        """Take what is at hand from the share partitions that may have changed, in turn, and wait if none has anything."""
        self._leader.look_at_clock()
        changed, is_over = self._session.changed, False
        for place in list(changed):
            if place in self.ended:
                continue
            # Before it is asked, for the question itself may have it asked again: records that nobody gets were passed over.
            del changed[place]
            found = self._ask(place)
            if found is None:
                continue
            # It may have more, and the others have their turn before it.
            changed[place] = None
            if isinstance(found, Ended):
                self.ended[place] = found
                is_over |= found.error_code in OTHER_LEADER
                continue
            self._given[place] = found
            _, given = found
            self._records_left -= given.record_count
            self._bytes_left -= given.size_bytes
            if self._records_left <= 0 or self._bytes_left <= 0:
                break
        if self._given or is_over:
            self.finish()

    def _ask(self, place: Place) -> tuple[LedPartition, Given] | Ended | None:
        """Return what a share partition gives, or why it gives nothing; None: it has nothing now."""
        try:
            led = self._leader.lead(SharePartitionKey(self._session.key[0], *place))
            if isinstance(led, Ended):
                return led
            given = led.give(self._wanted, self._records_left, self._bytes_left)
        except Exception:  # a bug, which would be silent: nothing else has the share partition asked again
            self._session.changed[place] = None
            raise
        return led.ended if given is None else (led, given)
