"""Start offsets of new groups: the ends of logs, asked of their leaders, each of which has one query on its way.

A query has all that waits for its broker. So a broker that is silent delays the groups that begin in what it leads, and no others.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from holdfast.delivery.group_config import OffsetReset
from holdfast.kafka.connection_options import Address
from holdfast.kafka.protocol.requests import EARLIEST
from holdfast.kafka.topics.topic_ends import PARTITIONS_PER_QUERY_MAX, Answer, Leaders, Led, Place

#: How often a leader is asked: after an election the second answer is right.
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
#: After that a fetch is told, and the next one asks again.
_TRIES_FOR_S: Final = 5.0


_T = TypeVar("_T")


class NoStart(NamedTuple):
    """Why it is not known where a group begins."""

    text: str


Respond = Callable[[int | NoStart], None]


class EndSource(Protocol):
    """The brokers, which know where logs begin and end."""

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        """See `kafka.topics.topic_ends.TopicEndSource.find_leaders`."""

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        """See `kafka.topics.topic_ends.TopicEndSource.query_leader`."""


class _Wanted(NamedTuple):
    """A start that is wanted."""

    place: Place
    reset: OffsetReset
    respond: Respond
    #: By the loop's clock.
    since_s: float
    #: How often it was asked for in vain.
    tries: int = 0


class Starts:
    """Queries for the start offsets of new groups.

    Args:
        ends: the brokers.
        wall_clock_ms: returns the time since 1970.
    """

    def __init__(self, ends: EndSource, wall_clock_ms: Callable[[], int]) -> None:
        self._ends = ends
        self._wall_clock_ms = wall_clock_ms
        #: Those whose leaders are not known yet.
        self._waiting = deque[_Wanted]()
        #: Those that wait for a leader, each of which has a task.
        self._by_leader: dict[Address, deque[tuple[_Wanted, Led]]] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._is_finding = self._is_closed = False

    def find(self, topic_id: bytes, partition: int, reset: OffsetReset, respond: Respond) -> None:
        """Ask where a group begins; `respond` is called once, later."""
        now_s = asyncio.get_running_loop().time()
        self._add(_Wanted((topic_id, partition), reset, respond, now_s))

    def close(self) -> None:
        """Ask no more; who waits is not answered."""
        self._is_closed = True
        self._waiting.clear()
        self._by_leader.clear()
        for task in self._tasks:
            task.cancel()

    def _add(self, wanted: _Wanted) -> None:
        if self._is_closed:
            return
        self._waiting.append(wanted)
        if not self._is_finding:
            self._is_finding = True
            self._run(self._find_leaders())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="holdfast-gateway-starts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_leaders(self) -> None:
        """Give each that waits to its leader."""
        try:
            while self._waiting:
                some = _take(self._waiting)
                try:
                    leaders = await self._ends.find_leaders({wanted.place for wanted in some})
                except Exception as bug:  # these would wait for ever
                    _refuse(some, bug)
                else:
                    self._share_out(some, leaders)
        finally:
            self._is_finding = False

    def _share_out(self, some: Collection[_Wanted], leaders: Leaders) -> None:
        of_place = {place: (at, each) for at, led in leaders.by_address.items() for place, each in led.items()}
        for wanted in some:
            if wanted.place not in of_place:
                self._settle(wanted, leaders.others[wanted.place])
                continue
            address, led = of_place[wanted.place]
            if address not in self._by_leader:
                self._by_leader[address] = deque()
                self._run(self._ask(address, self._by_leader[address]))
            self._by_leader[address].append((wanted, led))

    async def _ask(self, address: Address, queue: deque[tuple[_Wanted, Led]]) -> None:
        """Ask one leader until nothing waits for it."""
        while queue:
            by_first: defaultdict[int, list[tuple[_Wanted, Led]]] = defaultdict(list)
            for wanted, led in _take(queue):
                by_first[self._first_of(wanted.reset)].append((wanted, led))
            for first, some in by_first.items():
                asked = [wanted for wanted, _ in some]
                places = {wanted.place: led for wanted, led in some}
                try:
                    answers = await self._ends.query_leader(address, places, first)
                except Exception as bug:  # as above
                    _refuse(asked, bug)
                    continue
                for wanted in asked:
                    self._settle(wanted, answers[wanted.place])
                if all(answer.is_passing for answer in answers.values()):
                    # Another broker may lead by now what waits for this one.
                    others = [wanted for wanted, _ in queue]
                    queue.clear()
                    for wanted in others:
                        self._add(wanted)
        if self._by_leader.get(address) is queue:
            del self._by_leader[address]

    def _first_of(self, reset: OffsetReset) -> int:
        """Return what a leader is asked for beside its end; negative times have other meanings for brokers."""
        return EARLIEST if reset.duration_ms is None else max(0, self._wall_clock_ms() - reset.duration_ms)

    def _settle(self, wanted: _Wanted, answer: Answer) -> None:
        """Tell what was found, or ask again soon."""
        loop, ends = asyncio.get_running_loop(), answer.ends
        is_late = wanted.tries + 1 >= _TRIES or loop.time() - wanted.since_s >= _TRIES_FOR_S
        if answer.is_passing and not is_late:
            loop.call_later(_PAUSE_S, self._add, wanted._replace(tries=wanted.tries + 1))
        elif ends.problem:
            _tell(wanted, NoStart(ends.problem))
        else:
            _tell(wanted, ends.end_offset if wanted.reset.is_latest else ends.first_offset)


def _take(queue: deque[_T]) -> list[_T]:
    """Take as many as one query may have."""
    return [queue.popleft() for _ in range(min(len(queue), PARTITIONS_PER_QUERY_MAX))]


def _refuse(some: Collection[_Wanted], bug: Exception) -> None:
    for wanted in some:
        _tell(wanted, NoStart(repr(bug)))
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": "asking for start offsets failed", "exception": bug})


def _tell(wanted: _Wanted, start: int | NoStart) -> None:
    try:
        wanted.respond(start)
    except Exception as bug:  # the others would load for ever
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "beginning a share partition failed", "exception": bug})
