"""The wheel holds all of the package, and what README.md tells to do works with nothing but the wheel.

WHEELS="pure compiled" names the builds to try (the pure one by default); `make installed` builds them first.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.installed.environment import ROOT, Environment, names_in, wheel
from tests.pure.docs.pages import code_blocks
from tests.real.nodes import topic_id_of
from tests.waiting import PATIENCE_S, block_until

pytestmark = pytest.mark.real

BUILDS = os.environ.get("WHEELS", "pure").split()
TEXT = (ROOT / "README.md").read_text()
#: Where README.md lets the job write.
PLACE_OF_THE_JOB = "/tmp/holdfast"


@pytest.fixture(scope="module", params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def environment(build: str, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp(build), wheel(build))


def console(*beginnings: str) -> list[str]:
    """Return the commands of the one console block of README.md whose commands begin so, in their order."""
    blocks = [
        [line.removeprefix("$ ").partition("  #")[0] for line in block.splitlines() if line.startswith("$ ")]
        for block in code_blocks(TEXT, "console")
    ]
    (found,) = [
        block
        for block in blocks
        if len(block) == len(beginnings)
        and all(line.startswith(beginning) for line, beginning in zip(block, beginnings, strict=True))
    ]
    return found


def test_the_wheel_holds_every_file_of_the_package(build: str) -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    assert files - names_in(wheel(build)) == set()
    assert {Path(name).suffix for name in files} > {".avsc", ".xml", ".properties", ".typed"}


def test_what_the_wheel_declares_is_what_the_lock_installs(environment: Environment) -> None:
    environment.check()


def test_the_commands_are_the_installed_ones(environment: Environment, build: str) -> None:
    told = environment.run(
        "command -v holdfast; holdfast --version; python -c 'import holdfast.runtime.build as b; print(b.BUILD, b.__file__)'"
    )
    assert str(ROOT) not in told
    assert f"\n{build} " in told
    assert "No module named" in environment.run("python -c 'import pyspark' 2>&1 || true")


@contextmanager
def a_node(environment: Environment, terminal: list[str]) -> Iterator[str]:
    """Run the terminal of the broker and the node, and give the broker's address."""
    log = environment.place / "node.log"
    *before, serve = terminal
    running = environment.start("\n".join([*before, f"exec {serve}"]), log)

    def is_ready() -> bool:
        assert running.poll() is None, log.read_text()
        asked = subprocess.run(
            ["bash", "-c", "holdfast status --json"], env=environment.variables(), capture_output=True, check=False
        )
        return asked.returncode == 0 and json.loads(asked.stdout)["is_ready"]

    try:
        block_until(is_ready, "the node is ready")
        yield environment.run("holdfast broker status").strip()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()
        environment.run("holdfast broker stop")


def snippet(topic_id: bytes, address: str) -> str:
    """Return the Python of README.md as a program."""
    (block,) = code_blocks(TEXT, "python")
    imports, _, rest = block.partition("\n\n")
    assert "127.0.0.1:9492" in rest
    body = indent(rest.replace("127.0.0.1:9492", address), "    ")
    return f"import asyncio\n{imports}\ntopic_id = {topic_id!r}\nasync def main():\n{body}\nasyncio.run(main())\n"


def test_what_the_readme_tells_to_do_works_with_the_wheel_alone(
    environment: Environment, build: str, tmp_path: Path
) -> None:
    first = console("export HOLDFAST_KAFKA_BOOTSTRAP_SERVERS=$(holdfast broker start)", "holdfast serve ")
    calls = ("holdfast state " + call for call in ("init", "write", "read"))
    export, *second = console("export ", *calls, "holdfast partitions", "holdfast dump ")
    job = console("holdfast compact --once ", "holdfast snapshots list", "holdfast history ")
    with a_node(environment, first) as bootstrap_servers:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        (orders,) = re.findall(r"With a topic `(\w+)` in that Kafka", TEXT)
        admin.create_topics([NewTopic(orders, 1, 1)])[orders].result(PATIENCE_S)
        printed = [environment.run(f"{export}\n{line}") for line in second]
        rows = [line.split() for line in printed[2].splitlines()]
        assert [row for row in rows if len(row) == 4] == [
            ["0", "9", "acknowledged", "1"],
            ["10", "19", "available", "2"],
        ]
        assert {"checkpoint", "snapshot", "update"} <= set(printed[4].split())

        (environment.place / "snippet.py").write_text(
            snippet(topic_id_of(bootstrap_servers, orders), environment.address)
        )
        environment.run("holdfast state delete --group workers --topic orders --partition 0 --force; python snippet.py")

        if build != BUILDS[-1]:
            return  # The job has no compiled part, so one wheel tells of both.
        environment.lend_spark()
        told: list[Any] = [
            environment.run(f"{export}\n{line}".replace(PLACE_OF_THE_JOB, str(tmp_path))) for line in job
        ]
        assert "yes" in told[1]
        assert "live" in told[2]
