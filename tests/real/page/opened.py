"""The page of a real cluster, waits for it to show something, and the numbers of the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from click.testing import CliRunner

from holdfast.broker import find_java, kafka_classpath
from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.kafka.connection_options import connection_options
from holdfast.page.kafka_page import KafkaPage
from holdfast.page.past import History
from holdfast.page.source import GroupsPage, PageRefused
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, Lines, in_patience, look_until
from tests.world.http import Answer, get


@asynccontextmanager
async def page_of(
    kafka: str, topics: Sequence[str] = ("__share_group_state", "__holdfast_share_state"), history_dir: str = ""
) -> AsyncIterator[KafkaPage]:
    """Give the page of a cluster."""
    page = KafkaPage(
        connection_options({"bootstrap.servers": kafka}),
        topics,
        bootstrap=kafka,
        now_ms=lambda: time.time_ns() // 1_000_000,
        run_id="run",
        history=History(history_dir, "--history-dir") if history_dir else None,
    )
    task = asyncio.create_task(page.run())
    try:
        yield page
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextmanager
def page_command(kafka: str) -> Iterator[tuple[int, int]]:
    """Give the port and the process id of `holdfast page`; Ctrl-C ends it well, and quietly."""
    command = [sys.executable, "-m", "holdfast", "page", "--bootstrap-server", kafka]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = Lines(process.stdout).next().strip()
            yield int(address.rstrip("/").rpartition(":")[2]), process.pid
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr is not None
            said = process.stderr.read()
            assert said == f"It shows the share groups of {kafka}, and ends with Ctrl-C.\n"
        finally:
            process.kill()


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


async def until_shown(page: KafkaPage, group: str) -> None:
    """Wait until a page knows all, with the lag of a group and the age of its oldest record: beside a silent broker it begins with less."""
    await groups_when(
        page,
        lambda found: (
            not found.unknown
            and any(
                row.lag is not None and row.oldest is not None and row.oldest.written_ms is not None
                for row in found.rows
                if row.group == group
            )
        ),
    )


async def answer_when(port: int, path: str, holds: Callable[[Answer], object]) -> Answer:
    """Return what `holdfast page` answers as soon as a condition holds of it; until it has read the state topic it says so."""
    return await look_until(lambda: in_patience(get(port, path)), holds)


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


async def by_kafkas_tool(kafka: str, group: str) -> dict[int, tuple[int | None, ...]]:
    """Return start offset and lag of each partition by `kafka-share-groups.sh --describe --offsets`, None where it shows none."""
    tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    path = await asyncio.to_thread(kafka_classpath)
    command = [find_java(), *QUICK_KAFKA, "-cp", path, tool, "--bootstrap-server", kafka, "--describe", "--offsets"]
    told = await asyncio.to_thread(
        subprocess.run, [*command, "--group", group], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    lines = [line.split() for line in told.stdout.splitlines() if line.strip()]
    heads = [line for line in lines if "START-OFFSET" in line]
    assert heads, told.stdout + told.stderr
    place = {name: heads[0].index(name) for name in ("PARTITION", "START-OFFSET", "LAG")}
    return {
        int(line[place["PARTITION"]]): tuple(
            None if line[place[name]] == "-" else int(line[place[name]]) for name in ("START-OFFSET", "LAG")
        )
        for line in lines
        if line[0] == group
    }
