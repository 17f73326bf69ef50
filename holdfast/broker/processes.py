"""Child processes that do not outlive this one."""

import shutil
from collections.abc import Sequence


def ending_with_us(command: Sequence[str]) -> list[str]:
    """Return a command that the system kills when the thread that starts it is gone (on Linux, even if that was killed)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)
