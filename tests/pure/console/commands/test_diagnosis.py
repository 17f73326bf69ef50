"""`holdfast doctor` and `holdfast debug bundle` as commands, beside a fake node."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.console import node_session
from holdfast.console.commands.diagnosis import doctor as doctor_module
from holdfast.console.doctor.checks import CHECKS
from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong
from holdfast.console.outcomes import Exit
from holdfast.kafka.security import Security
from tests.pure.console.conftest import Node

KAFKA = ("--set", "kafka.bootstrap.servers=127.0.0.1:1")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the checks of the doctor, to which a test may add; all that is there is well."""

    async def node(subject: Subject) -> Sequence[Finding]:
        return [right(f"node at {subject.address}")]

    checks = {"node": node}
    monkeypatch.setattr(doctor_module, "CHECKS", checks)
    return checks


def finding(found: Finding) -> Any:
    async def check(_: Subject) -> Sequence[Finding]:
        return [found]

    return check


def test_the_doctor_prints_what_it_finds_and_what_to_type(checks: dict[str, Any]) -> None:
    result = run("doctor", *KAFKA)
    assert result.exit_code == Exit.DONE
    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()[1:]] == [
        ["right", "settings", "each has a value that it may have"],
        ["right", "node", "node at 127.0.0.1:9492"],
    ]
    checks["log"] = finding(warning("it is weak", "mend-it --now"))
    assert run("doctor", *KAFKA).exit_code == Exit.DONE
    assert run("doctor", *KAFKA, "--strict").exit_code == Exit.FAILED
    assert "log: mend-it --now" in run("doctor", *KAFKA).stderr
    checks["ACLs"] = finding(wrong("it may not", "grant-it"))
    result = run("doctor", *KAFKA, "--json")
    assert result.exit_code == Exit.FAILED
    assert json.loads(result.stdout)[-1] == {
        "check": "ACLs",
        "level": "wrong",
        "text": "it may not",
        "remedy": "grant-it",
    }
    assert result.stderr == "Error: 1 of 4 findings are not right.\n"


def test_a_node_in_the_place_of_a_broker_is_said_once(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    of_brokers = {name: CHECKS[name] for name in ("brokers", "clock", "ACLs", "state topic")}
    monkeypatch.setattr(doctor_module, "CHECKS", of_brokers)
    result = run("doctor", "--set", f"kafka.bootstrap.servers={node.address}")
    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()[2:]] == [
        ["wrong", "brokers", f"{node.address} is a Holdfast node, not a Kafka broker"],
        ["unknown", "brokers", "without any, these could not be looked at: clock, ACLs, state topic"],
    ]
    assert (result.exit_code, result.stderr) == (
        Exit.FAILED,
        "brokers: name Kafka's brokers in kafka.bootstrap.servers\nError: 2 of 3 findings are not right.\n",
    )


def test_wrong_settings_are_what_the_doctor_finds(checks: dict[str, Any]) -> None:
    result = run("doctor", *KAFKA, "--set", "codec=gzip", "--set", "max.connections=0", "--json")
    assert result.exit_code == Exit.FAILED
    assert [(line["check"], line["level"]) for line in json.loads(result.stdout)] == [("settings", "wrong")] * 2


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (
            (
                "doctor",
                *KAFKA,
                "--set",
                "listen=0.0.0.0:9999",
                "--set",
                "advertised_listener=n:1",
                "--set",
                "listener.insecure=true",
            ),
            "127.0.0.1:9999",
        ),
        (("doctor", *KAFKA, "--address", "other:1"), "other:1"),
        (("--address", "other:2", "doctor", *KAFKA), "other:2"),
    ],
)
def test_the_node_is_that_of_the_settings_or_the_one_that_is_named(
    checks: dict[str, Any], arguments: tuple[str, ...], address: str
) -> None:
    *_, line = json.loads(run(*arguments, "--json").stdout)
    assert line["text"] == f"node at {address}"


def test_a_node_that_runs_has_what_is_not_given(checks: dict[str, Any], node: Node) -> None:
    seen: list[Subject] = []

    async def look(subject: Subject) -> Sequence[Finding]:
        seen.append(subject)
        return [right("seen")]

    checks["look"] = look
    node.answers["settings"] = lambda _: {
        "state_topic": "theirs",
        "codec": "kafka",
        "share.coordinator.state.topic.num.partitions": 4,
        "kafka.bootstrap.servers": "there:9092",
        "of_another_version": 1,
    }
    settings, *_ = json.loads(run("doctor", "--set", "codec=avro", "--address", node.address, "--json").stdout)
    assert settings["text"].endswith(f"those that are not given here are of the node at {node.address}")
    (log,) = [subject.settings.log for subject in seen]
    assert (log.state_topic_num_partitions, log.state_topic, log.codec) == (4, "theirs", "avro")
    assert seen[0].settings.kafka.properties == {"bootstrap.servers": "there:9092"}


def test_a_node_that_hides_a_secret_does_not_say_how_kafka_is_reached(checks: dict[str, Any], node: Node) -> None:
    node.answers["settings"] = lambda _: {
        "codec": "kafka",
        "kafka.bootstrap.servers": "there:9092",
        "kafka.sasl.password": "***",
    }
    checks["look"] = finding(right("seen"))
    lines = json.loads(run("doctor", "--address", node.address, "--json").stdout)
    assert lines[0]["level"] == "wrong", "brokers are to be named, as without a node"


def test_the_doctor_says_what_outranks_the_file(
    checks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "node.toml"
    config.write_text('codec = "kafka"\n[kafka]\n"bootstrap.servers" = "there:1"\n')
    monkeypatch.setenv("HOLDFAST_KAFKA_BOOTSTRAP_SERVERS", "elsewhere:1")
    line, *_ = json.loads(run("doctor", "--config", str(config), "--set", "codec=avro", "--json").stdout)
    assert (line["check"], line["level"], line["text"]) == (
        "settings",
        "warning",
        "kafka.bootstrap.servers from HOLDFAST_KAFKA_BOOTSTRAP_SERVERS outranks the one in node.toml",
    )


def test_a_remedy_of_several_checks_is_said_once(checks: dict[str, Any]) -> None:
    checks["log"] = finding(warning("it is weak", "see the page"))
    checks["snapshots"] = finding(warning("they are weak", "see the page"))
    assert run("doctor", *KAFKA).stderr == "log, snapshots: see the page\n"


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_a_bundle_has_what_the_node_and_the_doctor_say(checks: dict[str, Any], node: Node, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    secret = ("--set", "kafka.sasl.password=open sesame")
    result = run("debug", "bundle", *KAFKA, *secret, "--address", node.address, "--output", str(path), "--json")
    assert result.exit_code == Exit.DONE, result.stderr
    files = read(path)
    answer = json.loads(result.stdout)
    assert answer["path"] == str(path)
    assert answer["bytes"] == path.stat().st_size
    assert answer["files"] == sorted(files)
    assert answer["missing"] == ["config-topic.json"], "this fake node knows no such command"
    assert json.loads(files["status.json"])["is_ready"] is True
    assert json.loads(files["doctor.json"])[-1]["text"] == f"node at {node.address}"
    assert json.loads(files["about.json"])["libraries"]["click"]
    assert files["log-lines.txt"] == "first\nsecond\n"
    assert "=== task holdfast-tick" in files["stacks.txt"]
    assert "sesame" not in "".join(files.values())
    assert [name for name, _ in node.asked].count("debug") == 1
    node.asked.clear()
    again = run("debug", "bundle", *KAFKA, "--address", node.address, "--output", str(path))
    assert (again.exit_code, again.stderr) == (
        Exit.WRONG_USAGE,
        f"Error: There is a file {path} already; name another with --output.\n",
    )
    assert node.asked == [], "what takes long was gathered for nothing"


def test_a_bundle_that_could_not_be_written_is_refused_before_it_is_gathered(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    another = "name another with --output."
    for place, why in (
        (
            "missing/b",
            f"{tmp_path}/missing/b cannot be written (No such file or directory); make its directory, or {another}",
        ),
        ("file/b", f"{tmp_path}/file/b cannot be written (Not a directory); {another}"),
        ("x" * 250, f"{tmp_path}/{'x' * 250} cannot be written (File name too long); {another}"),
        ("nowhere", f"There is a file {tmp_path}/nowhere already; {another}"),
    ):
        refused = run("debug", "bundle", *KAFKA, "--address", node.address, "--output", str(tmp_path / place))
        assert (refused.exit_code, refused.stderr) == (Exit.WRONG_USAGE, f"Error: {why}\n")
    assert node.asked == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "nowhere"]


def test_a_bundle_of_a_node_that_does_not_answer_says_so_in_each_part(checks: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    result = run("debug", "bundle", *KAFKA, "--address", "127.0.0.1:1", "--output", str(path))
    assert result.exit_code == Exit.DONE
    files = read(path)
    assert "Is the node running?" in files["status.json.missing.txt"]
    assert "Is the node running?" in files["stacks.txt.missing.txt"]
    assert {"about.json", "doctor.json", "settings-here.json"} <= files.keys()
    assert "Not to be had, and the bundle says why: config-topic.json, log-lines.txt" in result.stderr


def test_a_bundle_reaches_the_node_by_the_file_that_its_settings_name_as_the_doctor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties, seen = tmp_path / "client.properties", list[str]()
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n")

    class Session(node_session.NodeSession):
        def __init__(self, security: Security) -> None:
            seen.append(security.protocol)
            super().__init__(security)

    monkeypatch.setattr(node_session, "NodeSession", Session)
    monkeypatch.setattr(doctor_module, "CHECKS", {})
    flags = ("kafka.bootstrap.servers=127.0.0.1:1", f"listener.client.properties.file={properties}")
    command = ["debug", "bundle", "--address", "127.0.0.1:1", "--output", str(tmp_path / "b.tar.gz")]
    done = CliRunner().invoke(main, [*command, *(part for flag in flags for part in ("--set", flag))])
    assert (done.exit_code, seen) == (0, ["SASL_PLAINTEXT"]), done.output
