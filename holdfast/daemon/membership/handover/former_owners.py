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
        handover_timeout_ms: int,
        word_age_max_ms: int,
        now_ms: Callable[[], int],
        changed: Callable[[Collection[int]], None],
    ) -> None:
        """Know of none.

        Args:
            this_node: where clients reach it.
            serves: tells whether this node serves a log partition.
            handover_timeout_ms: from a division on, after which former owners serve no more.
            word_age_max_ms: for so long what a node says counts, from when it was queried.
            now_ms: the clock.
            changed: called with the log partitions that former owners serve, whenever these may be others.
        """
        self._this_node = this_node
        self._serves = serves
        self._handover_timeout_ms = handover_timeout_ms
        self._word_age_max_ms = word_age_max_ms
        self._now_ms = now_ms
        self._changed = changed
        #: By log partition, those that may serve it; none is empty, and this node is in none.
        self._former: dict[int, set[Node]] = {}
        self._takers: dict[int, Node | None] = {}
        self._ends_ms = 0
        #: By log partition, of one of its former owners.
        self._words: dict[int, Word] = {}
        #: Those that did not answer the last time.
        self._silent: set[Node] = set()

    def adopt(self, divided: OwnershipMap) -> None:
        """Know those of a new division, and no others any more."""
        self._ends_ms = self._now_ms() + self._handover_timeout_ms
        self._former = {}
        for node, tasks in divided.former:
            if node != self._this_node:
                for task in tasks:
                    self._former.setdefault(task, set()).add(node)
        self._takers = {task: divided.owner(task) for task in self._former}
        self._words = {task: word for task, word in self._words.items() if word.node in self._former.get(task, ())}
        self._silent.clear()
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
        return word.node if word is not None and self._is_fresh(word) else None

    def candidates(self, task: int) -> set[Node]:
        """Return the former owners of a log partition that may serve it, without those that did not answer the last time."""
        return self._former.get(task, set()) - self._silent

    def to_query(self) -> set[Node]:
        """Return the nodes whose word is wanted: former owners, and the new owners of what those say that they serve."""
        if self._former and self._now_ms() >= self._ends_ms:
            self.drop()
        wanted = set()
        for task, nodes in self._former.items():
            if not self._serves(task):
                wanted |= nodes
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
        self._silent.discard(node)
        for task, nodes in [*self._former.items()]:
            if node == self._takers[task] and led.get(task, -1) > self._known_epoch(task):
                nodes.clear()
            elif node in nodes:
                self._hear(Word(led.get(task, -1), node, sent_ms), task)
                if task not in led:
                    nodes.discard(node)
            if not nodes:
                del self._former[task]
                self._words.pop(task, None)
        self._changed(self.confirmed.keys())

    def unanswered(self, node: Node) -> None:
        """Take in that a node did not answer in time."""
        self._silent.add(node)
        self._words = {task: word for task, word in self._words.items() if word.node != node}
        self._changed(self.confirmed.keys())

    def _known_epoch(self, task: int) -> int:
        """Return the owner epoch of the former owner that serves; a new owner has a higher one when it has taken the log partition."""
        word = self._words.get(task)
        return -1 if word is None else word.owner_epoch

    def _hear(self, word: Word, task: int) -> None:
        before = self._words.get(task)
        if before is not None and before.node != word.node and self._is_fresh(before):
            word = max(before, word)
        if word.owner_epoch < 0:
            self._words.pop(task, None)
        else:
            self._words[task] = word

    def _is_fresh(self, word: Word) -> bool:
        now_ms = self._now_ms()
        return now_ms - word.sent_ms <= self._word_age_max_ms and now_ms < self._ends_ms
