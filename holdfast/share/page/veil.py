"""The page of a node for readers who may not DESCRIBE the cluster: sentences about what is unknown have no addresses and no paths.

The sentences are made of what brokers, other nodes and the operating system said, so what looks like an address or a path is hidden
wherever a sentence may have it. Names of groups and topics are of the reader's own rights, and stay.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from holdfast.hidden_texts import REDACTED
from holdfast.page.source import (
    ClusterView,
    GroupsPage,
    GroupView,
    PageRefused,
    PageSource,
    RecordView,
    TimelineView,
    WindowView,
)

#: Names of fields that have sentences, and of fields that have such fields in them.
_TOLD: Final = frozenset({"unknown", "lag_unknown", "log_unknown", "problem", "place"})
_PARTS: Final = frozenset({"rows", "topics", "states", "totals", "row", "history"})
#: Addresses as libraries write them, with and without a port, and paths. A time of the day has no letter and no dot before its colon.
_ADDRESSES: Final = (
    r"\('[^']*', \d+(?:, \d+)*\)",
    r"\b[a-z][a-z0-9+.-]*://\S+",
    r"\[[0-9A-Fa-f:.%\w]+\](?::\d{1,5})?",
    r"(?<![\w.-])(?=[\w.-]*[A-Za-z.])[\w.-]+:\d{1,5}\b",
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)",
    r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){4,}[0-9A-Fa-f:.]+",
    r"(?<![\w:])[0-9A-Fa-f:]*::[0-9A-Fa-f:.]*",
    r"(?<![\w.])/[^\s'\"/,;:()]+(?:/[^\s'\"/,;:()]+)*/?",
)
#: A host of one word is no more than that in a sentence, unless it has a port.
_IS_NO_WORD: Final = re.compile(r"[.\d-]")

_View = TypeVar("_View")


class VeiledPage:
    """A `PageSource` that hides addresses and paths from some of its readers."""

    def __init__(self, page: PageSource, sees_cluster: Callable[[], bool], hosts: Callable[[], Iterable[str]]) -> None:
        """Take the source, and who sees all of it.

        Args:
            page: the source.
            sees_cluster: tells whether the reader whose request is answered may DESCRIBE the cluster.
            hosts: returns the hosts of brokers and nodes, as far as they are known.
        """
        self._page = page
        self._sees_cluster = sees_cluster
        self._hosts = hosts

    async def groups(self, after: str | None = None, name: str | None = None) -> GroupsPage:
        """See `PageSource`."""
        return await self._cover(self._page.groups(after, name))

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """See `PageSource`."""
        return await self._cover(self._page.group(group, after))

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """See `PageSource`."""
        return await self._cover(self._page.window(group, topic, partition))

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        """See `PageSource`."""
        return await self._cover(self._page.timeline(group, topic, partition, offset))

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        """See `PageSource`."""
        return await self._cover(self._page.record(topic, partition, offset))

    async def cluster(self, after: str | None = None) -> ClusterView:
        """See `PageSource`; it is for those alone who see all of it."""
        return await self._page.cluster(after)

    def audience(self) -> str:
        """See `PageSource`."""
        return self._page.audience()

    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""
        return self._page.changed()

    async def _cover(self, answer: Awaitable[_View]) -> _View:
        if self._sees_cluster():
            return await answer
        try:
            view: Any = await answer
        except PageRefused as refusal:
            if refusal.status < 500:
                raise
            raise PageRefused(refusal.status, self._hide(refusal.text), refusal.nearest) from None
        covered: _View = cover(view, self._hide)
        return covered

    def _hide(self, text: str) -> str:
        return hide(text, self._hosts())


def cover(view: Any, hide: Callable[[str], str]) -> Any:  # noqa: ANN401
    """Return a view, or a part of one, with its sentences changed; the ranges of a window are many, and have none."""
    if isinstance(view, Mapping):
        return {name: _cover_field(name, value, hide) for name, value in view.items()}
    if not isinstance(view, tuple):
        return view
    names = getattr(view, "_fields", None)
    if names is None:
        return tuple(cover(each, hide) for each in view)
    pairs = zip(names, view, strict=True)
    return type(view)(*(_cover_field(name, value, hide) for name, value in pairs))


def _cover_field(name: str, value: Any, hide: Callable[[str], str]) -> Any:  # noqa: ANN401
    if name in _PARTS:
        return cover(value, hide)
    if name not in _TOLD:
        return value
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, tuple):
        return tuple(map(hide, value))
    if isinstance(value, Mapping):  # counts by the reason
        counts: dict[str, int] = {}
        for why, count in value.items():
            counts[hide(why)] = counts.get(hide(why), 0) + count
        return counts
    return value


def hide(text: str, hosts: Iterable[str]) -> str:
    """Return a sentence without addresses, these hosts, and paths."""
    known = sorted((host for host in set(hosts) if _IS_NO_WORD.search(host)), key=len, reverse=True)
    patterns = (*_ADDRESSES, *(rf"(?<![\w.-]){re.escape(host)}(?![\w-])" for host in known))
    return re.sub("|".join(patterns), REDACTED, text)
