"""Which machine a node runs on."""

import socket
from pathlib import Path
from typing import Final

from holdfast.daemon.settings.components.listener import is_loopback

#: Another one for each start of a kernel, so clones of a machine differ; their names may not. Linux alone has it.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SHOWN_CHARS: Final = 8


def find_machine(host: str) -> str:
    """Return what tells this machine from others where a host leads to another node on each; empty where it does not."""
    return this_machine() if is_loopback(host) else ""


def this_machine() -> str:
    """Return what tells this machine from others, for people too."""
    boot_id = _BOOT_ID.read_text(encoding="ascii")[:_SHOWN_CHARS] if _BOOT_ID.exists() else ""
    return f"{socket.gethostname()} {boot_id}".strip()
