"""The Writes of one share partition: one is on its way at a time, and what comes meanwhile goes as one Write after it.

Eight consumers of one share partition so make one record where each would make its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, final

from holdfast.delivery.share_partition.values import StateWrite, WriteValues

#: Takes what became of a Write: Kafka's error code, 0 where it is in the log.
Done = Callable[[int], None]
#: Makes one Write of several, none of which is on its way.
Join = Callable[[Sequence[StateWrite]], WriteValues]
#: Sends a Write to the log.
Send = Callable[[WriteValues, Done], None]


@final
class Writes:
    """The Writes of one share partition, in order."""

    __slots__ = ("_in_flight", "_is_busy", "_join", "_send", "_waiting")

    def __init__(self, join: Join, send: Send) -> None:
        self._join: Final = join
        self._send: Final = send
        #: A Write is on its way, or its outcomes are being told.
        self._is_busy = False
        #: Those of the Write on its way.
        self._in_flight: list[Done] = []
        self._waiting: list[tuple[StateWrite, Done]] = []

    @property
    def are_done(self) -> bool:
        """Tell whether no Write is on its way."""
        return not self._in_flight and not self._waiting

    def add(self, write: StateWrite, done: Done) -> None:
        """Send a Write as soon as the one before it was answered."""
        self._waiting.append((write, done))
        if not self._is_busy:
            self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._in_flight = [done for _, done in waiting]
        self._is_busy = True
        self._send(self._join([write for write, _ in waiting]), self._on_answer)

    def _on_answer(self, error_code: int) -> None:
        answered, self._in_flight = self._in_flight, []
        for done in answered:
            try:
                done(error_code)
            except Exception as bug:  # the others would wait for ever, and so would all later Writes
                loop = asyncio.get_running_loop()
                loop.call_exception_handler({"message": "telling the outcome of a Write failed", "exception": bug})
        self._is_busy = False
        if self._waiting:
            self._go_on()
