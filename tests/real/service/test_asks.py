"""Every question of docs/metrics.md is answered by the metric and the command beside it: of a node with TLS, logins and load.

`pytest -s` prints the answers.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from holdfast.client import ShareStateError, connect
from holdfast.kafka.security import read_security
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.pure.docs.pages import ROOT
from tests.real.nodes import ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until
from tests.world.http import get
from tests.world.identity.secured import SecuredFiles

pytestmark = pytest.mark.real

GROUP, RECORDS = "workers", 100
#: Only a node that runs the job has it.
OF_THE_JOB: Final = {"holdfast_compaction_lag_records"}
#: The command line tool, with a client that gives no busy machine up.
PROGRAM: Final = """
from holdfast.cli import main
from holdfast.client import ClientSettings
from holdfast.console import node_session

node_session._SETTINGS = ClientSettings(connect_timeout_ms=%d, request_timeout_ms=%d)
main(prog_name="holdfast")
"""
#: What a command of the page needs besides.
GIVEN: Final[Mapping[str, tuple[str, ...]]] = {
    "groups describe": (GROUP,),
    "acls check": ("--principal", "User:mallory", "--operation", "WRITE", "--group", GROUP),
}
#: Commands that end with an error here: there is no snapshot, no rule allows it, and the users file is broken.
NOT_DONE: Final = {"snapshots verify", "acls check", "doctor"}


def questions() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the questions of the page, each with its metrics and commands."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = text[text.index("| Question | Metric | Command |") :].split("\n\n")[0].splitlines()[2:]
    for row in rows:
        question, metrics, commands = re.split(r"\s*\|\s*", row)[1:4]
        yield question, re.findall(r"`(holdfast_\w+)`", metrics), re.findall(r"`holdfast ([^`]+)`", commands)


async def series(port: int) -> dict[str, list[str]]:
    """Return the lines of a scrape, by the name of their family."""
    found: dict[str, list[str]] = {}
    for line in (await get(port, "/metrics")).body.decode().splitlines():
        if not line.startswith("#"):
            name = re.sub(r"_(bucket|count|sum)$", "", re.split("[{ ]", line)[0])
            found.setdefault(name, []).append(line)
    return found


async def scrape(port: int) -> dict[str, list[str]]:
    """Return the lines of the first scrape that knows of the brokers and of all writes: of 100 records 50 are acknowledged."""
    found: dict[str, list[str]] = {}
    async with asyncio.timeout(PATIENCE_S):
        # The node makes the numbers of share groups, and looks at its brokers, by its clock.
        while "holdfast_broker_silence_seconds" not in found or not str(
            found.get("holdfast_group_lag_records")
        ).endswith(" 50.0']"):
            await asyncio.sleep(0.1)
            found = await series(port)
    return found


async def run(node: NodeProcess, client: Path, places: Mapping[str, tuple[str, ...]], *words: str) -> tuple[int, str]:
    """Run a command as a person would, with what it needs in place of the node's address; returns its exit code and what it prints."""
    name = " ".join(words)
    of_the_node = () if name in places else ("--address", node.address)
    given = (*words, *GIVEN.get(name, ()), *places.get(name, ()), *of_the_node)
    program = PROGRAM % (PATIENCE_MS, PATIENCE_MS)
    command = (sys.executable, "-c", program, "--command-config", str(client), *given)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_each_question_has_an_answer(kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path) -> None:
    files, acls, settings = SecuredFiles(tmp_path), tmp_path / "acls", tmp_path / "node.toml"
    acls.write_text("")
    files.let_in(admin="open sesame", mallory="open sesame")
    mallory = tmp_path / "mallory.properties"
    mallory.write_text(files.properties_of("mallory", "open sesame"))
    orders = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(RECORDS):
        producer.produce(orders, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    topic_id = topic_id_of(kafka, orders)
    own: dict[str, Any] = {
        **files.settings,
        "acls_file": acls,
        "group_metrics_interval_ms": 200,
        "snapshots.topic": f"{topic}-snapshots",
    }
    with node_processes(kafka, topic, tmp_path) as make:
        node = make(**own)
        await node.start()
        lines = [f'"{name}" = "{value}"' for name, value in own.items() if name != "group_metrics_interval_ms"]
        settings.write_text(
            "\n".join(
                [
                    f'"listen" = "{node.address}"',
                    f'"state_topic" = "{topic}"',
                    *lines,
                    f'"kafka.bootstrap.servers" = "{kafka}"',
                ]
            )
        )
        async with connect(node.address, ONE_TRY, node.security) as client:
            await client.initialize(GROUP, topic_id, 0, state_epoch=1, start_offset=0)
            for offset in range(10, 60):
                await client.write(GROUP, topic_id, 0, 1, 0, -1, [StateBatch(offset, offset, ACKNOWLEDGED, 2)])
        async with connect(node.address, ONE_TRY, read_security(mallory)) as client:
            with suppress(ShareStateError):
                await client.write(GROUP, topic_id, 0, 1, 0, -1, [StateBatch(70, 70, ACKNOWLEDGED, 1)])
        files.users.write_text("no users here")
        node.signal(signal.SIGHUP)
        await wait_until(lambda: "users_refused" in [line["event"] for line in node.events()])
        places = {
            "doctor": ("--config", str(settings)),
            "acls check": ("--acls-file", str(acls)),
            "snapshots verify": (
                *("--bootstrap-server", kafka),
                *("--state-topic", topic),
                *("--snapshot-topic", f"{topic}-snapshots"),
            ),
        }
        port = (await node.status())["http_port"]
        found = await scrape(port)
        for question, metrics, commands in questions():
            print(f"\n## {question}")
            for metric in set(metrics) - OF_THE_JOB:
                assert metric in found, f"{question}: {metric} is not there"
                print(*found[metric][-2:], sep="\n")
            for command in commands:
                code, said = await run(node, files.client_properties, places, *command.split())
                assert not re.search("Traceback|Usage:", said), said
                assert (code == 0) == (command not in NOT_DONE), f"{command}: {code}\n{said}"
                print(f"$ holdfast {command}   [{code}]", *said.strip().splitlines()[:7], sep="\n")
        assert float(found["holdfast_access_denials_total"][0].split()[-1]) > 0
        assert any(float(line.split()[-1]) > 0 for line in found["holdfast_file_refusal_age_seconds"])
