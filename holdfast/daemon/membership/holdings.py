"""What this node holds of what it was assigned, how that becomes what it is assigned next, and the wait for who takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import structlog

from holdfast.daemon.membership.division.ownership_map import Work

_log = structlog.get_logger(__name__)


class Workplace(Protocol):
    """Where assigned work is done."""

    def begin_tasks(self, tasks: Collection[int], generation: int) -> None:
        """Take log partitions under an ownership generation; of those held already, remember it."""

    def release_tasks(self, tasks: Collection[int]) -> None:
        """Serve log partitions until another node takes them over."""

    def end_tasks(self, tasks: Collection[int]) -> None:
        """Give log partitions up now; what is parked is answered NOT_COORDINATOR."""

    def serves(self, task: int) -> bool:
        """Tell whether a log partition is served here."""

    def set_duties(self, duties: Collection[str]) -> None:
        """Do these duties from now on, and no others."""


class Holdings:
    """The log partitions and duties that this node has begun, and those that it is letting go.

    What moves to another member is served on until that one takes it over in the log, so that it has an owner meanwhile;
    `handover_timeout_ms` bounds how long.
    """

    def __init__(self, workplace: Workplace, handover_timeout_ms: int) -> None:
        self._workplace = workplace
        self._handover_timeout_ms = handover_timeout_ms
        #: Assigned to this node, and begun.
        self.tasks: set[int] = set()
        self.duties: tuple[str, ...] = ()
        #: Assigned to this node, not begun yet.
        self.waiting = Work()
        #: Until when each log partition is served that another member takes over, in ms.
        self._released: dict[int, int] = {}
        self._generation = 0

    @property
    def released(self) -> list[int]:
        """Log partitions that another member takes over, in order."""
        return sorted(self._released)

    @property
    def held(self) -> set[int]:
        """Log partitions that this node serves, or may come to serve before it is assigned anything else."""
        return {*self.tasks, *self.waiting.tasks, *self._released}

    def change(self, work: Work, generation: int, now_ms: int, *, begins_at_once: bool) -> tuple[list[int], list[str]]:
        """Give up what is not assigned any more, keep what is, and begin the rest now or with `begin_waiting`.

        Returns:
            the log partitions and the duties that are given up.
        """
        self._generation = generation
        for task in self._released.keys() & set(work.tasks):  # nobody has taken it meanwhile
            del self._released[task]
            self.tasks.add(task)
        gone = sorted(self.tasks - set(work.tasks))
        served = [task for task in gone if self._workplace.serves(task)]
        self._released.update(dict.fromkeys(served, now_ms + self._handover_timeout_ms))
        self._workplace.release_tasks(served)
        self._workplace.end_tasks([task for task in gone if task not in self._released])
        self.tasks.difference_update(gone)
        dropped = [duty for duty in self.duties if duty not in work.duties]
        kept = tuple(duty for duty in self.duties if duty in work.duties)
        self.waiting = work
        if begins_at_once:
            self.begin_waiting()
        else:
            self._workplace.begin_tasks(sorted(self.tasks), generation)
            self._set_duties(kept)
        return gone, dropped

    def begin_waiting(self) -> None:
        """Begin all that is assigned."""
        self.tasks.update(self.waiting.tasks)
        self._workplace.begin_tasks(self.waiting.tasks, self._generation)
        self._set_duties(self.waiting.duties)
        self.waiting = Work()

    def _set_duties(self, duties: tuple[str, ...]) -> None:
        if duties != self.duties:
            self.duties = duties
            self._workplace.set_duties(duties)

    def revoke(self) -> Work:
        """Give everything up now; returns what was held."""
        held = Work(tuple(sorted({*self.tasks, *self._released})), self.duties)
        self._workplace.end_tasks(held.tasks)
        self.tasks.clear()
        self._released.clear()
        self.waiting = Work()
        self._set_duties(())
        return held

    def release_all(self, now_ms: int) -> None:
        """Let everything go to the members that stay; duties end now."""
        self.change(Work(), self._generation, now_ms, begins_at_once=True)

    def superseded(self, task: int) -> bool:
        """Take in that another node has taken a log partition; returns whether this node was to keep it."""
        return self._released.pop(task, None) is None and task in self.tasks

    def end_expired(self, now_ms: int) -> list[int]:
        """Give up what nobody has taken over in time; returns which log partitions."""
        expired = sorted(task for task, until_ms in self._released.items() if now_ms >= until_ms)
        for task in expired:
            del self._released[task]
        if expired:
            self._workplace.end_tasks(expired)
        return expired


class Takers:
    """The other members, for which a node that stops waits: they take over what it has released, unless they all stop, too."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._all_taken = asyncio.Event()

    def taken(self) -> None:
        """Take note that a log partition was taken over."""
        if not self._holdings.released:
            self._all_taken.set()

    async def wait(self, has_members: Callable[[], Awaitable[bool]], timeout_ms: int, pause_ms: int) -> None:
        """Wait until all that was released is taken over, or nobody is left who could, or the time is over.

        Args:
            has_members: returns whether the group has members.
            timeout_ms: bound of all of it.
            pause_ms: between two such queries.
        """
        if not self._holdings.released:
            return
        self._all_taken.clear()
        tasks = {asyncio.ensure_future(self._all_taken.wait()), asyncio.ensure_future(_empty(has_members, pause_ms))}
        done, waiting = await asyncio.wait(tasks, timeout=timeout_ms / 1_000, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for task in done:
            task.result()
        if not done:
            _log.warning("handover_expired", log_partitions=self._holdings.released)
        elif self._holdings.released:
            _log.info("handover_unwanted", log_partitions=self._holdings.released)


async def _empty(has_members: Callable[[], Awaitable[bool]], pause_ms: int) -> bool:
    while await has_members():  # noqa: ASYNC110 - whose event is elsewhere
        await asyncio.sleep(pause_ms / 1_000)
    return True
