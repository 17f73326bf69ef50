"""`holdfast page` as it is typed, on a stock Kafka: what it prints, its JSON, and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.real.page.opened import by_cli
from tests.real.page.stuck import Stuck
from tests.waiting import PATIENCE_S, Lines
from tests.world.http import Answer, get

pytestmark = pytest.mark.real


@contextmanager
def page_command(kafka: str) -> Iterator[str]:
    """Give the address that `holdfast page` prints; Ctrl-C ends it well."""
    command = [sys.executable, "-m", "holdfast", "page", "--bootstrap-server", kafka]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Lines(process.stdout).next().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr is not None
            said = process.stderr.read()
            assert said == f"It shows the share groups of {kafka}, and ends with Ctrl-C.\n"
        finally:
            process.kill()


async def test_its_json_has_the_numbers_of_the_command_line(kafka: str, stuck: Stuck) -> None:
    with page_command(kafka) as address:
        port, answers = int(address.rstrip("/").rpartition(":")[2]), list[Answer]()
        while not answers or answers[-1].status == 503:
            answers.append(await get(port, f"/api/v1/group?group={stuck.group}"))
        described = await by_cli(kafka, "groups", "describe", stuck.group)
        view = answers[-1].json()
        assert {name: view[name] for name in described} == described
        unknown = await get(port, f"/api/v1/group?group={stuck.group[:-1]}")
        assert (unknown.status, unknown.json()["nearest"]) == (404, [stuck.group])
        assert (await get(port, "/api/v1/groups", method="POST")).status == 405
        assert (await get(port, "/", host="elsewhere.example")).status == 421
