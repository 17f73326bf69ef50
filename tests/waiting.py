"""How tests wait: for a condition, and for so long that only a fault ever meets the bound.

No test proves anything by a sleep, and none by how quick something was.
`PATIENCE=5` makes every bound five times as long, for a machine that is slower still.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from typing import IO, Final, TypeVar

Result = TypeVar("Result")

#: Bound of every wait of a test, in seconds: minutes more than anything takes beside busy loops on all processors.
PATIENCE_S: Final = 300.0 * float(os.environ.get("PATIENCE", "1"))
#: The same for what waits for Spark, whose every start takes a minute of a processor, and many where others want it too.
SPARK_PATIENCE_S: Final = 3 * PATIENCE_S
#: What a product's time-out is set to where a test is not about it: it comes before the test's own bound, and says more.
PATIENCE_MS: Final = int(PATIENCE_S * 1_000) // 2

_POLL_S: Final = 0.001
_POLL_MAX_S: Final = 0.1
#: Looks are this part of the time that was waited apart, so that long waits leave the processors to what they wait for.
_POLL_SHARE: Final = 0.02


def poll_pause_s(began_s: float) -> float:
    """Return how long to pause before the next look, of a wait that began when `time.monotonic` said so."""
    return min(_POLL_MAX_S, max(_POLL_S, _POLL_SHARE * (time.monotonic() - began_s)))


async def wait_until(
    condition: Callable[[], object], what: str = "what the test waits for", timeout_s: float = PATIENCE_S
) -> None:
    """Wait for a condition, while the loop goes on.

    Raises:
        AssertionError: it did not come about in time.
    """
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + timeout_s, f"{what} did not come about in {timeout_s:.0f} s"
        await asyncio.sleep(poll_pause_s(began_s))


def block_until(
    condition: Callable[[], object], what: str = "what the test waits for", timeout_s: float = PATIENCE_S
) -> None:
    """Wait for a condition, in a test without a loop.

    Raises:
        AssertionError: it did not come about in time.
    """
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + timeout_s, f"{what} did not come about in {timeout_s:.0f} s"
        time.sleep(poll_pause_s(began_s))


async def look_until(
    look: Callable[[], Awaitable[Result]], holds: Callable[[Result], object], what: str = "what the test waits for"
) -> Result:
    """Look again and again, and return what is found once a condition holds of it.

    Raises:
        AssertionError: it did not in time; says what was found last.
    """
    began_s = time.monotonic()
    while not holds(found := await look()):
        assert time.monotonic() < began_s + PATIENCE_S, f"{what} did not come about in {PATIENCE_S:.0f} s, but {found}"
        await asyncio.sleep(poll_pause_s(began_s))
    return found


async def in_patience(work: Awaitable[Result]) -> Result:
    """Wait for work that must end.

    Raises:
        TimeoutError: it did not end in time.
    """
    async with asyncio.timeout(PATIENCE_S):
        return await work


class Lines:
    """The lines of a process as it writes them, each waited for."""

    def __init__(self, output: IO[str]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(output,), name="lines of a process", daemon=True).start()

    def next(self) -> str:
        """Return the next line, with its end; "" when the process closed its output.

        Raises:
            AssertionError: none came in time.
        """
        try:
            return self._lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"no line in {PATIENCE_S:.0f} s") from None

    def _read(self, output: IO[str]) -> None:
        try:
            for line in output:
                self._lines.put(line)
        except ValueError:  # who started the process has closed its output, and wants no more lines
            if not output.closed:
                raise
        self._lines.put("")
