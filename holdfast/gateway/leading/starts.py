"""The start offsets of new groups: the ends of logs, asked for all that wait in one turn together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from holdfast.delivery.group_config import OffsetReset
from holdfast.kafka.topics.topic_ends import PARTITIONS_PER_QUERY_MAX, TooManyQueries, TopicEnds

_PAUSE_S: Final = 0.1


class NoStart(NamedTuple):
    """Why it is not known where a group begins."""

    text: str


Respond = Callable[[int | NoStart], None]


class EndSource(Protocol):
    """The brokers, which know where logs begin and end."""

    async def look_up(self, wanted: dict[bytes, set[int]], since_ms: int | None = None) -> dict[bytes, TopicEnds]:
        """See `kafka.topics.topic_ends.TopicEndSource.look_up`."""


class Starts:
    """Queries for the start offsets of new groups: one is on its way at a time, and has all that wait."""

    def __init__(self, ends: EndSource, wall_clock_ms: Callable[[], int]) -> None:
        self._ends = ends
        self._wall_clock_ms = wall_clock_ms
        self._waiting: list[tuple[bytes, int, OffsetReset, Respond]] = []
        self._task: asyncio.Task[None] | None = None

    def find(self, topic_id: bytes, partition: int, reset: OffsetReset, respond: Respond) -> None:
        """Ask where a group begins; `respond` is called once, later."""
        self._waiting.append((topic_id, partition, reset, respond))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-gateway-starts")

    def close(self) -> None:
        """Ask no more; who waits is not answered."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting[:PARTITIONS_PER_QUERY_MAX], self._waiting[PARTITIONS_PER_QUERY_MAX:]
            by_reset: defaultdict[OffsetReset, list[tuple[bytes, int, Respond]]] = defaultdict(list)
            for topic_id, partition, reset, respond in waiting:
                by_reset[reset].append((topic_id, partition, respond))
            for reset, places in by_reset.items():
                try:
                    await self._ask(reset, places)
                except Exception as bug:  # the others would wait for ever
                    loop = asyncio.get_running_loop()
                    loop.call_exception_handler({"message": "asking for start offsets failed", "exception": bug})

    async def _ask(self, reset: OffsetReset, places: list[tuple[bytes, int, Respond]]) -> None:
        wanted: defaultdict[bytes, set[int]] = defaultdict(set)
        for topic_id, partition, _ in places:
            wanted[topic_id].add(partition)
        # Negative times have other meanings for brokers.
        since_ms = None if reset.duration_ms is None else max(0, self._wall_clock_ms() - reset.duration_ms)
        try:
            found = await self._ends.look_up(wanted, since_ms)
        except TooManyQueries:
            await asyncio.sleep(_PAUSE_S)
            found = {}
        except Exception as bug:
            for _, _, respond in places:
                _tell(respond, NoStart(repr(bug)))
            raise
        for topic_id, partition, respond in places:
            topic = found.get(topic_id)
            ends = None if topic is None else topic.partitions.get(partition)
            if ends is None:
                _tell(respond, NoStart("too many queries wait for brokers"))
            elif ends.problem:
                _tell(respond, NoStart(ends.problem))
            else:
                _tell(respond, ends.end_offset if reset.is_latest else ends.first_offset)


def _tell(respond: Respond, start: int | NoStart) -> None:
    try:
        respond(start)
    except Exception as bug:  # the others would load for ever
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "beginning a share partition failed", "exception": bug})
