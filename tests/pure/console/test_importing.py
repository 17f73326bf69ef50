"""Imports of much at once, without Python's collector."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from holdfast.console.importing import importing

looks = []
gc.callbacks.append(lambda phase, _: looks.append(phase))
with importing():
    made = [[] for _ in range(100_000)]
    assert not looks, "what is made here is looked through"
assert gc.isenabled()
assert gc.get_freeze_count() > len(made), "what was made is looked through later"
gc.disable()
with importing():
    pass
assert not gc.isenabled(), "who had switched it off finds it off"
"""


def test_what_is_imported_is_not_looked_through() -> None:
    # In a process of its own, because nothing that a process holds by then is collected any more.
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
