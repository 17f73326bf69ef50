"""The end of a process with the one that has started it, also where that one is killed and this one hangs."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

#: `PR_SET_PDEATHSIG` of Linux.
_SET_SIGNAL: Final = 1


def end_with_parent() -> None:
    """Have the system kill this process when the thread that has started it is gone; nothing where the system cannot.

    A parent that is gone already is not noticed: look then, after this, whether the standard input has ended.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_SIGNAL, signal.SIGKILL, 0, 0, 0)
