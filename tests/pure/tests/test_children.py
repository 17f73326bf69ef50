"""What the processes find that tests start."""

from __future__ import annotations

import subprocess
import sys

from tests.children import children_without_hypothesis

__all__ = ["children_without_hypothesis"]


def test_they_have_what_an_installed_holdfast_has_and_no_hypothesis() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import kio.static, hypothesis"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("where no installed Holdfast has it\n")
