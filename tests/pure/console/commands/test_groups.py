"""What is held is listed with lag, from a node or from the records of a state topic; what is not known is said to be unknown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click import Option
from click.testing import CliRunner, Result
from hypothesis import given

from holdfast.cli import main
from holdfast.console.commands.groups import list_groups
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_lag import GroupFilter, list_with_lag
from holdfast.console.sources.log_reader import LogEntry
from holdfast.console.sources.log_states import Fold
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.combining import combine
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.group_lag import Place, Row, TopicEnd, with_lag
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update, Value
from tests.installed.terminal import Terminal
from tests.pure.console.conftest import TOPIC_ID, Node, Run
from tests.pure.records.strategies import batch_lists, start_offsets
from tests.waiting import PATIENCE_S, block_until

KEY = SharePartitionKey("workers", TOPIC_ID, 0)
BATCHES = (StateBatch(10, 19, ACKNOWLEDGED, 1), StateBatch(20, 24, AVAILABLE, 2))
STATE = ShareState(0, 1, 3, 10, 10, 0, 0, BATCHES, 3, 1, 0)
GONE_ID = bytes(range(16, 32))


def row(**changes: Any) -> Row:
    return describe_state(KEY, STATE, 7, "1") | changes


def lag(state: Row, end: TopicEnd) -> tuple[int | None, int | None, str | None]:
    found = with_lag(state, end)
    return found["lag"], found["oldest_unfinished_offset"], found["lag_unknown"]


# ---- lag -------------------------------------------------------------------------------------------------------------


def test_lag_is_what_lies_from_the_start_offset_to_the_end_and_is_not_finished() -> None:
    assert lag(row(), TopicEnd("orders", 100)) == (80, 20, None)
    assert lag(row(), TopicEnd("orders", 25)) == (5, 20, None)


@given(start_offset=start_offsets, batches=batch_lists)
def test_lag_and_what_is_finished_are_all_there_is(start_offset: int, batches: list[StateBatch]) -> None:
    state = STATE._replace(start_offset=start_offset, state_batches=combine((), batches, start_offset))
    found = with_lag(describe_state(KEY, state, 0, None), TopicEnd("orders", 60))
    if start_offset < 0:
        assert (found["lag"], found["lag_unknown"]) == (None, "no start offset is decided yet")
    else:
        assert found["lag"] + found["finished"] == 60 - start_offset
        assert found["in_flight"] <= found["lag"]
        assert found["lag_unknown"] is None


def test_without_an_unfinished_record_there_is_no_oldest_one() -> None:
    state = describe_state(KEY, STATE._replace(state_batches=BATCHES[:1]), 7, "1")
    assert lag(state, TopicEnd("orders", 20)) == (0, None, None)
    assert lag(state, TopicEnd("orders", 21)) == (1, 20, None)
    assert lag(state, TopicEnd(None, None, "it is gone")) == (None, None, "it is gone")


def test_a_wrong_lag_is_never_shown() -> None:
    assert lag(row(), TopicEnd(None, None, "no broker answered")) == (None, 20, "no broker answered")
    beyond = lag(row(), TopicEnd("orders", 24))
    assert beyond == (None, 20, "the state goes on beyond the end of the topic's partition")


class Pages:
    """Gives two pages, and notes what it was asked for."""

    def __init__(self, end: TopicEnd) -> None:
        self.told: list[str] = []
        self._end = end

    def pages(self, wanted: GroupFilter) -> Iterator[list[Row]]:
        for _ in range(2):
            self.told.append("states")
            yield [row()]

    def ends(self, places: Collection[Place]) -> Mapping[Place, TopicEnd]:
        self.told.append("ends")
        return dict.fromkeys(places, self._end)

    def gaps(self) -> list[str]:
        return []


def test_ends_are_requested_when_the_states_are_known() -> None:
    source = Pages(TopicEnd("orders", 30))
    assert [[each["lag"] for each in page] for page in list_with_lag(source, GroupFilter())] == [[10], [10]]
    assert source.told == ["states", "ends"] * 2


@pytest.mark.parametrize(("silence_s", "asked"), [(3_600.0, 2), (-1.0, 1)])
def test_who_waited_long_for_nothing_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch, silence_s: float, asked: int
) -> None:
    monkeypatch.setattr("holdfast.console.show.group_lag._SILENCE_S", silence_s)
    source = Pages(TopicEnd(None, None, "no broker answered"))
    unknown = [each["lag_unknown"] for page in list_with_lag(source, GroupFilter()) for each in page]
    assert unknown == ["no broker answered"] * 2
    assert source.told.count("ends") == asked


# ---- of a node -------------------------------------------------------------------------------------------------------


class Held:
    """Answers of a node that gives one share partition a page."""

    def __init__(self, *rows: Row, **ends: int | str) -> None:
        self.rows = rows
        self.ends = {int(partition[1:]): end for partition, end in ends.items()}
        self.not_listed: list[dict[str, Any]] = []

    def page(self, arguments: dict[str, Any]) -> Any:
        rows = [each for each in self.rows if arguments["group"] in (None, each["group"])]
        start = arguments["after"] or 0
        return {
            "share_partitions": rows[start : start + 1],
            "next": start + 1 if start + 1 < len(rows) else None,
            "not_listed": self.not_listed,
        }

    def topic_ends(self, arguments: dict[str, Any]) -> Any:
        def end(partition: int) -> dict[str, Any]:
            reported = self.ends[partition]
            is_known = isinstance(reported, int)
            return {
                "first_offset": 0,
                "end_offset": reported if is_known else -1,
                "problem": None if is_known else reported,
            }

        return {
            topic_id: {
                "name": "orders" if topic_id == format_topic_id(TOPIC_ID) else None,
                "partitions": {str(partition): end(partition) for partition in partitions},
            }
            for topic_id, partitions in arguments["topics"].items()
        }

    def serve(self, node: Node) -> None:
        node.answers |= {"share-partitions": self.page, "topic-ends": self.topic_ends}


@pytest.fixture
def held(node: Node) -> Held:
    gone = row(group="a:b", topic_id=format_topic_id(GONE_ID), partition=5)
    held = Held(gone, row(), row(partition=1, in_flight=7), p0=100, p1=50, p5="the cluster knows no topic of this id")
    held.serve(node)
    return held


def test_groups_are_listed_with_their_sums(run: Run, held: Held) -> None:
    listed = run("groups", "list")
    assert [line.split() for line in listed.stdout.splitlines()[1:]] == [
        ["a:b", "1", "1", "unknown", "5", "2"],
        ["workers", "1", "2", "110", "12", "2"],
    ]
    assert listed.stderr == "The lag of 1 share partition is unknown: the cluster knows no topic of this id.\n"
    assert listed.exit_code == Exit.DONE
    output = json.loads(run("groups", "list", "--json").stdout)
    assert (output[0]["lag"], output[0]["lag_known"]) == (None, 0)
    assert output[0]["lag_unknown"] == {"the cluster knows no topic of this id": 1}
    assert (output[1]["lag"], output[1]["lag_unknown"]) == (110, {})


def test_a_sum_of_which_a_part_is_unknown_says_so(run: Run, held: Held) -> None:
    held.ends[1] = "its leader cannot be reached"
    assert run("groups", "list").stdout.splitlines()[2].split() == ["workers", "1", "2", "at", "least", "80", "12", "2"]


def test_a_group_is_described_partition_by_partition(run: Run, held: Held) -> None:
    output = run("groups", "describe", "workers").stdout.splitlines()
    assert output[:5] == [
        "group             workers",
        "lag               110",
        "in flight         12",
        "share partitions  2 (1 topic)",
        "owners            1",
    ]
    assert [line.split() for line in output[7:]] == [
        ["orders", "0", "10", "20", "100", "80", "5", "2", "(5)"],
        ["orders", "1", "10", "20", "50", "30", "7", "2", "(5)"],
    ]
    nobody = run("groups", "describe", "nobody")
    assert (nobody.exit_code, nobody.stdout) == (Exit.NOT_FOUND, "")
    assert nobody.stderr == "Error: There is no state of the group 'nobody'; `holdfast groups list` shows all.\n"
    misspelled = run("groups", "describe", "workres")
    assert (misspelled.exit_code, misspelled.stdout) == (Exit.NOT_FOUND, "")
    assert misspelled.stderr == "Error: There is no state of the group 'workres'; did you mean 'workers'?\n"


def test_a_watch_needs_a_terminal_and_people_at_it(run: Run, held: Held) -> None:
    for arguments, reason in (
        ((), "--watch draws on a terminal, and standard output is none; leave it out."),
        (("--json",), "--watch draws for people, and --json is for programs; leave one of them out."),
    ):
        refused = run("groups", "describe", "workers", "--watch", *arguments)
        assert (refused.exit_code, refused.stdout, refused.stderr) == (Exit.WRONG_USAGE, "", f"Error: {reason}\n")


def test_a_node_is_watched_on_a_terminal_until_it_is_interrupted(held: Held, node: Node, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, {**os.environ, "PYTHONPATH": os.getcwd(), "HOLDFAST_ADDRESS": node.address})

    def drawn(text: str) -> None:
        block_until(lambda: text in terminal.said(), f"{text!r} on the screen", PATIENCE_S)

    def refuse(arguments: dict[str, Any]) -> Any:
        raise AdminError("The node is busy.")

    try:
        terminal.begin(f"{sys.executable} -m holdfast groups describe workers --watch")
        drawn("lag               110")
        held.ends[0] = 101
        drawn("lag               111")
        node.answers["share-partitions"] = refuse
        drawn("There are no newer numbers: The node is busy.")
        held.serve(node)
        held.ends[0] = 102
        drawn("lag               112")
        terminal.interrupt()
        ended = terminal.wait("the watch")
    finally:
        terminal.close()
    assert ended.code == Exit.DONE
    assert ended.said.splitlines()[-2].split() == ["orders", "0", "10", "20", "102", "82", "5", "2", "(5)"]


def test_states_are_listed_line_by_line(run: Run, held: Held, node: Node) -> None:
    output = run("state", "list")
    assert [line.split()[0] for line in output.stdout.splitlines() if ":" in line] == [
        f"a:b:{format_topic_id(GONE_ID)}:5",
        "workers:orders:0",
        "workers:orders:1",
    ]
    rows = [json.loads(line) for line in run("state", "list", "--group", "workers", "--json").stdout.splitlines()]
    assert rows == [with_lag(row(), TopicEnd("orders", 100)), with_lag(held.rows[2], TopicEnd("orders", 50))]
    assert list(rows[0])[:4] == ["group", "topic", "topic_id", "partition"]
    run("state", "list", "--only-topic", "orders")
    assert node.asked[-2][1]["topic_id"] == format_topic_id(TOPIC_ID)


@pytest.mark.parametrize(("as_json", "lines"), [((), 1), (("--json",), 0)], ids=["table", "json"])
def test_a_filter_that_leaves_nothing_of_a_list_is_no_error(
    run: Run, held: Held, as_json: tuple[str, ...], lines: int
) -> None:
    listed = run("state", "list", "--group", "nobody", *as_json)
    assert (listed.exit_code, listed.stderr) == (Exit.DONE, "0 share partitions.\n")
    assert len(listed.stdout.splitlines()) == lines, "of the table there is its head"


def test_what_the_node_does_not_serve_is_missing_and_said_to_be(run: Run, held: Held) -> None:
    held.not_listed = [{"log_partition": 3, "state": "loading", "why": None}]
    output = run("groups", "list")
    assert output.exit_code == Exit.FAILED
    assert "workers" in output.stdout
    assert "The state in log partition 3 is missing, because the node does not serve it (3: loading)" in output.stderr


def test_a_node_that_cannot_query_ends_leaves_the_lag_unknown(run: Run, held: Held, node: Node) -> None:
    def refuse(arguments: dict[str, Any]) -> Any:
        raise AdminError("Too many others wait.")

    node.answers["topic-ends"] = refuse
    output = run("groups", "describe", "workers")
    assert output.exit_code == Exit.DONE
    assert "The lag of 2 share partitions is unknown" in output.stderr
    assert "Too many others wait." in output.stderr


# ---- of a log --------------------------------------------------------------------------------------------------------

SNAPSHOT = Snapshot(0, 1, 0, 10, 0, 5, 5, (), 0, 1)
UPDATE = Update(0, 3, -1, 10, BATCHES)


def entry(
    value: Value | Checkpoint, *, offset: int = 0, partition: int = 0, is_kafkas: bool = False, **changes: Any
) -> LogEntry:
    kind = {Snapshot: "snapshot", Update: "update", Checkpoint: "checkpoint"}.get(type(value), "tombstone")
    about = None if kind == "checkpoint" else KEY
    epoch, sequence = (None, None) if is_kafkas else (1, offset)
    entry = LogEntry(partition, offset, 0, kind, "avro", True, epoch, sequence, 0, about, value, None)
    return entry._replace(**changes)


def fold(*entries: LogEntry, group: str | None = None, topic_id: bytes | None = None) -> tuple[list[Row], list[str]]:
    folded = Fold("log")
    return list(folded.rows(iter(entries), {0: 4, 1: -1}, group, topic_id)), list(folded.gaps())


CHECKPOINT = Checkpoint(1, bytes(16), "7", 3, "cluster", bytes(16), 1, None)


def test_records_that_count_are_replayed_and_the_owner_is_whom_the_last_checkpoint_names() -> None:
    records = entry(CHECKPOINT), entry(SNAPSHOT), entry(UPDATE), entry(None, counts=False)
    state = STATE._replace(leader_epoch_fence=3)
    assert fold(*records) == ([describe_state(KEY, state, 0, "7")], [])
    assert fold(*records, entry(None)) == ([], [])
    assert fold(*records, group="others") == fold(*records, topic_id=GONE_ID) == ([], [])


def test_the_owner_of_what_a_broker_wrote_is_who_leads_its_log_partition() -> None:
    led, unled = (entry(SNAPSHOT, partition=partition, is_kafkas=True) for partition in (0, 1))
    assert [each["owner"] for each in fold(led, unled)[0]] == ["4", None]


def test_an_update_without_its_snapshot_is_taken_as_kafka_does_in_kafkas_topic_alone() -> None:
    [kafkas], gaps = fold(entry(UPDATE._replace(start_offset=10), is_kafkas=True))
    assert (kafkas["finished"], kafkas["state_epoch"], gaps) == (10, 0, [])
    rows, [gap] = fold(entry(CHECKPOINT), entry(UPDATE, offset=8))
    assert rows == []
    assert gap.startswith("1 record of log change a state whose snapshot is not in the log, the first at offset 8 of")


def test_a_record_that_cannot_be_read_leaves_a_gap_that_is_reported() -> None:
    damaged = entry(None, offset=9, kind="undecodable", key=None, problem="it is broken")
    rows, [gap] = fold(entry(CHECKPOINT), entry(SNAPSHOT), damaged, damaged)
    assert len(rows) == 1
    assert gap.startswith(
        "2 records of log cannot be decoded, the first at offset 9 of log partition 0; `holdfast dump log`"
    )


@pytest.mark.parametrize("kind", ["undecodable", "unknown"])
def test_a_users_topic_is_not_read_as_if_it_held_states(kind: str) -> None:
    with pytest.raises(Failure, match=r"log is no state topic: .* --only-topic lists those") as refused:
        fold(entry(None, kind=kind, key=None), entry(SNAPSHOT))
    assert refused.value.exit_code == Exit.WRONG_USAGE


def test_the_option_for_a_state_topic_says_how_it_differs_from_that_for_a_users_topic() -> None:
    helps = {option.name: option.help or "" for option in list_groups.params if isinstance(option, Option)}
    assert "__share_group_state" in helps["read_topic"]
    assert "Only the share partitions of this topic" in helps["only_topic"]


# ---- of which of them ------------------------------------------------------------------------------------------------

BROKERS = ("--bootstrap-server", "b:1")
COMMANDS = pytest.mark.parametrize(
    "command", [("groups", "list"), ("groups", "describe", "workers"), ("state", "list")], ids=" ".join
)


@pytest.fixture
def logs_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Brokers and topic of each log that is read; None: the topic that they have."""
    read: list[tuple[str, str | None]] = []

    class Log(Pages):
        def __init__(self, properties: Mapping[str, str], topic: str | None) -> None:
            super().__init__(TopicEnd("orders", 100))
            read.append((properties["bootstrap.servers"], topic))

    monkeypatch.setattr("holdfast.console.commands.groups.LogSource", Log)
    return read


@COMMANDS
def test_brokers_that_are_named_are_read_and_no_node_is_queried(
    node: Node, logs_read: list[tuple[str, str | None]], command: tuple[str, ...]
) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, (*command, *arguments), env={"HOLDFAST_ADDRESS": node.address})

    assert run(*BROKERS).exit_code == run(*BROKERS, "--topic", "t").exit_code == run("--topic", "t").exit_code == 0
    assert logs_read == [("b:1", None), ("b:1", "t"), ("127.0.0.1:9092", "t")]
    assert node.asked == []


@COMMANDS
def test_brokers_of_the_environment_alone_leave_it_at_the_node(
    node: Node, held: Held, logs_read: list[tuple[str, str | None]], command: tuple[str, ...]
) -> None:
    variables = {"HOLDFAST_ADDRESS": node.address, "HOLDFAST_KAFKA_BOOTSTRAP_SERVERS": "b:1"}
    assert CliRunner().invoke(main, command, env=variables).exit_code == 0
    assert logs_read == []


@COMMANDS
@pytest.mark.parametrize("named", [BROKERS, ("--topic", "t")], ids=["brokers", "topic"])
def test_a_node_and_brokers_are_not_both_named(
    logs_read: list[tuple[str, str | None]], command: tuple[str, ...], named: tuple[str, str]
) -> None:
    for arguments in ((*command, "--address", "n:1", *named), ("--address", "n:1", *command, *named)):
        refused = CliRunner().invoke(main, arguments)
        assert (refused.exit_code, refused.stderr) == (
            Exit.WRONG_USAGE,
            f"Error: --address names a node, and {named[0]} a Kafka to read instead of one; leave one of them out.\n",
        )
    assert logs_read == []
