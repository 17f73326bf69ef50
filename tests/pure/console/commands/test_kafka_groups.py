"""`holdfast groups kafka` and `holdfast find --type` against brokers that are objects: tables, JSON and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kio.schema.errors import ErrorCode

from holdfast.cli import main
from holdfast.console import options
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.kafka import exchange
from tests.pure.kafka.discovery.fake_servers import NONE, FakeCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Give three brokers, each of which coordinates what begins with its name, in the place of those of the command."""
    cluster = FakeCluster("abc")
    for server in cluster.servers.values():
        server.coordinator = lambda _, key: key[0]
    monkeypatch.setattr(exchange, "broker_links", lambda *_, **__: cluster.links())
    return cluster


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def rows(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


@pytest.mark.parametrize(("key_type", "number"), [("group", 0), ("transaction", 1)])
def test_groups_and_transactions_are_found_at_the_brokers(cluster: FakeCluster, key_type: str, number: int) -> None:
    found = run("find", "--type", key_type, "b1", "c1", "b1")
    assert found.exit_code == Exit.DONE
    assert [line.split() for line in found.stdout.splitlines()] == [
        [key_type, "coordinator", "log", "partition", "error"],
        ["b1", "b:9092", "-", "-"],
        ["c1", "c:9092", "-", "-"],
        ["b1", "b:9092", "-", "-"],
    ]
    (asked,) = cluster.requests()
    assert (asked.request.key_type, asked.request.coordinator_keys) == (number, ("b1", "c1"))


def test_a_key_without_a_coordinator_is_exit_code_1_and_the_others_are_shown(cluster: FakeCluster) -> None:
    for server in cluster.servers.values():
        server.coordinator = lambda _, key: ErrorCode.group_authorization_failed if key == "b1" else key[0]
    found = run("find", "--type", "group", "b1", "c1")
    assert (found.exit_code, found.stderr) == (Exit.FAILED, "Error: Not every group has a coordinator.\n")
    assert rows("find", "--type", "group", "b1", "c1") == [
        {"key": "b1", "coordinator": None, "log_partition": None, "error": "GROUP_AUTHORIZATION_FAILED: no"},
        {"key": "c1", "coordinator": "c:9092", "log_partition": None, "error": None},
    ]


def test_a_topic_that_there_is_not_leaves_the_others_found(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster
) -> None:
    def find_topic_id(_: KafkaReader, name: str) -> bytes:
        if name != "orders":
            raise Failure(f"The topic {name} cannot be read.", Exit.NOT_FOUND)
        return bytes(16)

    monkeypatch.setattr(KafkaReader, "find_topic_id", find_topic_id)
    keys = ("a1:nope:0", "b1:orders:0", "c1:orders:1")
    found = run("find", *keys, "--bootstrap-server", "a:9092")
    assert found.exit_code == Exit.NOT_FOUND
    assert [line.split()[:2] for line in found.stdout.splitlines()[1:]] == [
        ["a1:nope:0", "-"],
        ["b1:orders:0", "b:9092"],
        ["c1:orders:1", "c:9092"],
    ]
    assert "UNKNOWN_TOPIC_OR_PARTITION: The topic nope cannot be read." in found.stdout
    assert run("find", *keys[1:], "--bootstrap-server", "a:9092").exit_code == Exit.DONE


def test_no_broker_that_answers_is_an_exit_code_of_its_own(cluster: FakeCluster) -> None:
    for server in cluster.servers.values():
        server.is_gone = True
    for arguments in (
        ("find", "--type", "group", "x"),
        ("groups", "kafka", "list"),
        ("groups", "kafka", "describe", "x"),
        ("groups", "kafka", "describe", "x", "--offsets"),
        ("groups", "kafka", "delete", "x", "--force"),
        ("groups", "kafka", "delete", "x", "--dry-run"),
    ):
        failed = run(*arguments)
        assert failed.exit_code == Exit.UNREACHABLE
        assert failed.stderr == "Error: Kafka does not answer (a cannot be reached); see --bootstrap-server.\n"


@pytest.mark.parametrize("arguments", [("describe", "a1", "--offsets"), ("delete", "a1", "--dry-run")], ids=" ".join)
def test_what_groups_are_and_have_is_waited_for_once_and_a_person_is_told_for_whom(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, arguments: tuple[str, ...]
) -> None:
    waited_for: list[str] = []

    @contextmanager
    def noted(bootstrap_servers: str) -> Iterator[None]:
        waited_for.append(bootstrap_servers)
        yield

    monkeypatch.setattr(options, "waiting_for", noted)
    run("groups", "kafka", *arguments, "--bootstrap-server", "a:9092,b:9092")
    assert waited_for == ["a:9092,b:9092"]
    assert cluster.in_flight_max == 2, "so one time-out bounds both"


def test_groups_are_listed(cluster: FakeCluster) -> None:
    listed = run("groups", "kafka", "list")
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["group", "type", "state", "protocol"],
        *([host, "classic", "Stable", "consumer"] for host in "abc"),
    ]
    cluster.servers["c"].is_gone = True
    assert [row["group"] for row in rows("groups", "kafka", "list")] == ["a", "b"]
    failed = run("groups", "kafka", "list")
    assert failed.exit_code == Exit.FAILED
    assert "The groups of c:9092 are not known: c cannot be reached\nError: 1 broker did not list" in failed.stderr


def test_groups_are_described_and_one_that_is_missing_is_exit_code_6(cluster: FakeCluster) -> None:
    described = run("groups", "kafka", "describe", "a1", "b1")
    assert [line.split() for line in described.stdout.splitlines()] == [
        ["group", "type", "state", "protocol", "members", "error"],
        ["a1", "classic", "Stable", "range", "1", "-"],
        ["b1", "classic", "Stable", "range", "1", "-"],
    ]
    cluster.servers["b"].group_error = lambda _: ErrorCode.group_id_not_found
    missing = run("groups", "kafka", "describe", "a1", "b1")
    assert missing.exit_code == Exit.NOT_FOUND
    assert missing.stderr == "Error: b1: GROUP_ID_NOT_FOUND. `holdfast groups kafka list` shows all.\n"
    cluster.servers["a"].group_error = lambda _: ErrorCode.group_authorization_failed
    assert run("groups", "kafka", "describe", "a1", "b1").exit_code == Exit.FAILED


def test_consumer_and_share_groups_are_described_as_what_they_are(cluster: FakeCluster) -> None:
    for server in cluster.servers.values():
        server.group_type = {"a1": "consumer", "b1": "share"}.__getitem__
    described = run("groups", "kafka", "describe", "a1", "b1", "--offsets")
    assert [line.split() for line in described.stdout.splitlines()[:3]] == [
        ["group", "type", "state", "protocol", "members", "error"],
        ["a1", "consumer", "Stable", "simple", "1", "-"],
        ["b1", "share", "Stable", "simple", "1", "-"],
    ]
    assert described.stdout.split()[-4:] == ["a1", "topic", "0", "2"], "a share group commits none"
    assert (
        described.stderr
        == "b1 is a share group and commits no offsets; `holdfast groups describe b1` shows how far it is.\n"
    )
    assert [row["type"] for row in rows("groups", "kafka", "describe", "a1", "b1")] == ["consumer", "share"]
    dry = run("groups", "kafka", "delete", "b1", "--dry-run")
    assert "the delivery state of the share group b1." in dry.stderr


def test_offsets_are_described_on_request(cluster: FakeCluster) -> None:
    (row,) = rows("groups", "kafka", "describe", "a1", "--offsets")
    assert row["offsets"] == [{"topic": "topic", "partition": 0, "offset": 2}]
    assert row["members"] == [{"member_id": "m", "instance_id": None, "client_id": "c", "host": "/h"}]
    assert run("groups", "kafka", "describe", "a1", "--offsets").stdout.split()[-4:] == ["a1", "topic", "0", "2"]


def test_a_dry_run_says_what_a_deletion_would(cluster: FakeCluster) -> None:
    cluster.servers["a"].has_members = False
    dry = run("groups", "kafka", "delete", "a1", "--dry-run")
    assert (dry.exit_code, dry.stderr.splitlines()) == (
        Exit.DONE,
        [
            "Data would go, which wants --force or an answer at a terminal: the offsets of 1 partition that a1 committed.",
            "Nothing was changed (--dry-run).",
        ],
    )
    assert rows("groups", "kafka", "delete", "a1", "b1", "--dry-run") == [
        {"group": "a1", "deleted": False, "error": None},
        {"group": "b1", "deleted": False, "error": "NON_EMPTY_GROUP: it has members"},
    ]
    assert run("groups", "kafka", "delete", "a1", "b1", "--dry-run").exit_code == Exit.FAILED
    cluster.servers["b"].group_error = lambda _: ErrorCode.group_id_not_found
    assert run("groups", "kafka", "delete", "b1", "--dry-run").exit_code == Exit.NOT_FOUND
    assert cluster.requests("DeleteGroups") == []


def test_what_is_not_known_of_a_group_is_a_loss(cluster: FakeCluster) -> None:
    """Else a coordinator that answers late, or an ACL, would let go what there is without a question."""
    cluster.servers["a"].group_error = lambda _: ErrorCode.group_authorization_failed
    loss = "what a1 has, which is not known (GROUP_AUTHORIZATION_FAILED)"
    for arguments, code in ((("--dry-run",), Exit.FAILED), ((), Exit.WRONG_USAGE)):
        refused = run("groups", "kafka", "delete", "a1", *arguments)
        assert (refused.exit_code, loss in refused.stderr) == (code, True)
    assert cluster.requests("DeleteGroups") == []


def test_a_group_of_a_type_that_cannot_be_described_is_not_missing(cluster: FakeCluster) -> None:
    cluster.servers["a"].group_type = lambda _: ""
    cluster.servers["a"].listed = {"a1": "streams"}
    problem = "UNSUPPORTED_VERSION: it is a streams group, and cannot be described here"
    described = run("groups", "kafka", "describe", "a1")
    assert (described.exit_code, described.stdout.splitlines()[1].split()[:3]) == (
        Exit.FAILED,
        ["a1", "streams", "Stable"],
    )
    assert problem in described.stdout
    loss = f"what a1 has, which is not known ({problem})"
    for arguments, code in ((("--dry-run",), Exit.FAILED), ((), Exit.WRONG_USAGE)):
        refused = run("groups", "kafka", "delete", "a1", *arguments)
        assert (refused.exit_code, loss in refused.stderr) == (code, True)
    assert cluster.requests("DeleteGroups") == []
    assert run("groups", "kafka", "describe", "a2").exit_code == Exit.NOT_FOUND
    would_be = rows("groups", "kafka", "delete", "a1", "--dry-run")
    assert would_be == [{"group": "a1", "deleted": False, "error": "NON_EMPTY_GROUP: its state is Stable"}]
    cluster.servers["a"].listed_state = "Empty"
    assert run("groups", "kafka", "delete", "a1", "--dry-run").exit_code == 0


def test_groups_are_deleted_only_with_consent(cluster: FakeCluster) -> None:
    loss = "the offsets of 1 partition that a1 committed"
    refused = run("groups", "kafka", "delete", "a1")
    assert (refused.exit_code, loss in refused.stderr) == (Exit.WRONG_USAGE, True)
    assert cluster.requests("DeleteGroups") == []
    cluster.servers["b"].group_error = lambda group: ErrorCode.non_empty_group if group == "b1" else NONE
    assert rows("groups", "kafka", "delete", "a1", "b1", "--force") == [
        {"group": "a1", "deleted": True, "error": None},
        {"group": "b1", "deleted": False, "error": "NON_EMPTY_GROUP"},
    ]
    assert run("groups", "kafka", "delete", "a1", "b1", "--force").exit_code == Exit.FAILED
