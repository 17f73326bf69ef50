"""docs/spark.md and the files that run the job: what they say is what the code does."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types

from holdfast.console import job_process
from holdfast.console.outcomes import Exit
from holdfast.jars.cache import SPARK_KAFKA_VERSION
from holdfast.node_settings import load_settings
from tests.pure.docs.pages import ROOT, table
from tests.pure.docs.test_run import pins
from tools.log_events import sites

PAGE = (ROOT / "docs" / "spark.md").read_text()
EXAMPLE = (ROOT / "examples" / "read_snapshots_spark.py").read_text()


def test_connector_and_avro_are_of_the_version_that_the_job_fetches() -> None:
    found = re.findall(r"org.apache.spark:spark-(sql-kafka-0-10|avro)_2.13:([\d.]+)", PAGE + EXAMPLE)
    assert set(found) == {("sql-kafka-0-10", SPARK_KAFKA_VERSION), ("avro", SPARK_KAFKA_VERSION)}


def test_the_connector_is_of_the_locked_version_of_spark() -> None:
    assert pins("requirements.lock")["pyspark"].startswith(f"pyspark=={SPARK_KAFKA_VERSION} ")


def test_the_exit_codes_are_those_of_the_tool() -> None:
    codes = {int(code) for code, _ in table(PAGE, "exit codes")}
    assert codes == {
        0,
        Exit.FAILED,
        Exit.WRONG_USAGE,
        Exit.REFUSED_TO_START,
        Exit.UNREACHABLE,
        Exit.NOT_FOUND,
        Exit.DENIED,
    }


def test_the_log_events_are_those_of_the_job() -> None:
    package = ROOT / "holdfast"
    places = (package / "compaction", package / "daemon" / "snapshots", package / "console")
    said = {site.event for site in sites() if any(site.path.is_relative_to(place) for place in places)}
    assert {line.strip("`") for line, _ in table(PAGE, "lines")} <= said


def test_the_lock_has_what_the_job_needs_and_is_a_part_of_the_whole_lock() -> None:
    own, node, whole = (
        pins(name) for name in ("deploy/requirements-spark.lock", "deploy/requirements.lock", "requirements.lock")
    )
    assert {package: whole.get(package) for package in own} == own
    assert node.keys() <= own.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {re.split(r"[^\w-]", line)[0] for line in project["optional-dependencies"]["spark"]}
    assert extra <= own.keys()
    assert set(job_process._PACKAGES.values()) <= extra


def environment_of_the_image() -> dict[str, str]:
    stage = (ROOT / "Dockerfile").read_text().split(" AS spark\n")[1].split("\nFROM ")[0]
    return dict(re.findall(r"\b(HOLDFAST_\w+)=(\S+)", stage))


def test_the_job_of_the_compose_file_has_settings_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    job = compose["services"]["compact"]
    variables = environment_of_the_image() | {name: str(value) for name, value in job["environment"].items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = job_process.settings_of(None, {})
    (volume,) = job["volumes"]
    place = volume.partition(":")[2]
    assert Path(settings.compaction.checkpoint_dir).is_relative_to(place)
    assert Path(settings.compaction.history_dir).is_relative_to(place)
    assert f"VOLUME {place}\n" in (ROOT / "Dockerfile").read_text()
    assert job["command"] == ["compact"]


def test_the_unit_for_a_node_with_the_job_sets_what_exists() -> None:
    text = (ROOT / "deploy" / "systemd" / "holdfast.service.d" / "spark.conf").read_text()
    variables = dict(re.findall(r"^Environment=(HOLDFAST_\w+)=(.*)$", text, re.MULTILINE))
    brokers = {"HOLDFAST_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"}
    settings, warnings, *_ = load_settings(None, variables | brokers)
    assert warnings == ()
    assert settings.compaction.run
    shutdown, compaction = settings.shutdown, settings.compaction
    longest_ms = shutdown.drain_timeout_ms + 9 * shutdown.shutdown_step_timeout_ms + compaction.stop_timeout_ms
    (allowed_s,) = re.findall(r"^TimeoutStopSec=(\d+)s$", text, re.MULTILINE)
    assert longest_ms < int(allowed_s) * 1_000


def test_what_spark_submit_runs_calls_the_command() -> None:
    code = (ROOT / "deploy" / "compact.py").read_text()
    calls = [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert calls == ["main(['compact', *sys.argv[1:]])"]
