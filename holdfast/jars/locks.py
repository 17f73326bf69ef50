"""A lock between processes that the system releases even if its holder is killed."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.jars.errors import LockHeld

_POLL_S = 0.05


@contextmanager
def file_lock(path: Path, *, timeout_s: float, shared: bool = False) -> Iterator[None]:
    """Hold a lock on this file, which is created if missing; any number of holders may share it.

    Raises:
        LockHeld: other processes have held it for `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LockHeld(
                        f"Another process has held {path} for {timeout_s:.0f} s; end it, then try again."
                    ) from None
                time.sleep(_POLL_S)
        yield
