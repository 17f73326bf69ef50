"""Commands ask the node for what they say, print what it answers, and end with the right exit code."""

import json
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.api import share_state
from holdfast.api.results import (
    PartitionResult,
    ReadResult,
    SummaryResult,
)
from holdfast.cli import main
from holdfast.console.commands import node as node_commands
from holdfast.console.outcomes import Exit
from holdfast.console.sources.group_nodes import Answers
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.records.share.replay import ShareState
from tests.pure.console.conftest import PARTITION, TOPIC_ID, Node, Run

NAMED = ("--group", "g:1", "--topic", "orders", "--partition", "0")
BATCHES = (StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(110, 110, AVAILABLE, 2))


def answer_reads(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
    if api_key == share_state.SUMMARY:
        return SummaryResult(0, None, 3, 2, 100, 10)
    return ReadResult(0, None, 3, 100, BATCHES)


def previewed(state_batches: tuple[StateBatch, ...] = ()) -> dict[str, Any]:
    """Return what a node answers to the preview of a Read."""
    state = ShareState(0, 3, 2, 100, 10, 0, 0, state_batches, 5, 3, 1)._asdict()
    return {"before": state, "after": state, "error": None}


def test_a_state_is_read_as_a_table_or_as_json(node: Node, run: Run) -> None:
    node.answers["state-preview"] = lambda _: previewed(BATCHES)
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
    place = {"group": "g:1", "topic_id": format_topic_id(TOPIC_ID), "partition": 0}
    # Of a Read with the leader epoch that is current, which raises none.
    assert ("state-preview", {"call": "read", **place, "leader_epoch": -1}) in node.asked
    assert node.service.requests == []
    assert (table.stderr, table.exit_code) == ("", Exit.DONE)


def test_a_summary_shows_epochs_offset_and_count(node: Node, run: Run) -> None:
    node.service.answer = answer_reads
    assert json.loads(run("state", "summary", *NAMED, "--json").stdout) == {
        "state_epoch": 3,
        "leader_epoch": 2,
        "start_offset": 100,
        "delivery_complete_count": 10,
    }


def test_a_topic_is_given_by_its_name_or_its_id(node: Node, run: Run) -> None:
    node.answers["state-preview"] = lambda _: previewed()
    topic_id = format_topic_id(b"\xff" * 16)
    by_id = ("--group", "g", "--topic", topic_id, "--partition", "1")
    assert run("state", "read", *by_id).exit_code == Exit.DONE
    assert [asked["topic_id"] for name, asked in node.asked if name == "state-preview"] == [topic_id]
    unknown = run("state", "read", "--group", "g", "--topic", "payments", "--partition", "1")
    assert unknown.exit_code == Exit.NOT_FOUND
    assert unknown.stderr == (
        "Error: The cluster knows no topic 'payments'; give a name it knows, or the topic's id.\n"
    )


def test_an_error_of_the_coordinator_is_one_sentence_with_the_next_step(node: Node, run: Run) -> None:
    error = {"code": 74, "message": "The leader epoch 1 is below 5."}
    node.answers["state-preview"] = lambda _: previewed() | {"error": error}
    refused = run("state", "read", *NAMED, "--leader-epoch", "1")
    assert refused.exit_code == Exit.FAILED
    assert refused.stderr == (
        "Error: FENCED_LEADER_EPOCH (74): The leader epoch 1 is below 5; `holdfast state summary` shows the leader epoch "
        "that is current.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("state", "write", *NAMED), "nothing to write"),
        (("state", "write", *NAMED, "--batch", "1-2"), "is not FIRST-LAST:STATE:COUNT"),
        (("state", "write", *NAMED, "--batch", "1-2:lost:1"), "available, acknowledged, archiving, archived"),
        (("state", "read", *NAMED, "--address", "nowhere"), "is not host:port"),
        (
            ("state", "write", *NAMED, "--batch", "0-9:acknowledged:99999"),
            "'--batch': '0-9:acknowledged:99999': its delivery",
        ),
        (("state", "write", *NAMED, "--batch", f"0-{1 << 63}:archived:1"), f"the largest offset is {(1 << 63) - 2}"),
        (("state", "write", *NAMED, "--batch", "9-0:archived:1"), "its last offset is below its first"),
        (
            ("state", "write", *NAMED, "--batch", "0-9:1:1"),
            "it is one of 0 (available), 2 (acknowledged), 3 (archiving), 4 (archived)",
        ),
        (("state", "write", *NAMED, "--state-epoch", str(1 << 31)), "'--state-epoch': 2147483648 is not in the range"),
        (
            ("state", "write", *NAMED, "--leader-epoch", str(1 << 31)),
            "'--leader-epoch': 2147483648 is not in the range",
        ),
        (
            ("state", "write", *NAMED, "--start-offset", str(1 << 63)),
            "'--start-offset': '9223372036854775808' is no offset: give a number from 0, -1, `earliest` or `latest`",
        ),
        (
            ("state", "write", *NAMED, "--delivery-complete-count", str(1 << 31)),
            "'--delivery-complete-count': 2147483648",
        ),
        (("state", "init", *NAMED, "--state-epoch", str(1 << 31)), "'--state-epoch': 2147483648 is not in the range"),
        (
            ("state", "init", *NAMED, "--start-offset", str(1 << 63)),
            "'--start-offset': '9223372036854775808' is no offset: give a number from 0, -1, `earliest` or `latest`",
        ),
        (("state", "read", *NAMED, "--leader-epoch", str(1 << 31)), "'--leader-epoch': 2147483648 is not in the range"),
        (("state", "read", *NAMED, "--partition", str(1 << 31)), "'--partition': 2147483648 is not in the range"),
        (("find", "orders:0"), "is not GROUP:TOPIC:PARTITION"),
        (("find", f"g:orders:{'9' * 5_000}"), "the largest is 2147483647"),
        (("state", "write", *NAMED, "--batch", f"{'9' * 5_000}:archived:1"), "is not FIRST-LAST:STATE:COUNT"),
        (("state", "write", *NAMED, "--batch", f"1:{'9' * 5_000}:1"), "is not FIRST-LAST:STATE:COUNT"),
        (("dump", "t", "--from-time", "9" * 5_000), "is no time"),
        (("find", f"g:orders:{1 << 31}"), "names partition 2147483648; the largest is 2147483647"),
        (("serve", "--set", "listen"), "is not NAME=VALUE"),
        (("serve", "--set", "no_such_setting=1", "--set", "kafka.bootstrap.servers=x:1"), "is no setting"),
        (("dump", "t", "--from-time", "yesterday"), "is no time"),
        (("dump", "t", "--limit", str(1 << 63)), "'--limit': 9223372036854775808 is not in the range"),
        (("dump", "t", "--from-offset", str(1 << 63)), "'--from-offset': 9223372036854775808 is not in the range"),
        (("dump", "t", "--partition", str(1 << 31)), "'--partition': 2147483648 is not in the range"),
        (("history", "g", "t", str(1 << 31), "--history-dir", "h"), "'[PARTITION]': 2147483648 is not in the range"),
        (("history", "g", "t", "0", "--offset", str(1 << 63)), "'--offset': 9223372036854775808 is not in the range"),
        (("snapshots", "list", str(1 << 31)), "2147483648 is not in the range"),
        (
            ("snapshots", "show", "g:t:0", "--at-offset", str(1 << 63)),
            "'--at-offset': 9223372036854775808 is not in the",
        ),
        (("partitions", "take", str(1 << 31)), "'PARTITION': 2147483648 is not in the range"),
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
    assert result.stderr.startswith("Error: No server can be reached at 127.0.0.1:1")


def test_an_address_may_stand_before_the_command_as_well(node: Node) -> None:
    elsewhere = CliRunner(env={"HOLDFAST_ADDRESS": "127.0.0.1:1"})
    node.before, node.after = {"state": "silent"}, {"state": "dropped"}
    for command in (["status"], ["partitions"], ["readers", "drop", "audit", "--reason", "gone"]):
        assert elsewhere.invoke(main, ["--address", node.address, *command]).exit_code == Exit.DONE
    both = elsewhere.invoke(main, ["--address", "127.0.0.1:2", "status", "--address", node.address])
    assert both.exit_code == Exit.DONE, both.stderr
    assert "127.0.0.1:1 " in elsewhere.invoke(main, ["status"]).stderr


def _status(status: Any, placement: str | None, arguments: dict[str, Any]) -> object:
    return {**status(arguments), "placement": placement}


def test_coordinators_are_found_for_many_keys_at_once(node: Node, run: Run) -> None:
    rows = json.loads(run("find", "g:1:orders:0", "g:1:orders:1", "--json").stdout)
    assert [row["coordinator"] for row in rows] == [node.address] * 2
    assert [row["key"] for row in rows] == [f"g:1:{format_topic_id(TOPIC_ID)}:{partition}" for partition in (0, 1)]
    assert all(0 <= row["log_partition"] < 3 for row in rows)
    keys = [SharePartitionKey("g:1", TOPIC_ID, partition) for partition in (0, 1)]
    assert [row["log_partition"] for row in rows] == [log_partition(key, 3) for key in keys], "of an older node"
    status = node.answers["status"]
    for placement in (*Placement, None):
        shown = None if placement is None else placement.value
        node.answers["status"] = partial(_status, status, shown)
        rows = json.loads(run("find", "g:1:orders:0", "g:1:orders:1", "--json").stdout)
        assert [row["log_partition"] for row in rows] == [
            None if placement is None else log_partition(key, 3, placement) for key in keys
        ]
    some = run("find", "g:orders:0", "g:payments:0", "g:orders:1")
    assert (some.exit_code, some.stderr.startswith("Error: There is no such topic;")) == (Exit.NOT_FOUND, True)
    assert [line.split()[:2] for line in some.stdout.splitlines()[1:]] == [
        ["g:orders:0", node.address],
        ["g:payments:0", "-"],
        ["g:orders:1", node.address],
    ]
    assert "UNKNOWN_TOPIC_OR_PARTITION: The cluster knows no topic 'payments'" in some.stdout
    node.service.partition_count = 0
    assert run("find", "g:orders:0", "g:payments:0").exit_code == Exit.FAILED
    nobody = run("find", "g:1:orders:0")
    assert nobody.exit_code == Exit.FAILED
    assert "COORDINATOR_NOT_AVAILABLE" in nobody.stdout


@pytest.mark.parametrize(
    ("group", "shown"),
    [
        ("team:100", "team:100"),
        ("jobs:x:", "jobs:x:"),
        ("[red]x[/red]:100:", "[red]x[/red]:100:"),
        ("clear\x1b[2Jscreen", "clear\\x1b[2Jscreen"),
        ("two\nlines", "two\\nlines"),
    ],
)
def test_a_group_id_is_shown_as_it_is_but_for_what_would_act_on_a_terminal(
    node: Node, run: Run, group: str, shown: str
) -> None:
    node.answers["state-preview"] = lambda _: {"before": None, "after": None, "error": None}
    assert run("find", f"{group}:orders:0").stdout.splitlines()[1].startswith(f"{shown}:orders:0 ")
    deleted = run("state", "delete", "--group", group, "--topic", "orders", "--partition", "0")
    assert deleted.stderr.startswith(f"Error: The share partition {shown}:")
    assert deleted.stderr.removesuffix("\n").isprintable()


def test_members_are_listed_with_what_each_has(node: Node, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = {
        "node_id": 1,
        "address": "a:9492",
        "member_id": "m-1",
        "is_leader": True,
        "state": "stable",
        "generation": 6,
    }
    absent = {"node_id": 2, "address": None, "member_id": None, "is_leader": False, "state": "absent", "generation": 6}
    rows: list[dict[str, object]] = [
        leader | {"log_partitions": [0, 2], "duties": ["compaction"]},
        absent | {"log_partitions": [1], "duties": []},
    ]
    node.answers["members"] = lambda _: rows
    said = {"heartbeat_age_ms": 1_240, "config_offset": 7, "group_instance_id": "here"}
    node.answers["status"] = lambda _: {"version": "0.1.0", **node.readiness, "membership": said}
    monkeypatch.setenv("COLUMNS", "200")
    listed = run("members")
    assert [" ".join(line.split()) for line in listed.stdout.splitlines()] == [
        "node id address state ready version log partitions duties",
        "1 a:9492 stable yes 0.1.0 0, 2 compaction",
        "2 - absent unknown: it is absent - 1 -",
    ]
    assert listed.stderr == "1 of 2 nodes is ready; node 2 is absent.\n"
    assert [" ".join(line.split()) for line in run("members", "--wide").stdout.splitlines()] == [
        "node id address state leader ready version generation last heartbeat config offset log partitions duties member id instance id",
        "1 a:9492 stable yes yes 0.1.0 6 1.2 s ago 7 0, 2 compaction m-1 here",
        "2 - absent - unknown: it is absent - 6 unknown: it is absent unknown: it is absent 1 - - -",
    ]
    assert run("members", "--wide", "--json").stdout == run("members", "--json").stdout
    reasons = {f"{name}_unknown": None for name in ("is_ready", "heartbeat_age_ms", "config_offset")}
    nothing = dict.fromkeys(("is_ready", "version", *said))
    assert json.loads(run("members", "--json").stdout) == [
        rows[0] | {"is_ready": True, "version": "0.1.0"} | said | reasons,
        rows[1] | nothing | dict.fromkeys(reasons, "it is absent"),
    ]


@pytest.mark.parametrize(
    ("state", "said", "age_unknown", "offset_unknown"),
    [
        ("stable", {"heartbeat_age_ms": 5, "config_offset": -1}, None, "it has read no value"),
        ("rejoining", {"heartbeat_age_ms": None, "config_offset": 0}, "it has not joined", None),
        ("static", {"heartbeat_age_ms": None, "config_offset": None}, *["it is no member of a group"] * 2),
        ("stable", None, *["it does not say"] * 2),
    ],
)
def test_what_is_not_known_of_a_member_is_no_number_and_has_a_reason(
    node: Node, run: Run, state: str, said: Any, age_unknown: str | None, offset_unknown: str | None
) -> None:
    member = {"node_id": 1, "address": "a:9492", "member_id": "m", "is_leader": True, "state": state, "generation": 6}
    node.answers["members"] = lambda _: [member | {"log_partitions": [0], "duties": []}]
    said = said and {**said, "group_instance_id": None}
    node.answers["status"] = lambda _: {"version": "0.1.0", **node.readiness, "membership": said}
    [row] = json.loads(run("members", "--json").stdout)
    known = ((row["heartbeat_age_ms"] is None), row["config_offset"] is None)
    assert (row["heartbeat_age_ms_unknown"], row["config_offset_unknown"]) == (age_unknown, offset_unknown)
    assert known == (age_unknown is not None, offset_unknown is not None)
    shown = run("members", "--wide").stdout
    assert all(f"unknown: {why}" in shown for why in (age_unknown, offset_unknown) if why)


def test_an_alarm_that_names_its_way_out_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = "the log lost its end; `holdfast partitions accept 0 --reason …` goes on with what is there"
    row = PARTITION | {"state": "failed", "failure": failure, "is_alarmed": True}
    monkeypatch.setattr(node_commands, "query_all", lambda *_: Answers([], []))
    monkeypatch.setattr(node_commands, "merge_partitions", lambda _: [row])
    assert CliRunner().invoke(main, ["partitions"]).stderr.splitlines() == [
        "0 of 1 log partition serve; 0 is failed; an alarm is on for 0.",
        f"Partition 0 is failed: {failure}.",
    ]


@pytest.mark.parametrize(
    ("rows", "readiness", "first_line"),
    [
        ([PARTITION], {"is_ready": True}, "1 of 1 log partition serves, and no alarm is on."),
        (
            [PARTITION, PARTITION | {"partition": 1}],
            {"is_ready": False, "why_not_ready": "broker 1 is silent"},
            "2 of 2 log partitions are active; node 1 is not ready: broker 1 is silent.",
        ),
        (
            [PARTITION, PARTITION | {"partition": 1, "state": "loading"}],
            {"is_ready": False, "why_not_ready": "log partition 1 loads"},
            "1 of 2 log partitions serves; 1 is loading.",
        ),
        (
            [PARTITION | {"is_alarmed": True, "failure": "its end is lost"}],
            {"is_ready": True},
            "1 of 1 log partition serves; an alarm is on for 0.",
        ),
        (
            [],
            {"is_ready": False, "why_not_ready": "the node starts"},
            "The node starts, and knows no log partitions yet.",
        ),
    ],
)
def test_partitions_say_first_whether_all_is_well(
    node: Node, run: Run, rows: list[dict[str, Any]], readiness: dict[str, Any], first_line: str
) -> None:
    node.answers["partitions"] = lambda _: rows
    node.readiness = readiness
    assert run("partitions").stderr.splitlines()[0] == first_line
    assert run("partitions", "--json").stderr == ""


@pytest.mark.parametrize(
    ("states", "first_line"),
    [
        (["stable", "member"], "2 of 2 nodes are ready."),
        (["rejoining"], "1 of 1 node is ready; the group divides the log again."),
        ([], "The node knows no members: it is not in its group, as at a start or while Kafka does not answer."),
    ],
)
def test_members_say_first_whether_all_is_well(node: Node, run: Run, states: list[str], first_line: str) -> None:
    member = {"member_id": "m", "is_leader": False, "generation": 6, "log_partitions": [], "duties": []}
    node.answers["members"] = lambda _: [
        member | {"node_id": number, "address": node.address, "state": state} for number, state in enumerate(states)
    ]
    assert run("members").stderr.splitlines() == [first_line]
    assert run("members", "--json").stderr == ""


def test_wide_partitions_have_every_number_and_why_not_pruned_has_its_own(run: Run) -> None:
    assert run("partitions", "--wide").stdout.splitlines()[1].split() == [
        *("0", "active", "1", "n:1", "4", "6", "21", "20", "3", "2")
    ]
    assert run("partitions", "--wide", "--json").stdout == run("partitions", "--json").stdout
    assert run("partitions", "--wide", "--why-not-pruned").exit_code == Exit.WRONG_USAGE


def test_partitions_are_listed_and_an_alarm_names_its_way_out(run: Run) -> None:
    listed = run("partitions")
    assert [line.split() for line in listed.stdout.splitlines()[:2]] == [
        ["partition", "state", "owner", "address"],
        ["0", "active", "1", "n:1"],
    ]
    assert listed.stderr.splitlines() == [
        "1 of 4 log partitions serves; 1 is failed; 2, 3 are closed; an alarm is on for 1.",
        "Partition 1 is failed: records are missing; the page Alarms and alerts says what ends it.",
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
def test_a_decision_is_shown_then_sent_and_with_dry_run_only_shown(
    node: Node, run: Run, arguments: tuple[str, ...], asked: tuple[str, dict[str, Any]]
) -> None:
    command, decided = asked
    if command == "readers-drop":
        node.before, node.after = {"state": "silent"}, {"state": "dropped"}
    preview = ("decision-preview", {"decision": command, **decided})
    decision = (command, {**decided, "run_id": "r"})
    dry = run(*arguments, "--dry-run", "--json")
    assert [each for each in node.asked if each[0] != "members"] == [preview]
    node.asked.clear()
    assert dry.stderr.startswith(f"The node at {node.address} will ")
    assert dry.stderr.splitlines()[1] == f"  state: {node.before['state']} → {node.after['state']}"
    assert dry.stderr.splitlines()[-1] == "Nothing was changed (--dry-run)."
    reports = {"before": node.before, "after": node.after, "changed": False, "dry_run": True, "data_lost": []}
    assert json.loads(dry.stdout) == reports
    done = run(*arguments)
    assert node.asked[:2] == [preview, decision]
    assert done.stderr.splitlines()[-1].startswith("Done: ")
    assert done.exit_code == Exit.DONE
    node.data_lost = ["what it holds"]
    refused = run(*arguments)
    assert (refused.exit_code, node.asked[-1]) == (Exit.WRONG_USAGE, preview)
    assert "Data goes: what it holds.\n" in refused.stderr
    node.asked.clear()
    assert run(*arguments, "--force").exit_code == Exit.DONE
    assert decision in node.asked


def test_a_reader_that_is_not_registered_is_exit_code_6(node: Node, run: Run) -> None:
    def refuse(_: object) -> object:
        raise AdminError("No group 'audti' is registered; registered are audit.", ErrorCode.GROUP_ID_NOT_FOUND)

    node.answers["decision-preview"] = refuse
    refused = run("readers", "drop", "audti", "--reason", "gone", "--dry-run")
    assert refused.exit_code == Exit.NOT_FOUND
    assert refused.stderr.endswith("Error: No group 'audti' is registered; registered are audit.\n")


def test_after_a_decision_what_is_there_is_reported(node: Node, run: Run) -> None:
    taken = run("partitions", "take", "1", "--json")
    assert taken.stderr.splitlines()[-1] == "Done: it is being taken. Now: state failed, owner 1."
    assert json.loads(taken.stdout)["after"] == {"state": "failed", "owner": "1"}
    node.before = node.after
    same = run("partitions", "take", "1")
    assert (same.exit_code, same.stderr.splitlines()[-1]) == (Exit.DONE, "Nothing changed: it is so already.")
    assert node.asked[-1][0] == "decision-preview"


def test_a_load_is_waited_for_so_long(node: Node, run: Run) -> None:
    node.partitions[1]["state"] = "loading"
    early = run("partitions", "take", "1", "--wait-ms", "0")
    assert early.stderr.endswith("Now: state loading, owner 1.\n")
    looks = 0

    def loaded(_: object) -> object:
        nonlocal looks
        looks += 1
        node.partitions[1]["state"] = "loading" if looks < 3 else "active"
        return node.partitions

    node.answers["partitions"] = loaded
    assert run("partitions", "take", "1").stderr.endswith("Now: state active, owner 1.\n")
    assert looks == 3


def test_settings_and_metrics_can_be_narrowed_down(run: Run) -> None:
    assert json.loads(run("settings", "timeout", "--json").stdout) == {"load_timeout_ms": 600_000}
    assert json.loads(run("metrics", "total", "--json").stdout) == {"holdfast_writes_total": 5_015}
    assert run("metrics", "total").stdout.split() == ["metric", "value", "holdfast_writes_total", "5015"]
    assert json.loads(run("status", "--json").stdout)["is_ready"] is True


def test_numbers_are_numbers_and_measured_ones_have_no_digits_that_say_nothing(run: Run) -> None:
    assert run("metrics").stdout.splitlines() == [
        "metric                              value",
        "holdfast_parked_writes                  0",
        "holdfast_write_latency_seconds_p50   0.18",
        "holdfast_write_latency_seconds_p99      6",
        "holdfast_writes_total                5015",
    ]
    output = run("metrics", "--json").stdout
    assert '"holdfast_write_latency_seconds_p50": 0.18,' in output
    assert '"holdfast_write_latency_seconds_p99": 6,' in output
    assert run("settings").stdout.splitlines() == [
        "setting          value",
        "load_timeout_ms  600000",
        "codec            avro",
        "node_id               1",
        "compaction.run   false",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("metrics", "wirte"), "No metric has 'wirte' in its name; did you mean write or writes?"),
        (("metrics", "nosuch", "--json"), "No metric has 'nosuch' in its name; `holdfast metrics` shows all of them."),
        (("settings", "tiemout"), "No setting has 'tiemout' in its name; did you mean timeout?"),
    ],
)
def test_a_name_that_no_setting_or_metric_has_is_an_error_that_names_those_like_it(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (Exit.NOT_FOUND, "", f"Error: {told}\n")


def test_the_status_of_a_node_that_is_not_ready_is_exit_code_1_and_the_reason(run: Run, node: Node) -> None:
    assert run("status").exit_code == Exit.DONE
    node.readiness = {"is_ready": False, "why_not_ready": "no broker answers, for 20 s; queried broker 1"}
    for flags in ([], ["--json"]):
        result = run("status", *flags)
        assert result.exit_code == Exit.FAILED
        assert result.stderr == "Error: The node is not ready: no broker answers, for 20 s; queried broker 1.\n"
        assert "0.1.0" in result.stdout
    alive = run("status", "--alive")
    assert (alive.exit_code, alive.stderr) == (Exit.DONE, "")
    assert "no broker answers" in alive.stdout


def test_the_status_names_the_node_that_took_over(run: Run, node: Node) -> None:
    winner = {"node_id": "2", "advertised_address": "node-2.example:9492", "log_partitions": [0, 1]}
    node.readiness = {"is_ready": False, "why_not_ready": "it was superseded", "superseded_by": [winner]}
    facts = [line.split(maxsplit=2) for line in run("status").stdout.splitlines()]
    assert ["superseded", "by", "node 2 at node-2.example:9492"] in facts
    assert json.loads(run("status", "--json").stdout)["superseded_by"] == [winner]


def test_the_readers_of_the_log_are_listed_and_what_their_states_mean(run: Run) -> None:
    output = run("readers")
    assert [line.split() for line in output.stdout.splitlines()[1:]] == [
        ["audit", "silent", "7", "3600000"],
        ["job", "not", "started", "-", "10"],
    ]
    assert output.stderr.splitlines() == [
        "audit has records to read and does not move; it holds the log until it does, or `holdfast readers drop` drops it.",
        "job is the job of `holdfast compact`, which a node can do without; it has not run yet, and holds nothing.",
    ]
    assert json.loads(run("readers", "--json").stdout)[0]["committed"] == {"0": 5}


@pytest.mark.parametrize("reason", ["", " ", "x" * 1_001, "a lone \udcff surrogate"])
@pytest.mark.parametrize(
    "command", [("partitions", "accept", "1"), ("topics", "accept-deleted"), ("readers", "drop", "a")]
)
def test_a_reason_that_cannot_be_kept_is_refused_before_the_node_is_queried(
    run: Run, command: tuple[str, ...], reason: str
) -> None:
    output = run(*command, "--reason", reason)
    assert output.exit_code == 2
    assert "--reason" in output.stderr
