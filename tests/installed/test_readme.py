"""The wheel holds all of the package, and what README.md tells to do works with nothing but the wheel.

WHEELS="pure compiled" names the builds to try (the pure one by default); `make installed` builds them first.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from shlex import quote

import pytest

from holdfast.console.outcomes import Exit
from holdfast.records.keys import format_key
from tests.installed.environment import ROOT, Environment, names_in, wheel
from tests.pure.cli.history_writer import BEGIN_MS, Stamped, rows_of, write_batch
from tests.pure.docs.pages import code_blocks
from tests.pure.records.logs import STATE_TOPIC_ID, LogWriter
from tests.waiting import PATIENCE_S, block_until

pytestmark = pytest.mark.real

BUILDS = os.environ.get("WHEELS", "pure").split()
TEXT = (ROOT / "README.md").read_text()


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


def refusal(environment: Environment, script: str) -> tuple[int, str]:
    """Return the exit code of a script that must fail, and what it said."""
    told = environment.run(f"code=0; {{ {script}; }} 2>&1 >/dev/null || code=$?; echo $code")
    *said, code = told.splitlines()
    return int(code), "\n".join(said)


def test_without_extras_one_line_says_what_brings_a_kafka(environment: Environment, build: str) -> None:
    # Where there is a mvn on the path, it would fetch.
    tools = 'tools=$(dirname "$(command -v holdfast)"); mkdir -p none'
    code, said = refusal(
        environment, f"{tools}; HOLDFAST_CACHE=$PWD/none PATH=$tools holdfast broker start --data-dir none"
    )
    (tag,) = re.findall(r"holdfast_kafka-(.*)", wheel(build).stem)
    assert (code, said) == (
        Exit.FAILED,
        "Error: The jars of Apache Kafka 4.3.1 are fetched by the Ivy that PySpark carries or by mvn, and neither is here: install the "
        f"extra [broker] of holdfast-kafka, from the wheel that `make wheel` builds: pip install 'dist/holdfast_kafka-{tag}.whl[broker]'; "
        "or name an unpacked Kafka by --kafka-home DIR; or do without, any cluster's address will do.",
    )


def test_a_history_is_asked_without_spark(environment: Environment, tmp_path: Path) -> None:
    log = LogWriter(Random(1))
    log.do("write")
    write_batch(tmp_path, STATE_TOPIC_ID, "a", rows_of(0, [Stamped(each, BEGIN_MS) for each in log.records]))
    (key,) = log.states
    ask = f"holdfast history {quote(key.group_id)} --no-log --history-dir {tmp_path} --json"
    code, said = refusal(environment, ask)
    assert (code, "The history is read with pyarrow, not installed here; install the extra [history] of" in said) == (
        1,
        True,
    )
    environment.install("pyarrow", "requirements-spark.lock")
    (found,) = json.loads(environment.run(ask))
    assert found["share_partition"] == format_key(key)
    assert "No module named" in environment.run("python -c 'import pyspark' 2>&1 || true")


@contextmanager
def what_runs(environment: Environment, terminal: list[str]) -> Iterator[None]:
    """Type the lines of the first terminal, the last of which stays in the foreground until Ctrl-C."""
    log = environment.place / "dev.log"
    activate, dev = terminal
    assert activate == ". .venv/bin/activate", "this environment has no .venv"
    running = environment.start(f"exec {dev}", log)

    def is_ready() -> bool:
        assert running.poll() is None, log.read_text()
        return "Ctrl-C here ends all of it." in log.read_text()

    try:
        block_until(is_ready, "all runs")
        assert f"export HOLDFAST_KAFKA_BOOTSTRAP_SERVERS={environment.kafka}\n" in log.read_text()
        yield
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()


def test_what_the_readme_tells_to_do_works_with_the_wheel_alone(environment: Environment, build: str) -> None:
    first = console(". ", "holdfast dev")
    calls = ("holdfast state " + call for call in ("init", "write", "read"))
    export, *second = console("export ", *calls, "holdfast partitions", "holdfast dump ")
    places, *job = console("export ", "holdfast compact --once", "holdfast snapshots list", "holdfast history ")
    export = export.replace("127.0.0.1:9092", environment.kafka)
    with what_runs(environment, first):
        printed = [environment.run(f"{export}\n{line}") for line in second]
        rows = [line.split() for line in printed[2].splitlines()]
        assert [row for row in rows if len(row) == 4] == [
            ["0", "9", "acknowledged", "1"],
            ["10", "19", "available", "2"],
        ]
        assert {"checkpoint", "snapshot", "update"} <= set(printed[4].split())

        (program,) = code_blocks(TEXT, "python")
        (environment.place / "snippet.py").write_text(program.replace("127.0.0.1:9492", environment.address))
        assert "StateBatch(first_offset=0, last_offset=9" in environment.run("python snippet.py")

        if build != BUILDS[-1]:
            return  # The job has no compiled part, so one wheel tells of both.
        environment.lend_spark()
        told = environment.run("\n".join((export, places, *job)))
        assert "yes" in told
        assert "live" in told
