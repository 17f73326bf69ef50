"""Answers that are made once for all readers of one address, as long as the view that they show is the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

#: Answers that are kept: open pages ask for theirs once a second.
_KEPT_MAX: Final = 64
#: Bytes of them in all, and of the ranges of the windows that they show; most have some hundred kilobytes.
_BYTES_MAX: Final = 32 << 20
#: A range with its numbers.
_RANGE_BYTES: Final = 150


class _Kept(NamedTuple):
    view: object
    answer: bytes

    @property
    def size_bytes(self) -> int:
        """Return about as many bytes as it takes."""
        return len(self.answer) + _RANGE_BYTES * len(getattr(self.view, "ranges", ()))


class SharedAnswers:
    """The last answers, by their addresses."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size_bytes = 0
        #: Held while an answer is made, so that all others who ask for the same find it.
        self._turn = asyncio.Lock()

    async def get(self, address: str, view: object, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the answer that shows a view at an address, and make it where the last one there showed another."""
        if (answer := self._find(address, view)) is not None:
            return answer
        async with self._turn:
            if (answer := self._find(address, view)) is not None:
                return answer
            answer = await make()
            self._keep(address, _Kept(view, answer))
        return answer

    def _find(self, address: str, view: object) -> bytes | None:
        kept = self._kept.get(address)
        # A moment gives equal views, and most parts of them are the same objects, so that this takes no time.
        if kept is None or kept.view != view:
            return None
        self._kept.move_to_end(address)
        return kept.answer

    def _keep(self, address: str, kept: _Kept) -> None:
        former = self._kept.pop(address, None)
        self._size_bytes -= 0 if former is None else former.size_bytes
        if kept.size_bytes > _BYTES_MAX:
            return
        self._kept[address] = kept
        self._size_bytes += kept.size_bytes
        while len(self._kept) > _KEPT_MAX or self._size_bytes > _BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._size_bytes -= oldest.size_bytes
