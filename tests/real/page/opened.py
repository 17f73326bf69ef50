"""The page of a real cluster, waits for it to show something, and the numbers of the command line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.kafka.connection_options import connection_options
from holdfast.page.kafka_page import KafkaPage
from holdfast.page.source import GroupsPage, PageRefused
from tests.waiting import PATIENCE_S


@asynccontextmanager
async def page_of(kafka: str) -> AsyncIterator[KafkaPage]:
    """Give the page of a cluster."""
    page = KafkaPage(
        connection_options({"bootstrap.servers": kafka}),
        ("__share_group_state", "__holdfast_share_state"),
        bootstrap=kafka,
        now_ms=lambda: time.time_ns() // 1_000_000,
        run_id="run",
    )
    task = asyncio.create_task(page.run())
    try:
        yield page
    finally:
        task.cancel()
        await asyncio.wait([task])


async def groups_when(page: KafkaPage, condition: Callable[[GroupsPage], object] = lambda _: True) -> GroupsPage:
    """Return the groups once they are shown and fulfil a condition."""
    last: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for _ in page.changed():
                try:
                    last = found = await page.groups()
                except PageRefused as refusal:
                    last = refusal.text
                else:
                    if condition(found):
                        return found
    except TimeoutError:
        pass
    raise AssertionError(f"the page shows {last}")


async def refusal_when(page: KafkaPage, text: str) -> PageRefused:
    """Return the refusal to show groups once it says something."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in page.changed():
            try:
                await page.groups()
            except PageRefused as refusal:
                if text in refusal.text:
                    return refusal
    raise AssertionError("it does not end")


async def by_cli(kafka: str, *command: str) -> Any:
    """Return what a command prints with `--json`."""
    arguments = (*command, "--json", "--bootstrap-server", kafka)
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert result.exit_code == Exit.DONE, result.stderr
    return (
        [json.loads(line) for line in result.stdout.splitlines()] if command[0] == "dump" else json.loads(result.stdout)
    )
