"""The plugin that has event loops stall shows what rests on speed, and virtual time does not see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = """
import asyncio
import pytest

async def turn_in_50_ms():
    async with asyncio.timeout(0.05):
        for _ in range(3):
            await asyncio.sleep(0)

async def test_that_rests_on_speed():
    await turn_in_50_ms()

@pytest.mark.virtual_time
async def test_in_virtual_time():
    await turn_in_50_ms()
"""


def run_stalled(path: Path) -> str:
    """Run the tests with each turn stalled; returns what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:randomly"]
    command += ["-p", "tests.pure.conftest", "-p", "tests.stalls", str(path)]
    environment = os.environ | {"STALL_SHARE": "1", "STALL_SEED": "7"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


def test_a_stall_fails_what_rests_on_speed_and_nothing_in_virtual_time(tmp_path: Path) -> None:
    path = tmp_path / "test_of_speed.py"
    path.write_text(TESTS)
    told = run_stalled(path)
    assert "STALL_SEED=7 STALL_SHARE=1.0" in told
    assert "FAILED" in told
    assert "::test_that_rests_on_speed" in told
    assert "1 failed, 1 passed" in told
