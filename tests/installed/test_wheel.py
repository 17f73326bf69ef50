"""The wheel holds all of the package, and what the pages tell to type works with nothing but the wheel.

WHEELS="pure compiled" names the builds to try (the pure one by default); `make installed` builds them first.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from shlex import quote

import pytest

from holdfast.broker import EmbeddedKafka
from holdfast.console.outcomes import Exit
from holdfast.records.share.keys import format_key
from tests.installed.desk import Desk
from tests.installed.environment import ROOT, Environment, install_locked, names_in, wheel
from tests.pure.console.history_writer import BEGIN_MS, Stamped, rows_of, write_batch
from tests.pure.docs.blocks import TYPED_PAGES
from tests.pure.records.logs import STATE_TOPIC_ID, write_log
from tests.real.quick_java import QUICK_KAFKA
from tools.microscope import play, record, steps_on_the_page

pytestmark = pytest.mark.real

BUILDS = os.environ.get("WHEELS", "pure").split()


@pytest.fixture(scope="module", params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_locked(tmp_path_factory.mktemp("locked") / "environment")


@pytest.fixture(scope="module")
def environment(build: str, locked: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp(build), wheel(build), locked)


def test_the_wheel_holds_every_file_of_the_package(build: str) -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".so", ".c", ".h"}
    }
    names = names_in(wheel(build))
    assert files - names == set()
    assert not [name for name in names if name.endswith((".c", ".h"))]
    written_in_c = {name.rpartition("/")[0] for name in names if "/native/" in name and name.endswith(".so")}
    both = {"holdfast/kafka/protocol/native", "holdfast/records/native"}
    assert written_in_c == (both if build == "compiled" else set())
    assert {Path(name).suffix for name in files} > {".avsc", ".xml", ".properties", ".typed"}


def test_what_the_wheel_declares_is_what_the_lock_installs(environment: Environment) -> None:
    environment.check()


def test_the_commands_are_the_installed_ones(environment: Environment, build: str) -> None:
    output = environment.run(
        "command -v holdfast; holdfast --version; python -c 'import holdfast.runtime.build as b; print(b.BUILD, b.__file__)'"
    )
    assert str(ROOT) not in output
    assert f"\n{build} " in output
    assert "No module named" in environment.run("python -c 'import pyspark' 2>&1 || true")


def refusal(environment: Environment, script: str) -> tuple[int, str]:
    """Return the exit code of a script that must fail, and what it said."""
    output = environment.run(f"code=0; {{ {script}; }} 2>&1 >/dev/null || code=$?; echo $code")
    *said, code = output.splitlines()
    return int(code), "\n".join(said)


def test_without_extras_one_line_says_what_brings_a_kafka(environment: Environment, build: str) -> None:
    # Where there is a mvn on the path, it would fetch.
    tools = 'tools=$(dirname "$(command -v holdfast)"); mkdir -p none'
    code, said = refusal(
        environment, f"{tools}; HOLDFAST_CACHE=$PWD/none PATH=$tools holdfast broker start --data-dir none"
    )
    (tag,) = re.findall(r"holdfast_kafka-(.*)", wheel(build).stem)
    assert (code, said.splitlines()[-1]) == (
        Exit.FAILED,
        "Error: The jars of Apache Kafka 4.3.1 are fetched by the Ivy that PySpark carries or by mvn, and neither is here: install the "
        f"extra [broker] of holdfast-kafka, from the wheel that `make wheel` builds: pip install 'dist/holdfast_kafka-{tag}.whl[broker]'; "
        "or name an unpacked Kafka by --kafka-home DIR; or do without, any cluster's address will do.",
    )


def test_a_history_is_queried_without_spark(environment: Environment, tmp_path: Path) -> None:
    log = write_log(1, ["write"])
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


@pytest.mark.parametrize("build", BUILDS[-1:], indirect=True, scope="module")
def test_the_recording_is_what_a_stock_kafka_shows_without_java_and_spark(
    environment: Environment, build: str, tmp_path: Path
) -> None:
    """The first block of README.md, and the picture of it, are what comes on a stock Kafka with stock share consumers."""
    alone = (
        'PATH=$(dirname "$(command -v holdfast)"); '
        "if command -v java || python -c 'import pyspark' 2>&-; then exit 1; fi; {}"
    )
    with EmbeddedKafka(data_dir=tmp_path, jvm_options=QUICK_KAFKA) as kafka:
        play(kafka.bootstrap_servers)
        steps = record(kafka.bootstrap_servers, lambda command: environment.run(alone.format(command)))
    assert steps == steps_on_the_page(), "`python -m tools.microscope` records it again"


@pytest.mark.parametrize("build", BUILDS[-1:], indirect=True, scope="module")
def test_every_block_of_the_pages_works_as_typed(environment: Environment, build: str, tmp_path: Path) -> None:
    """Each command ends with 0 and says what the page shows; the tally names what is not run, and why."""
    environment.lend_spark()
    with Desk(environment, tmp_path) as desk:
        for page in TYPED_PAGES:
            desk.type_page(page)
    print(desk.tally)
    assert not desk.tally.problems, "\n\n".join(desk.tally.problems)
