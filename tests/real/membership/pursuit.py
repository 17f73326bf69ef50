"""Calls to a node that sleeps, each sent when its successor has answered a newer write: none but the present state may come back.

The kernel keeps them in the sleeper's sockets, so it reads them when it wakes up, before it can hear that it was superseded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.client import Client
from holdfast.records.share.keys import SharePartitionKey
from tests.real.membership.callers import PATIENT, History
from tests.waiting import PATIENCE_S, poll_pause_s

#: Connections to the sleeper; the answers of one come in the order of its requests, so a late one would hide a hasty one.
CONNECTIONS: Final = 6
#: All its calls are in the sleeper's sockets, and none waits in the client.
PURSUER: Final = replace(PATIENT, requests_in_flight_max=1_000)
#: Between two rounds of calls to one that wakes up.
PAUSE_S: Final = 0.5


class Pursuit:
    """Calls of the share partitions that one node has, to itself and to whoever succeeds it."""

    def __init__(
        self, history: History, keys: Sequence[SharePartitionKey], sleeper: Sequence[Client], successors: Client
    ) -> None:
        """Send nothing yet.

        Args:
            history: of all calls.
            keys: the share partitions.
            sleeper: clients that call the sleeper for them, as they have learnt, each over a connection of its own.
            successors: a client of the nodes that stay awake.
        """
        self._history = history
        self._keys = keys
        self._sleeper = sleeper
        self._successors = successors
        self._late: list[asyncio.Task[bool]] = []

    async def press(self) -> None:
        """Write each share partition where it is served now, then send the sleeper reads and writes of it."""
        await asyncio.gather(*(self._write(key) for key in self._keys))
        calls = [self._history.read, self._history.write]
        for client in self._sleeper:
            calls.reverse()
            for call in calls:
                self._late += [asyncio.create_task(call(client, key, is_patient=True)) for key in self._keys]

    async def press_on(self, waking: asyncio.Task[float]) -> None:
        """Press again and again until that has ended."""
        while not waking.done():
            await self.press()
            await asyncio.wait([waking], timeout=PAUSE_S)

    def waiting(self) -> int:
        """Return how many calls to the sleeper have no outcome yet."""
        return sum(not call.done() for call in self._late)

    async def answered(self) -> tuple[int, int]:
        """Wait for the outcomes of all calls to the sleeper; returns how many of them are successes, and how many there are.

        Raises:
            TimeoutError: one has none.
        """
        async with asyncio.timeout(PATIENCE_S):
            return sum(await asyncio.gather(*self._late)), len(self._late)

    async def _write(self, key: SharePartitionKey) -> None:
        began_s = time.monotonic()
        while not await self._history.write(self._successors, key, is_patient=True):
            assert time.monotonic() < began_s + PATIENCE_S, f"nobody writes {key}"
            await asyncio.sleep(poll_pause_s(began_s))
