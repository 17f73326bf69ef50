"""Who had the log partitions that are on their way to another node, and which of them it still serves by its own word.

    named:   the former owner, while its newest word is that it serves  →  otherwise the new owner

A word counts for a bounded time, so a former owner that died or stands still is soon named no more.
Of two that serve by their words, the one with the lower owner epoch has not read yet that it was superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from holdfast.daemon.membership.division.ownership_map import OwnershipMap
from holdfast.daemon.server.cluster_view import Node


class Word(NamedTuple):
    """That a former owner serves a log partition."""

    owner_epoch: int
    node: Node
    #: When the query left that it answered.
    sent_ms: int


class FormerOwners:
    """The former owners of one division of the work, until it is known that they serve no more."""

    def __init__(
        self,
        this_node: Node,
        serves: Callable[[int], bool],
        *,
        word_age_max_ms: int,
        now_ms: Callable[[], int],
        changed: Callable[[Collection[int]], None],
    ) -> None:
        """Know of none.

        Args:
            this_node: where clients reach it.
            serves: tells whether this node serves a log partition.
            word_age_max_ms: for so long what a node says counts, from when it was queried.
            now_ms: the clock.
            changed: called with the log partitions that former owners serve, whenever these may be others.
        """
        self._this_node = this_node
        self._serves = serves
        self._word_age_max_ms = word_age_max_ms
        self._now_ms = now_ms
        self._changed = changed
        #: By log partition, until when each of those may serve it that may; none is empty, and this node is in none.
        self._former: dict[int, dict[Node, int]] = {}
        self._takers: dict[int, Node | None] = {}
        #: By log partition, of one of its former owners.
        self._words: dict[int, Word] = {}

    def adopt(self, divided: OwnershipMap) -> None:
        """Know those of a new division, and no others any more.

        Where a log partition waits for an absent node, that may serve it meanwhile: the time of a hand-over begins behind the wait.
        """
        now_ms = self._now_ms()
        absent_ms = {task: absence.wait_ms for absence in divided.absent for task in absence.work.tasks}
        self._former = {}
        for node, tasks, wait_ms in divided.former:
            if node != self._this_node:
                for task in tasks:
                    self._former.setdefault(task, {})[node] = now_ms + wait_ms + absent_ms.get(task, 0)
        self._takers = {task: divided.owner(task) for task in self._former}
        self._words = {task: word for task, word in self._words.items() if word.node in self._former.get(task, ())}
        self._changed(self.confirmed.keys())

    def drop(self) -> None:
        """Forget all of them."""
        self._former.clear()
        self._words.clear()
        self._changed(())

    @property
    def confirmed(self) -> Mapping[int, Node]:
        """The former owners that serve, by log partition."""
        return {task: owner for task in self._words if (owner := self.owner(task)) is not None}

    def owner(self, task: int) -> Node | None:
        """Return the former owner of a log partition that still serves it; None where none is known to."""
        word = self._words.get(task)
        return word.node if word is not None and self._is_fresh(task, word) else None

    def waits_ms(self, task: int) -> dict[Node, int]:
        """Return for how long each former owner of a log partition may serve it yet; one that is silent may, too."""
        now_ms = self._now_ms()
        return {node: end_ms - now_ms for node, end_ms in self._former.get(task, {}).items() if end_ms > now_ms}

    def to_query(self) -> set[Node]:
        """Return the nodes whose word is wanted: former owners, and the new owners of what those say that they serve."""
        self._forget_expired()
        wanted = set[Node]()
        for task, nodes in self._former.items():
            if not self._serves(task):
                wanted |= nodes.keys()
                taker = self._takers[task]
                if taker is not None and taker != self._this_node and task in self._words:
                    wanted.add(taker)
        return wanted

    def answered(self, node: Node, led: Mapping[int, int], sent_ms: int) -> None:
        """Take in what a node has said to a query that left at that time.

        Args:
            node: whose word it is.
            led: owner epochs of the log partitions for which it names itself; -1: it does not serve that one yet.
            sent_ms: by our clock.
        """
        for task, nodes in [*self._former.items()]:
            if node == self._takers[task] and led.get(task, -1) > self._known_epoch(task):
                nodes.clear()
            elif node in nodes:
                self._hear(Word(led.get(task, -1), node, sent_ms), task)
                if task not in led:
                    del nodes[node]
            if not nodes:
                self._forget(task)
        self._changed(self.confirmed.keys())

    def unanswered(self, node: Node) -> None:
        """Take in that a node did not answer in time."""
        self._words = {task: word for task, word in self._words.items() if word.node != node}
        self._changed(self.confirmed.keys())

    def _forget_expired(self) -> None:
        now_ms, before = self._now_ms(), len(self._former)
        for task, nodes in [*self._former.items()]:
            for node in [node for node, end_ms in nodes.items() if end_ms <= now_ms]:
                del nodes[node]
            if not nodes:
                self._forget(task)
        if len(self._former) < before:
            self._changed(self.confirmed.keys())

    def _forget(self, task: int) -> None:
        del self._former[task]
        self._words.pop(task, None)

    def _known_epoch(self, task: int) -> int:
        """Return the owner epoch of the former owner that serves; a new owner has a higher one when it has taken the log partition."""
        word = self._words.get(task)
        return -1 if word is None else word.owner_epoch

    def _hear(self, word: Word, task: int) -> None:
        before = self._words.get(task)
        if before is not None and before.node != word.node and self._is_fresh(task, before):
            word = max(before, word)
        if word.owner_epoch < 0:
            self._words.pop(task, None)
        else:
            self._words[task] = word

    def _is_fresh(self, task: int, word: Word) -> bool:
        now_ms, ends_ms = self._now_ms(), self._former.get(task, {}).get(word.node, 0)
        return now_ms - word.sent_ms <= self._word_age_max_ms and now_ms < ends_ms
