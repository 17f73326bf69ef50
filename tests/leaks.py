"""What is written in C frees what it makes, and gives back every reference that it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_CALLS: Final = 1_000
#: Half of what a leak of one for each call comes to; Python itself takes a few, and not always the same.
_SPARE: Final = 500


def assert_no_leak(call: Callable[[], object], *kept: object, refusals: tuple[type[Exception], ...] = ()) -> None:
    """Call many times, and assert that no memory of Python's allocator was lost on it, and no reference to what is kept.

    Args:
        call: is warmed up first, so caches may be filled.
        kept: objects that outlive the calls.
        refusals: what a call may raise.
    """

    def calls() -> None:
        for _ in range(_CALLS):
            with suppress(*refusals):
                call()

    calls()
    blocks = sys.getallocatedblocks()
    references = [sys.getrefcount(each) for each in kept]
    calls()
    assert sys.getallocatedblocks() - blocks < _SPARE
    for each, count in zip(kept, references, strict=True):
        assert abs(sys.getrefcount(each) - count) < _SPARE
