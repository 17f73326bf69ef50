"""Answers that are made once for all readers of one address, as long as the view that they show is the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

#: Answers that are kept, each of some hundred kilobytes at most: open pages ask for theirs once a second.
_KEPT_MAX: Final = 64


class _Kept(NamedTuple):
    view: object
    answer: bytes


class SharedAnswers:
    """The last answers, by their addresses."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, address: str, view: object, make: Callable[[], bytes]) -> bytes:
        """Return the answer that shows a view at an address, and make it where the last one there showed another."""
        kept = self._kept.pop(address, None)
        # A moment gives equal views, and most parts of them are the same objects, so that this takes no time.
        if kept is None or kept.view != view:
            kept = _Kept(view, make())
        self._kept[address] = kept
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return kept.answer
