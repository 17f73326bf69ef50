"""A pytest plugin under which event loops stall now and then, as on a machine that gives its processors to others.

A test that fails here and nowhere else is decided by a timing.
Busy loops find few of these: a stall must begin in the millisecond that matters.

Example: python -m tests.busy --times 3 --numprocesses 8 -p tests.stalls tests/pure/kafka
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any, Final

import pytest

#: How many of a loop's turns begin with a stall.
_SHARE: Final = float(os.environ.get("STALL_SHARE", "0.1"))
#: A stall takes between half and one and a half of this: longer than most of what tests wait for.
_STALL_MS: Final = 120
#: Tests of some thousand turns would take minutes.
_STALLS_MAX: Final = 12
#: Where and for how long, for each test by its name.
_SEED: Final = os.environ.get("STALL_SEED", "") or str(random.SystemRandom().randrange(2**32))

_loop: Any = asyncio.BaseEventLoop
_run_once: Final = _loop._run_once


class _Stalls:
    """The stalls of one test."""

    def __init__(self, test: str) -> None:
        self._random = random.Random(f"{_SEED} {test}")
        self._left = _STALLS_MAX

    def pass_by(self) -> None:
        """Stall, or not."""
        if self._left and self._random.random() < _SHARE:
            self._left -= 1
            time.sleep(self._random.uniform(0.5, 1.5) * _STALL_MS / 1_000)


_stalls = _Stalls("")


def _run_once_late(loop: Any) -> None:
    _stalls.pass_by()
    _run_once(loop)


def pytest_configure() -> None:
    # The workers of a run stall where the one that started them says.
    os.environ["STALL_SEED"] = _SEED
    _loop._run_once = _run_once_late


def pytest_unconfigure() -> None:
    _loop._run_once = _run_once


def pytest_report_header() -> str:
    return f"event loops stall: STALL_SEED={_SEED} STALL_SHARE={_SHARE}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    global _stalls
    _stalls = _Stalls(item.nodeid)
