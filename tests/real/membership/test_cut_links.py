"""Nodes that are cut off from brokers; `cut_links.py` says how.

By default one cut is played. CUTS=all plays each of them, in ten minutes (`make soak`); CUTS="NAME NAME" plays those.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.real.membership.cut_links import CASES
from tests.real.membership.split_network import in_network_of_its_own, network_problem

pytestmark = pytest.mark.real

CUTS: Final = os.environ.get("CUTS", "leader")


async def test_nobody_is_without_an_answer_for_much_longer_than_a_session_while_a_node_is_cut_off_from_brokers(
    tmp_path: Path,
) -> None:
    if (problem := network_problem()) is not None:
        pytest.skip(problem)
    names = list(CASES) if CUTS == "all" else CUTS.split()
    program = [sys.executable, "-m", "tests.real.membership.cut_links", str(tmp_path), *names]
    command = in_network_of_its_own(program)
    played = await asyncio.to_thread(subprocess.run, command, stderr=subprocess.PIPE, text=True, check=False)
    assert played.returncode == 0, played.stderr
