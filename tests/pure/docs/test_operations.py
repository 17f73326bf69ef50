"""docs/operations.md and the files that run a node: what they say is what the code does."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from importlib.metadata import requires
from pathlib import Path
from shutil import which
from signal import SIGTERM
from subprocess import run
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped] # it ships no types
from packaging.requirements import Requirement
from structlog.testing import capture_logs

from holdfast.console.doctor.checks import CHECKS, without_brokers
from holdfast.console.doctor.findings import Level, Line
from holdfast.daemon.brokers.silence import BrokerSilence
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.file_env_flags import load_settings
from holdfast.daemon.settings.models import LoadSettings, Settings, ShutdownSettings
from holdfast.daemon.topics.log_identity import FirstRecords, LogProblem, find_problem
from holdfast.daemon.topics.snapshot_topic import find_snapshot_problems
from holdfast.daemon.topics.state_topic import FIXED_CONFIG, StateTopic, TopicDisputed, confirm_topic, find_problems
from holdfast.distribution import NAME
from holdfast.kafka.protocol.requests import Fetched
from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.kafka_log.fetcher import _damage_error, _read_error
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.partition.ownership import OWNER_EPOCH_MAX
from holdfast.runtime.settings import LogIdentity
from holdfast.share.snapshots.restore import Refusal
from tests.pure.docs.metrics import full_registry
from tests.pure.docs.pages import ROOT, as_pattern, table

PAGE = (ROOT / "docs" / "operations.md").read_text()


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_metrics_are_those_of_the_registry() -> None:
    rows = set()
    for name, sort, description, _, series in full_registry().families():
        (names,) = {tuple(label for label, _ in labels) for labels in series}
        rows.add((f"`{name}`" + f" {{{', '.join(names)}}}" * bool(names), sort.__name__.lower(), description))
    assert {tuple(row) for row in table(PAGE, "metrics")} == rows


def test_what_is_said_about_silent_brokers_is_described() -> None:
    silence, now_s = BrokerSilence(2_000, 1.0, 0.5, Registry(), lambda: 0.0), 0.0
    whole = {0: 1, 1: 2}
    with capture_logs() as lines:
        # (leaders, brokers that answer, for how many seconds), each followed by the time in which all is well
        for leaders, answering, seconds in ((whole, (), 5), (whole, (1,), 5), ({0: 1}, (1,), 5), (whole, (1,), 1)):
            for now_leaders, now_answering, lasting in ((leaders, answering, seconds), (whole, (1, 2), 5)):
                for _ in range(lasting):
                    now_s += 1.0
                    silence.look(now_s, now_leaders, 2, {1, 2}, dict.fromkeys(now_answering, now_s).get, 1.0)
                silence.leave_out(1)
    assert {row[0] for row in table(PAGE, "silences")} == {f"`{line['event']}`" for line in lines}


def test_every_reason_to_read_the_whole_log_is_described() -> None:
    assert [row[0] for row in table(PAGE, "refusals")] == [f"`{refusal.value}`" for refusal in Refusal]


def test_the_exit_codes_are_those_of_the_node() -> None:
    described = {name: int(code) for code, name, *_ in table(PAGE, "exit codes")}
    # The second SIGTERM finds the default action (`test_freeze.py` has one), which is an exit code to shells alone.
    assert described == {code.name: code.value for code in NodeExit} | {"–": 128 + SIGTERM}


def test_a_script_is_told_which_checks_are_absent_without_brokers() -> None:
    (said,) = re.findall(r"^With `--json`, too, (.+) are then absent", PAGE, re.MULTILINE)
    left = without_brokers([Line(name, Level.UNKNOWN.value, "could not be checked", "") for name in CHECKS])
    assert re.findall("`(.+?)`", said) == [name for name in CHECKS if name not in {line.check for line in left}]


def found_by(check: LogCheck) -> str:
    assert check.finding is not None
    return str(check.finding)


def alarms() -> list[str]:
    """Return one of each alarm that a partition can raise, as the code words it."""
    log = LogIdentity("cluster", bytes(16), 50)
    cut, lost, foreign, other = (LogCheck(7, log) for _ in range(4))
    cut.judge_start(5)
    lost.judge_lost_end(5, 9)
    foreign.judge_before_checkpoint(LogRecord(0, b"key", b"value", None), 0)
    other.judge_checkpoint(Checkpoint(1, bytes(16), "1", 1, "another", bytes(16), 50, None), 3)
    fetched = Fetched(0, error_code=0, high_watermark=5, log_start_offset=1, is_diverging=True, records=b"")
    return [
        *map(found_by, (cut, lost, foreign, other)),
        *(problem.text for problem in log_problems()),
        f"reading stopped at offset 9: {_read_error(fetched, 9, 'log', 'User:node').text}",
        f"reading stopped at offset 9: {_damage_error(9, 'its checksum is wrong').text}",
        f"owner epoch {OWNER_EPOCH_MAX} is the last one",
    ]


def log_problems() -> Iterator[LogProblem]:
    """Yield one of each problem that is found before anything is served."""
    for partition_count, topic_id, reason in (
        (49, bytes(16), None),
        (2, bytes([1] * 16), None),
        (2, bytes(16), "known"),
    ):
        log = LogIdentity("cluster", bytes(16), 2)
        first, second = FirstRecords(0, log), FirstRecords(1, log)
        value = encode_checkpoint(Checkpoint(1, bytes(16), "1", 1, "cluster", topic_id, partition_count, reason))
        first.read(LogRecord(0, CHECKPOINT_KEY, value, encode_header(1, 0)))
        problem = find_problem("state", log, (first, second))
        assert problem is not None
        yield problem


def test_every_alarm_is_described_with_the_command_that_ends_it() -> None:
    rows = [(as_pattern(line), what_to_do) for line, _, what_to_do in table(PAGE, "alarms")]
    described = {alarm: [what_to_do for pattern, what_to_do in rows if pattern.fullmatch(alarm)] for alarm in alarms()}
    assert [alarm for alarm, found in described.items() if len(found) != 1] == []
    assert len(rows) == len(described)
    for alarm, (what_to_do,) in described.items():
        assert "holdfast partitions accept 7" not in alarm or "`holdfast partitions accept 7" in what_to_do


SOUND: Final = {**FIXED_CONFIG, "min.insync.replicas": "2", "segment.bytes": "104857600"}
TOPIC: Final = StateTopic("state", bytes(16), 50, 3, 1_048_588)


@pytest.mark.parametrize(
    ("mark", "is_fatal", "found"),
    [
        (
            "topic findings",
            True,
            [
                (TOPIC, {"cleanup.policy": "compact"}),
                (TOPIC, {"retention.ms": "1"}),
                (TOPIC, {"retention.bytes": "1"}),
                (TOPIC, {"unclean.leader.election.enable": "true"}),
                (TOPIC, {"min.insync.replicas": "4"}),
            ],
        ),
        (
            "topic warnings",
            False,
            [
                (TOPIC._replace(replication_factor=1), {}),
                (TOPIC, {"min.insync.replicas": "1"}),
                (TOPIC, {"segment.bytes": "1"}),
                (TOPIC, {"compression.type": "gzip"}),
                (TOPIC, {"message.timestamp.type": "CreateTime"}),
                (TOPIC._replace(partition_count=51), {}),
            ],
        ),
    ],
)
def test_every_finding_about_the_topic_is_described(
    mark: str, is_fatal: bool, found: list[tuple[StateTopic, Mapping[str, str]]]
) -> None:
    rows = table(PAGE, mark)
    assert len(rows) == len(found)
    for (line, mending), (topic, config) in zip(rows, found, strict=True):
        (finding,) = find_problems(topic, {**SOUND, **config}, LogSettings(), "kafka:9092")
        assert finding.is_fatal is is_fatal
        assert as_pattern(line).fullmatch(finding.problem)
        if finding.command:
            assert as_pattern(mending.split("`")[1]).fullmatch(finding.command)


async def test_what_is_said_of_brokers_that_do_not_agree_about_the_topic_is_described() -> None:
    async def topic_ids(_: str) -> dict[tuple[str, int], bytes | None]:
        return {("kafka-1", 9092): bytes(16), ("kafka-2", 9092): bytes(16), ("kafka-3", 9092): None}

    client: Any = SimpleNamespace(topic_ids=topic_ids)
    with pytest.raises(TopicDisputed) as disputed:
        await confirm_topic(client, TOPIC.name, TOPIC.topic_id)
    ((line, _),) = table(PAGE, "topic dispute")
    assert as_pattern(line).fullmatch(str(disputed.value))


def test_every_finding_about_the_snapshot_topic_is_described() -> None:
    fit = TOPIC._replace(name="snapshots", max_message_bytes=2 * TOPIC.max_message_bytes)
    found: list[tuple[StateTopic, Mapping[str, str], bool]] = [
        (fit, {"cleanup.policy": "delete"}, True),
        (fit._replace(partition_count=1), {}, True),
        (fit._replace(max_message_bytes=1_000_000), {}, True),
        (fit._replace(replication_factor=1), {}, False),
    ]
    rows = table(PAGE, "snapshot topic findings")
    for (line, mending), (topic, config, is_fatal) in zip(rows, found, strict=True):
        (finding,) = find_snapshot_problems(topic, {"cleanup.policy": "compact", **config}, TOPIC, "kafka:9092")
        assert finding.is_fatal is is_fatal
        assert as_pattern(line.removesuffix(" (a warning)")).fullmatch(finding.problem)
        assert not finding.command or as_pattern(mending.split("`")[1]).fullmatch(finding.command)
    assert not list(find_snapshot_problems(fit, {"cleanup.policy": "compact"}, TOPIC, "kafka:9092"))


# ---- systemd ---------------------------------------------------------------------------------------------------------


def unit() -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of systemd have capitals
    parser.read_string((ROOT / "deploy" / "systemd" / "holdfast.service").read_text())
    return dict(parser["Service"])


def test_the_unit_never_restarts_what_must_not_start_by_itself() -> None:
    assert unit()["Restart"] == "on-failure"
    assert unit()["RestartPreventExitStatus"].split() == [str(int(NodeExit.WRONG_USAGE)), str(int(NodeExit.SUPERSEDED))]


def test_the_unit_is_a_user_that_lasts_and_reads_its_settings_where_they_lie() -> None:
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
