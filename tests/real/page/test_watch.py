"""`holdfast groups describe --watch` in a terminal, on a stock Kafka: new records are drawn, and Ctrl-C ends it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from tests.installed.terminal import Terminal
from tests.real.page.stuck import DELIVERIES, PRODUCED, Stuck, produce
from tests.waiting import PATIENCE_S, block_until

pytestmark = pytest.mark.real


def test_a_group_is_drawn_until_it_is_interrupted(kafka: str, stuck: Stuck, tmp_path: Path) -> None:
    once = CliRunner().invoke(main, ("groups", "describe", stuck.group, "--bootstrap-server", kafka)).stdout
    lag = int(once.splitlines()[1].split()[1])
    terminal = Terminal(tmp_path, {**os.environ, "PYTHONPATH": os.getcwd()})

    def drawn(lag: int) -> None:
        text = f"lag               {lag}"
        block_until(lambda: text in terminal.said(), f"{text!r} on the screen", PATIENCE_S)

    try:
        terminal.begin(f"{sys.executable} -m holdfast groups describe {stuck.group} --watch --bootstrap-server {kafka}")
        drawn(lag)
        produce(kafka, stuck.topic)
        drawn(lag + PRODUCED)
        terminal.interrupt()
        ended = terminal.wait("the watch")
    finally:
        terminal.close()
    assert ended.code == 0
    assert f"{DELIVERIES} (1)" in ended.said
    assert ended.said.rsplit("group  ", 1)[1].count(stuck.topic) == 2, "the last numbers stay"
