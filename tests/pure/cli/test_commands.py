"""Commands ask the node for what they say, print what it answers, and end with the right exit code."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.records import wire
from holdfast.records.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.keys import SharePartitionKey, format_topic_id
from holdfast.records.results import (
    DeletePartition,
    InitializePartition,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from tests.pure.cli.conftest import PARTITION, TOPIC_ID, Node, Run

NAMED = ("--group", "g:1", "--topic", "orders", "--partition", "0")
BATCHES = (StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(110, 110, AVAILABLE, 2))


def answer_reads(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
    if api_key == wire.SUMMARY:
        return SummaryResult(0, None, 3, 2, 100, 10)
    return ReadResult(0, None, 3, 100, BATCHES)


def test_a_state_is_read_as_a_table_or_as_json(node: Node, run: Run) -> None:
    node.service.answer = answer_reads
    table = run("state", "read", *NAMED)
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["state", "epoch", "3"],
        ["start", "offset", "100"],
        [],
        ["first", "last", "delivery", "state", "delivery", "count"],
        ["100", "109", "acknowledged", "1"],
        ["110", "110", "available", "2"],
    ]
    assert json.loads(run("state", "read", *NAMED, "--json").stdout) == {
        "state_epoch": 3,
        "start_offset": 100,
        "state_batches": [
            {"first_offset": 100, "last_offset": 109, "delivery_state": "acknowledged", "delivery_count": 1},
            {"first_offset": 110, "last_offset": 110, "delivery_state": "available", "delivery_count": 2},
        ],
    }
    assert node.service.requests[0] == (wire.READ, StateRequest("g:1", [(TOPIC_ID, [ReadPartition(0, -1)])]))
    assert (table.stderr, table.exit_code) == ("", Exit.DONE)


def test_a_summary_shows_epochs_offset_and_count(node: Node, run: Run) -> None:
    node.service.answer = answer_reads
    assert json.loads(run("state", "summary", *NAMED, "--json").stdout) == {
        "state_epoch": 3,
        "leader_epoch": 2,
        "start_offset": 100,
        "delivery_complete_count": 10,
    }


@pytest.mark.parametrize(
    ("arguments", "api_key", "asked"),
    [
        (("init", "--state-epoch", "2", "--start-offset", "7"), wire.INITIALIZE, InitializePartition(0, 2, 7)),
        (
            ("write", "--batch", "100-109:acknowledged:1", "--batch", "110:0:2", "--leader-epoch", "4"),
            wire.WRITE,
            WritePartition(0, -1, 4, -1, -1, BATCHES),
        ),
        (("write", "--start-offset", "9"), wire.WRITE, WritePartition(0, -1, -1, 9, -1, ())),
        (("delete",), wire.DELETE, DeletePartition(0)),
    ],
)
def test_a_change_is_announced_then_made_and_with_dry_run_only_announced(
    node: Node, run: Run, arguments: tuple[str, ...], api_key: int, asked: Any
) -> None:
    dry = run("state", *arguments, *NAMED, "--dry-run")
    assert (dry.exit_code, dry.stdout, node.service.requests) == (0, "", [])
    assert "Nothing was changed" in dry.stderr
    done = run("state", *arguments, *NAMED)
    assert node.service.requests == [(api_key, StateRequest("g:1", [(TOPIC_ID, [asked])]))]
    announced = f"Share partition g:1:{format_topic_id(TOPIC_ID)}:0 (orders): "
    assert done.stderr.startswith(announced)
    assert done.stderr.endswith("Done.\n")
    assert done.exit_code == Exit.DONE


def test_a_topic_is_given_by_its_name_or_its_id(node: Node, run: Run) -> None:
    by_id = ("--group", "g", "--topic", format_topic_id(b"\xff" * 16), "--partition", "1")
    assert run("state", "read", *by_id).exit_code == Exit.DONE
    assert node.service.requests[0][1].topics[0][0] == b"\xff" * 16
    unknown = run("state", "read", "--group", "g", "--topic", "payments", "--partition", "1")
    assert unknown.exit_code == Exit.NOT_FOUND
    assert unknown.stderr == (
        "Error: The cluster knows no topic 'payments'; give a name it knows, or the topic's id.\n"
    )


def test_an_error_of_the_coordinator_is_one_sentence_with_the_next_step(node: Node, run: Run) -> None:
    node.service.answer = lambda *_: WriteResult(74, "The leader epoch 1 is below 5.")
    refused = run("state", "write", *NAMED, "--batch", "1:archived:1")
    assert refused.exit_code == Exit.FAILED
    assert refused.stderr.splitlines()[-1] == (
        "Error: FENCED_LEADER_EPOCH (74): The leader epoch 1 is below 5; `holdfast state summary` shows the leader epoch "
        "that is current."
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("state", "write", *NAMED), "nothing to write"),
        (("state", "write", *NAMED, "--batch", "1-2"), "is not FIRST-LAST:STATE:COUNT"),
        (("state", "write", *NAMED, "--batch", "1-2:lost:1"), "available, acknowledged, archived"),
        (("state", "read", *NAMED, "--address", "nowhere"), "is not host:port"),
        (("find", "orders:0"), "is not GROUP:TOPIC:PARTITION"),
        (("serve", "--set", "listen"), "is not NAME=VALUE"),
        (("serve", "--set", "no_such_setting=1", "--set", "kafka.bootstrap.servers=x:1"), "is no setting"),
        (("dump", "t", "--from-time", "yesterday"), "is no time"),
    ],
)
def test_a_wrong_argument_is_named(run: Run, arguments: tuple[str, ...], what: str) -> None:
    result = run(*arguments)
    assert result.exit_code == Exit.WRONG_USAGE
    assert what in result.stderr
    assert result.stdout == ""


def test_a_node_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(main, ["status", "--address", "127.0.0.1:1"])
    assert result.exit_code == Exit.UNREACHABLE
    assert result.stderr.startswith("Error: Nobody can be reached at 127.0.0.1:1")


def test_coordinators_are_found_for_many_keys_at_once(node: Node, run: Run) -> None:
    rows = json.loads(run("find", "g:1:orders:0", "g:1:orders:1", "--json").stdout)
    assert [row["coordinator"] for row in rows] == [node.address] * 2
    assert [row["key"] for row in rows] == [f"g:1:{format_topic_id(TOPIC_ID)}:{partition}" for partition in (0, 1)]
    assert all(0 <= row["log_partition"] < 3 for row in rows)
    node.service.partition_count = 0
    nobody = run("find", "g:1:orders:0")
    assert nobody.exit_code == Exit.FAILED
    assert "COORDINATOR_NOT_AVAILABLE" in nobody.stdout


def test_a_group_id_is_shown_as_it_is_whatever_stands_between_its_colons(run: Run) -> None:
    for group in ("team:100", "jobs:two", "a:b:x"):
        assert f"{group}:{format_topic_id(TOPIC_ID)}:0" in run("find", f"{group}:orders:0").stdout


def test_partitions_are_listed_and_an_alarm_names_its_way_out(run: Run) -> None:
    listed = run("partitions")
    assert listed.stdout.splitlines()[1].split() == ["0", "active", "1", "4", "21", "20", "3", "2"]
    assert listed.stderr.splitlines() == [
        "Partition 1 is failed: records are missing; `holdfast partitions accept 1 --reason …` ends the alarm.",
        "Partitions 2, 3 are closed: node 2 serves it.",
    ]
    assert json.loads(run("partitions", "--json").stdout)[0] == PARTITION
    reasons = run("partitions", "--why-not-pruned").stdout.splitlines()
    assert len(reasons) == 5
    assert reasons[1].endswith("100 of 900 bytes are dead")


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("partitions", "take", "1"), ("partitions-take", {"partition": 1})),
        (
            ("partitions", "accept", "1", "--reason", "restored"),
            ("partitions-accept", {"partition": 1, "reason": "restored"}),
        ),
        (("topics", "accept-deleted", "--reason", "closed"), ("topics-accept-deleted", {"reason": "closed"})),
        (("readers", "drop", "audit", "--reason", "gone"), ("readers-drop", {"group": "audit", "reason": "gone"})),
    ],
)
def test_a_decision_is_announced_then_sent_and_with_dry_run_only_announced(
    node: Node, run: Run, arguments: tuple[str, ...], asked: tuple[str, dict[str, Any]]
) -> None:
    assert "Nothing was changed" in run(*arguments, "--dry-run").stderr
    assert node.asked == []
    assert run(*arguments).stderr.startswith(f"The node at {node.address} will ")
    assert node.asked == [asked]


def test_settings_and_metrics_can_be_narrowed_down(run: Run) -> None:
    assert json.loads(run("settings", "timeout", "--json").stdout) == {"load_timeout_ms": 600_000}
    assert json.loads(run("metrics", "write", "--json").stdout) == {"write-total": 12, "parked-writes": 0}
    assert run("metrics", "total").stdout.split() == ["metric", "value", "write-total", "12"]
    assert json.loads(run("status", "--json").stdout)["is_ready"] is True


def test_the_status_of_a_node_that_is_not_ready_is_exit_code_1_and_the_reason(run: Run, node: Node) -> None:
    assert run("status").exit_code == Exit.DONE
    node.readiness = {"is_ready": False, "why_not_ready": "no broker answers, for 20 s; asked broker 1"}
    for flags in ([], ["--json"]):
        result = run("status", *flags)
        assert result.exit_code == Exit.FAILED
        assert result.stderr == "Error: The node is not ready: no broker answers, for 20 s; asked broker 1.\n"
        assert "0.1.0" in result.stdout
    alive = run("status", "--alive")
    assert (alive.exit_code, alive.stderr) == (Exit.DONE, "")
    assert "no broker answers" in alive.stdout


def test_the_readers_of_the_log_are_listed(run: Run) -> None:
    assert run("readers").stdout.splitlines()[1].split() == ["audit", "silent", "7", "3600000"]
    assert json.loads(run("readers", "--json").stdout)[0]["committed"] == {"0": 5}


@pytest.mark.parametrize("reason", ["", " ", "x" * 1_001, "a lone \udcff surrogate"])
@pytest.mark.parametrize(
    "command", [("partitions", "accept", "1"), ("topics", "accept-deleted"), ("readers", "drop", "a")]
)
def test_a_reason_that_cannot_be_kept_is_refused_before_the_node_is_asked(
    run: Run, command: tuple[str, ...], reason: str
) -> None:
    told = run(*command, "--reason", reason)
    assert told.exit_code == 2
    assert "--reason" in told.stderr
