"""Many callers of a cluster, each of which writes and reads share partitions that others use too, and what all of them saw.

Every share partition of the group `registers` is written a new start offset, every one of `sets` a new offset that is acknowledged;
`tests.histories` says which histories are linearizable.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from holdfast.client import Client, ClientError, ClientSettings, ShareStateError, connect
from holdfast.client.errors import RequestTimedOut
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from tests.histories import NEVER, Read, Write, bits, bits_between, register_problem, set_problem, values
from tests.waiting import PATIENCE_S
from tests.world.samples import EPOCH_MAX

REGISTERS: Final = "registers"
SETS: Final = "sets"
#: Every second caller gives a node up soon and goes on; the others wait for whatever a node says when it wakes up.
HASTY: Final = ClientSettings(attempts_max=1, connect_timeout_ms=2_000, request_timeout_ms=2_000)
PATIENT: Final = ClientSettings(attempts_max=1, request_timeout_ms=120_000)
#: Part of the calls that write; reads of a large set are the dearest calls.
WRITES: Final = 0.7


class History:
    """What was called and answered, by share partition; it can be judged while calls are in flight."""

    def __init__(self) -> None:
        #: By value, from the beginning of each call on.
        self.writes: dict[SharePartitionKey, dict[int, Write]] = defaultdict(dict)
        self.reads: dict[SharePartitionKey, list[Read]] = defaultdict(list)
        #: Calls by outcome: `answered`, or the name of the error.
        self.outcomes: Counter[str] = Counter()
        #: Calls that a patient caller gave up: no node answered, and no connection ended.
        self.without_outcome: list[str] = []

    async def write(self, client: Client, key: SharePartitionKey, *, is_patient: bool) -> bool:
        """Write a new value; returns whether that was answered with success."""
        value = 1 + len(self.writes[key])
        began = self.writes[key][value] = Write(began_s=time.monotonic(), ended_s=NEVER, value=value)
        batch = StateBatch(value, value, ACKNOWLEDGED, 1)
        start_offset, batches = (value, []) if key.group_id == REGISTERS else (-1, [batch])
        try:
            await client.write(key.group_id, key.topic_id, key.partition, EPOCH_MAX, EPOCH_MAX, start_offset, batches)
        except ClientError as error:
            self._note(error, f"write of {value} to {key}", is_patient=is_patient)
            return False
        self.writes[key][value] = replace(began, ended_s=time.monotonic())
        self.outcomes["answered"] += 1
        return True

    async def read(self, client: Client, key: SharePartitionKey, *, is_patient: bool) -> bool:
        """Read the state; returns whether that was answered with success."""
        began_s = time.monotonic()
        try:
            state = await client.read(key.group_id, key.topic_id, key.partition, leader_epoch=0)
        except ClientError as error:
            self._note(error, f"read of {key}", is_patient=is_patient)
            return False
        found = state.start_offset
        if key.group_id == SETS:
            found = sum(bits_between(first, last) for first, last, _, _ in state.state_batches)
        self.reads[key].append(Read(began_s=began_s, ended_s=time.monotonic(), found=found))
        self.outcomes["answered"] += 1
        return True

    def problems(self) -> list[str]:
        """Return for each share partition whose history is not linearizable why."""
        found = []
        for key in self.writes.keys() | self.reads.keys():
            writes, reads = self.writes[key].values(), self.reads[key]
            problem = register_problem(0, writes, reads) if key.group_id == REGISTERS else set_problem(writes, reads)
            if problem:
                found.append(f"{key}: {problem}")
        return found

    def lost(self) -> list[str]:
        """Return the answered writes to sets that the last read of each did not find; each was read when all callers had ended."""
        lost = []
        for key in [key for key in self.writes if key.group_id == SETS]:
            answered = bits(write.value for write in self.writes[key].values() if write.ended_s != NEVER)
            last = max(self.reads[key], key=lambda read: read.began_s)
            lost += [f"{value} of {key}" for value in values(answered & ~last.found)]
        return lost

    def _note(self, error: ClientError, call: str, *, is_patient: bool) -> None:
        name = error.name if isinstance(error, ShareStateError) else type(error).__name__
        self.outcomes[name] += 1
        if is_patient and (name == "REQUEST_TIMED_OUT" or isinstance(error, RequestTimedOut)):
            self.without_outcome.append(f"{call}: {error}")


class Callers:
    """Tasks that call until they are stopped, each over a client of its own."""

    def __init__(
        self, addresses: Sequence[str], keys: Sequence[SharePartitionKey], history: History, seed: int, pause_s: float
    ) -> None:
        self._addresses = addresses
        self._keys = keys
        self._history = history
        self._seed = seed
        self._pause_s = pause_s
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, count: int) -> None:
        """Let so many callers begin."""
        self._tasks = [asyncio.create_task(self._run(number), name=f"caller {number}") for number in range(count)]

    async def stop(self) -> None:
        """Let each caller end after the call that is in flight.

        Raises:
            TimeoutError: one waits for ever.
        """
        self._stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)

    async def _run(self, number: int) -> None:
        chance = random.Random(self._seed + number)
        is_patient = bool(number % 2)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(self._addresses, PATIENT if is_patient else HASTY))
            while not self._stopping.is_set():
                call = self._history.write if chance.random() < WRITES else self._history.read
                is_answered = await call(client, chance.choice(self._keys), is_patient=is_patient)
                await asyncio.sleep(self._pause_s if is_answered else max(self._pause_s, 0.05))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of all do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
