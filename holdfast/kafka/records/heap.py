"""The C library's heap, as far as large buffers go: what was freed between others goes back to the system when it is told to."""

import ctypes
from collections.abc import Callable
from threading import Thread
from typing import Final


def _find_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None: another library gives memory back by itself, or never."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


_TRIM: Final = _find_trim()


class Heap:
    """Tells when memory that was freed may lie unused between what is held, and gives it back.

    A buffer that is freed leaves a hole, which a larger one cannot take. While holes are small, the library finds a use for them;
    when much was freed at once, they may never be taken again, and what comes next makes the heap larger.
    """

    def __init__(self, bytes_max: int, trim: Callable[[], object] | None = None) -> None:
        """Count from nothing on.

        Args:
            bytes_max: what is held and the holes may take together.
            trim: gives free memory back; None: in a thread, as glibc does.
        """
        self._bytes_max = bytes_max
        #: So much is freed at once before holes count.
        self._much = bytes_max // 8
        self._trim = trim or self._trim_in_thread
        self._trimming: Thread | None = None
        #: The most that was held since holes were given back, and the least since then.
        self._most = self._least = 0

    def shrink(self, held: int) -> None:
        """Note that something was freed; `held` bytes are left."""
        if held < self._least:
            self._least = held

    def grow(self, held: int) -> None:
        """Note that something was added, `held` bytes with it; give holes back if they and these might be too much."""
        holes = self._most - self._least
        if holes < self._much:
            if held > self._most:
                self._most = self._least = held
        elif holes + held > self._bytes_max:
            self._most = self._least = held
            self._trim()

    def _trim_in_thread(self) -> None:
        """Walk the heap while the loop goes on: it takes some milliseconds."""
        if _TRIM is not None and (self._trimming is None or not self._trimming.is_alive()):
            self._trimming = Thread(target=_TRIM, args=(0,), name="holdfast-heap", daemon=True)
            self._trimming.start()
