"""docs/run.md and the files that run a node: what they say is what the code does."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from importlib.metadata import requires
from pathlib import Path
from shutil import which
from signal import SIGTERM
from subprocess import run
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types
from packaging.requirements import Requirement

from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.models import LoadSettings, Settings, ShutdownSettings
from holdfast.distribution import NAME
from holdfast.node_settings import load_settings
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "run.md").read_text()


def test_the_exit_codes_are_those_of_the_node() -> None:
    described = {name: int(code) for code, name, *_ in table(PAGE, "exit codes")}
    # The second SIGTERM finds the default action (`test_freeze.py` has one), which is an exit code to shells alone.
    assert described == {code.name: code.value for code in NodeExit} | {"–": 128 + SIGTERM}


# ---- systemd ---------------------------------------------------------------------------------------------------------


def unit() -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of systemd have capitals
    parser.read_string((ROOT / "deploy" / "systemd" / "holdfast.service").read_text())
    return dict(parser["Service"])


def test_the_unit_never_restarts_what_must_not_start_by_itself() -> None:
    assert unit()["Restart"] == "on-failure"
    assert unit()["RestartPreventExitStatus"].split() == [str(int(NodeExit.WRONG_USAGE)), str(int(NodeExit.SUPERSEDED))]


def test_the_unit_has_a_lasting_user_and_reads_its_settings_in_place() -> None:
    assert unit()["Environment"] == "HOLDFAST_CONFIG=/etc/holdfast/node.toml"
    users = (ROOT / "deploy" / "systemd" / "holdfast.sysusers").read_text()
    assert f"\nu {unit()['User']} - " in users


def test_the_unit_waits_for_all_steps_of_a_stop() -> None:
    shutdown = ShutdownSettings()
    # Five steps, the shards' of three times the length, and the drain before one of them.
    longest_ms = shutdown.drain_timeout_ms + 8 * shutdown.shutdown_step_timeout_ms
    assert longest_ms < int(unit()["TimeoutStopSec"].removesuffix("s")) * 1_000


def test_the_unit_lets_the_node_speak_for_itself() -> None:
    asked = {"Type": "notify", "NotifyAccess": "main", "ExecReload": "/bin/kill -HUP $MAINPID"}
    assert asked.items() <= unit().items()
    watchdog_ms = int(unit()["WatchdogSec"].removesuffix("s")) * 1_000
    assert watchdog_ms > 2 * LoadSettings().tick_ms
    assert "AF_UNIX" in unit()["RestrictAddressFamilies"].split()


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd here to ask")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With the job's part or without; only the program that they start lies elsewhere here."""
    for name in ("holdfast.service", "holdfast.service.d/spark.conf"):
        text = (ROOT / "deploy" / "systemd" / name).read_text()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("/opt/holdfast/bin/holdfast", sys.executable))
        verified = run(
            ["systemd-analyze", "verify", str(tmp_path / "holdfast.service")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (verified.returncode, verified.stderr) == (0, "")


# ---- docker ----------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def nodes_of_the_compose_file() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in compose()["services"].items() if name.startswith("node")}


def settings_of_a_container(node: Mapping[str, Any]) -> Settings:
    image = dict(re.findall(r"\b(HOLDFAST_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    settings, warnings, *_ = load_settings(
        None, image | {name: str(value) for name, value in node["environment"].items()}
    )
    assert warnings == ()
    return settings


@pytest.mark.parametrize("name", ["node1", "node2", "node3"])
def test_each_node_of_the_compose_file_has_settings_that_load(name: str) -> None:
    node = nodes_of_the_compose_file()[name]
    settings = settings_of_a_container(node)
    assert settings.listener.listen_address == ("0.0.0.0", 9492)
    assert settings.access.super_users == ("User:ANONYMOUS",)
    assert settings.members.membership == "group"
    assert f"127.0.0.1:{settings.listener.advertised_address[1]}:9492" in node["ports"]
    host, _, port = settings.kafka.properties["bootstrap.servers"].partition(":")
    assert f"INTERNAL://{host}:{port}" in compose()["services"][host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_the_nodes_of_the_compose_file_are_three_members_of_one_group() -> None:
    nodes = nodes_of_the_compose_file().values()
    found = [settings_of_a_container(node) for node in nodes]
    assert {each.members.group_of(each.log.state_topic) for each in found} == {"holdfast-__holdfast_share_state"}
    assert len({each.node_id for each in found}) == 3
    assert len({each.listener.advertised_address for each in found}) == 3
    alike = [{name: value for name, value in node.items() if name not in ("environment", "ports")} for node in nodes]
    assert alike == [alike[0]] * 3


def test_the_compose_file_uses_what_it_declares() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    for service in services.values():
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= volumes.keys()
        assert service.get("depends_on", {}).keys() <= services.keys()
        assert ("image" in service) != ("build" in service)


def test_the_image_is_built_from_files_that_exist_and_are_not_ignored() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == ["10001", "10001"]


# ---- locks and hooks -------------------------------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    """Return package to its pin with all hashes."""
    blocks = re.split(r"\n(?=\S)", (ROOT / name).read_text())
    return {
        block.partition("==")[0].strip(): block.partition("\n    # via")[0].strip()
        for block in blocks
        if "==" in block.partition("\n")[0]
    }


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("requirements", ""),
        ("requirements-page", "page"),
        ("requirements-spark", "spark"),
        ("requirements-spark", "history"),
        ("requirements-spark", "broker"),
        ("requirements-build", "compile"),
    ],
)
def test_a_lock_is_a_part_of_the_whole_and_holds_all_that_is_needed(name: str, extra: str) -> None:
    # `uv pip compile --generate-hashes --no-header --no-annotate -c requirements.lock --extra ‹extra› pyproject.toml` makes it.
    lock, whole = pins(f"deploy/{name}.lock"), pins("requirements.lock")
    assert {package: whole.get(package) for package in lock} == lock
    assert needed_of(NAME, extra) <= lock.keys()


def needed_of(package: str, extra: str) -> set[str]:
    """Return what a package needs with one of its extras, and what that needs in turn."""
    found: set[tuple[str, str]] = set()
    waiting = [(package, extra)]
    while waiting:
        package, extra = waiting.pop()
        for line in requires(package) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                name = requirement.name.lower().replace("_", "-")
                needed = {(name, extra) for extra in ("", *requirement.extras)}
                waiting.extend(needed - found)
                found |= needed
    return {name for name, _ in found}


def test_the_hooks_run_what_make_check_runs() -> None:
    (check,) = re.findall(r"^check: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]] == [f"make {v}" for v in check.split()]
