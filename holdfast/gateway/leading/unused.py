"""Share partitions that a member fetches no more: each is unloaded soon, if no other member fetches it and nobody holds a record of it.

Members come and go, and partitions move between them with their next heartbeats, so a share partition that is left is looked at a little
later. One that is looked at in vain costs nothing: only what a member has left is ever looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.records.share.keys import SharePartitionKey

#: Two heartbeats: so long a partition may be on its way from one member to another.
_PAUSE_S: Final = 10.0
#: Share partitions that are looked at in one turn of the loop; each may make a Write.
_PER_TURN: Final = 100


class Unused:
    """The share partitions of a node that were left.

    Args:
        find: returns one that is led.
        is_fetched: tells whether a member fetches one.
    """

    def __init__(
        self,
        find: Callable[[SharePartitionKey], LedPartition | None],
        is_fetched: Callable[[SharePartitionKey], bool],
    ) -> None:
        self._find = find
        self._is_fetched = is_fetched
        #: When each is looked at, in this order.
        self._left: dict[SharePartitionKey, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many wait for a look."""
        return len(self._left)

    def look_at(self, keys: Iterable[SharePartitionKey]) -> None:
        """Unload some soon, those that are unused then."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + _PAUSE_S
        for key in keys:
            if self._find(key) is not None:
                self._left.pop(key, None)
                self._left[key] = due_s
        self._set_timer(loop)

    def close(self) -> None:
        """Look at none any more."""
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._left and self._timer is None:
            self._timer = loop.call_at(next(iter(self._left.values())), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for _ in range(min(_PER_TURN, len(self._left))):
            key, due_s = next(iter(self._left.items()))
            if due_s > now_s:
                break
            del self._left[key]
            led = self._find(key)
            if led is None or self._is_fetched(key):
                continue
            if led.is_held:
                self._left[key] = now_s + _PAUSE_S
            else:
                led.unload()
        self._set_timer(loop)
