"""The past is told from the history: the state at an instant, the story of an offset, and what changed in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.console.sources.history_files import HistoryFiles
from holdfast.console.sources.history_log import HistoryLog
from holdfast.console.sources.history_states import (
    DAY_MS,
    HistoryGap,
    KeyFilter,
    KnownState,
    LogChange,
    OffsetHistory,
    StatesAt,
    Status,
)
from holdfast.history.place import HistoryPlace
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.page.source import HISTORY, LOG
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Update, Value
from tests.pure.console.history_writer import (
    BEGIN_MS,
    SNAPSHOT,
    Stamped,
    changes_of,
    gap_row,
    record,
    rows_of,
    stamp,
    write_batch,
)
from tests.pure.records.logs import KEYS, LOG_PARTITION, STATE_TOPIC_ID, UNCUT, LogWriter, logs

# ---- states ----------------------------------------------------------------------------------------------------------


def replay_all(changes: Sequence[LogChange]) -> dict[SharePartitionKey, ShareState]:
    states: dict[SharePartitionKey, ShareState] = {}
    for change in changes:
        state = replay(states.pop(change.key, None), change.value, 1 << 31)
        if state is not None:
            states[change.key] = state
    return states


def live(known: dict[SharePartitionKey, KnownState]) -> dict[SharePartitionKey, ShareState | None]:
    return {key: each.state for key, each in known.items() if each.status is Status.LIVE}


@given(logs(UNCUT), st.integers(-60, 300), st.randoms(use_true_random=False))
def test_the_state_at_an_instant_is_that_after_the_newest_of_its_own_changes_that_is_no_later(
    log: LogWriter, after_s: int, random: Random
) -> None:
    changes = changes_of(rows_of(LOG_PARTITION, stamp(log, random)))
    time_ms = BEGIN_MS + after_s * 1_000
    for instant_ms in (None, time_ms):
        states = StatesAt(instant_ms)
        for change in changes:
            states.take(change)
        expected = []
        for key in KEYS:
            own = [change for change in changes if change.key == key]
            until = max(
                (index for index, change in enumerate(own) if instant_ms is None or change.timestamp_ms <= instant_ms),
                default=-1,
            )
            expected += own[: until + 1]
        assert live(states.known) == replay_all(expected)
        assert states.change_counts == Counter(change.key for change in expected)


#: Of a clock that is set back by hours and over midnight now and then.
WILD_STEPS_MS = (0, 60_000, 3_600_000, 3_600_000, -3 * 3_600_000)


@settings(max_examples=40)
@given(st.lists(logs(UNCUT), min_size=2, max_size=2), st.integers(-600, 3_000), st.randoms(use_true_random=False))
def test_the_answer_about_a_share_partition_is_the_same_whatever_else_is_requested(
    written: list[LogWriter], after_minutes: int, random: Random
) -> None:
    """Also where the clock was set back by hours, over midnight, and behind a gap."""
    time_ms = BEGIN_MS + after_minutes * 60_000
    with TemporaryDirectory() as directory:
        keys: set[SharePartitionKey] = set()
        for number, log in enumerate(written):
            rows = rows_of(number, stamp(log, random, WILD_STEPS_MS))
            for row in rows:
                # Each log partition has groups of its own, and two share partitions in each group.
                row["group_id"] = f"group:{number}:{row['partition'] // 2}"
                keys.add(SharePartitionKey(row["group_id"], parse_topic_id(row["topic_id"]), row["partition"]))
            if rows and random.random() < 0.5:
                lost = random.randrange(len(rows))
                gap = gap_row(number, rows[lost]["offset"], rows[lost]["timestamp_ms"])
                rows[random.randint(0, lost) : lost] = [gap]
            write_batch(Path(directory), STATE_TOPIC_ID, f"a-{number}", rows)

        def answer(wanted: KeyFilter) -> tuple[dict[SharePartitionKey, KnownState], set[SharePartitionKey]]:
            states = StatesAt(time_ms)
            if keys:
                log = HistoryLog(HistoryFiles(HistoryPlace(directory), STATE_TOPIC_ID), None, "job", wanted)
                with redirect_stderr(StringIO()):
                    for each in log.changes(time_ms):
                        states.take(each)
            return states.known, set(states.unknown())

        known, unknown = answer(KeyFilter())
        for key in keys:
            for wanted in (KeyFilter(key.group_id), KeyFilter(key.group_id, key.topic_id), KeyFilter(*key)):
                found = answer(wanted)
                assert (found[0].get(key), key in found[1]) == (known.get(key), key in unknown)


KEY = KEYS[0]
UPDATE = Update(0, -1, 105, 0, (StateBatch(105, 106, ACKNOWLEDGED, 2),))


def change(offset: int, value: Value, key: SharePartitionKey = KEY, time_ms: int = 0) -> LogChange:
    return LogChange(LOG_PARTITION, offset, time_ms or BEGIN_MS + offset, key, value)


def test_what_was_before_the_history_is_unknown_until_a_snapshot() -> None:
    states = StatesAt(None)
    states.take(change(1, UPDATE))
    assert states.known[KEY] == KnownState(Status.UNKNOWN, None, LOG_PARTITION, 1, BEGIN_MS + 1)
    states.take(change(2, SNAPSHOT))
    assert states.known[KEY].status is Status.LIVE

    earlier = StatesAt(BEGIN_MS)
    for index, value in enumerate((SNAPSHOT, SNAPSHOT._replace(snapshot_epoch=1), UPDATE, None)):
        earlier.take(change(index + 1, value, KEYS[index], BEGIN_MS + DAY_MS + index + 1))
    assert (earlier.known, earlier.unknown()) == ({}, list(KEYS[1:]))


def test_behind_a_gap_only_what_is_read_again_is_certain() -> None:
    states = StatesAt(None)
    for index, key in enumerate(KEYS[:3]):
        states.take(change(index, SNAPSHOT, key))
    states.take(change(3, None, KEYS[2]))
    states.take(HistoryGap(LOG_PARTITION + 1, 8, BEGIN_MS + 3))
    assert {known.status for known in states.known.values()} == {Status.LIVE, Status.DELETED}
    states.take(HistoryGap(LOG_PARTITION, 8, BEGIN_MS + 3))
    assert [states.known[key].status for key in KEYS[:3]] == [Status.UNCERTAIN] * 3
    states.take(change(8, SNAPSHOT, KEYS[1]))
    states.take(change(9, UPDATE, KEYS[0]))
    assert [states.known[key].status for key in KEYS[:3]] == [Status.UNKNOWN, Status.LIVE, Status.UNCERTAIN]
    states.take(change(10, None, KEYS[2]))
    assert states.known[KEYS[2]].status is Status.DELETED


@pytest.mark.parametrize("behind", [SNAPSHOT, None])
def test_what_was_deleted_before_a_gap_is_uncertain_in_it_for_it_may_have_been_created_again(behind: Value) -> None:
    """Whether it is there behind the gap or not."""
    for after_ms, status in ((1, Status.DELETED), (2, Status.UNCERTAIN), (7, Status.UNCERTAIN)):
        states = StatesAt(BEGIN_MS + after_ms)
        for each in (
            change(0, SNAPSHOT),
            change(1, None),
            HistoryGap(LOG_PARTITION, 8, BEGIN_MS + 2),
            change(8, behind),
        ):
            states.take(each)
        assert (states.known[KEY].status, states.known[KEY].state) == (status, None)
    for after_ms, status in ((2, Status.LIVE), (3, Status.UNCERTAIN), (8, Status.UNCERTAIN), (9, Status.UNKNOWN)):
        instant = StatesAt(BEGIN_MS + after_ms)
        instant.take(change(0, SNAPSHOT))
        instant.take(HistoryGap(LOG_PARTITION, 8, BEGIN_MS + 3))
        instant.take(change(9, UPDATE))
        assert instant.known[KEY].status is status


def test_a_gap_that_is_later_than_the_instant_changes_nothing_until_something_follows_that_is_not() -> None:
    """The clock was set back by a minute behind the gap."""
    states = StatesAt(BEGIN_MS + 5)
    states.take(change(0, SNAPSHOT))
    states.take(change(1, UPDATE, KEY, BEGIN_MS + 60_000))
    states.take(HistoryGap(LOG_PARTITION, 8, BEGIN_MS + 60_000))
    assert states.known[KEY] == KnownState(Status.LIVE, replay(None, SNAPSHOT, 1 << 31), LOG_PARTITION, 0, BEGIN_MS)
    states.take(change(9, UPDATE, KEY, BEGIN_MS + 4))
    assert states.known[KEY].status is Status.UNKNOWN
    assert states.change_counts[KEY] == 3


def test_the_story_of_an_offset_does_not_go_on_with_what_was_before_a_gap() -> None:
    history = OffsetHistory(105)
    read: tuple[LogChange | HistoryGap, ...] = (
        change(0, SNAPSHOT),
        HistoryGap(LOG_PARTITION, 8, BEGIN_MS),
        change(8, UPDATE),
        change(9, SNAPSHOT._replace(snapshot_epoch=1, state_batches=UPDATE.state_batches)),
    )
    steps = [(step.log_offset, step.state) for each in read for step in history.take(each)]
    assert steps == [(0, "available"), (9, "acknowledged")]


def story(offset: int, *values: Value) -> Iterator[tuple[int, str, int | None]]:
    history = OffsetHistory(offset)
    for index, value in enumerate(values):
        for step in history.take(change(index, value)):
            yield step.log_offset, step.state, step.delivery_count


def test_the_story_of_an_offset() -> None:
    again = Update(0, -1, -1, 0, (StateBatch(104, 106, AVAILABLE, 3),))
    values = (SNAPSHOT, UPDATE, UPDATE, again, Update(0, -1, 107, 0, ()), UPDATE._replace(start_offset=-1), None)
    assert list(story(105, *values)) == [
        (0, "available", 1),
        (1, "acknowledged", 2),
        (3, "available", 3),
        (4, "finished", None),
        (6, "deleted", None),
    ]
    assert list(story(110, SNAPSHOT)) == []
    assert list(story(99, SNAPSHOT)) == [(0, "finished", None)]
    assert list(story(105, UPDATE, SNAPSHOT)) == [(1, "available", 1)]


def test_the_story_goes_on_in_the_log_where_the_history_ends() -> None:
    history, told = OffsetHistory(105), list[tuple[str, str]]()
    values: tuple[tuple[Value, str], ...] = (
        (SNAPSHOT, HISTORY),
        (SNAPSHOT._replace(snapshot_epoch=1), LOG),
        (UPDATE._replace(start_offset=107), LOG),
    )
    for index, (value, source) in enumerate(values):
        told += [(each.source, each.text) for each in history.take(change(index, value)._replace(source=source))]
    assert told == [
        (HISTORY, "not finished by 1 delivery; to be given out again"),
        (LOG, "finished: the start offset went on to 107; it was available before"),
    ]


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a history in which one share partition is written and another one is deleted, a minute between each two changes."""
    log = LogWriter(Random(1))
    other = KEY._replace(partition=7)
    values: list[tuple[Value, SharePartitionKey]] = [
        (SNAPSHOT, KEY),
        (SNAPSHOT._replace(start_offset=0, state_batches=()), other),
        (UPDATE, KEY),
        (None, other),
    ]
    records = [*log.records, *(record(index + 1, *each) for index, each in enumerate(values))]
    rows = rows_of(0, [Stamped(each, BEGIN_MS + each.offset * 60_000) for each in records])
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows[:2])
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", rows[2:])
    return tmp_path


def run(directory: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--no-log", "--history-dir", str(directory)])
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
    return result


@pytest.mark.parametrize(
    ("place", "code", "problem"),
    [
        (
            "gopher://host/history",
            2,
            "give a path, or a URI of one of the schemes file",
        ),
        ("/nowhere/at/all", 6, "There is no history at --history-dir /nowhere/at/all, for nothing is there"),
    ],
)
@pytest.mark.parametrize("command", [("history", "g"), ("diff", "g", "--from", "1")])
def test_a_wrong_place_of_the_history_is_found_before_kafka_is_queried(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], place: str, code: int, problem: str
) -> None:
    monkeypatch.setattr("holdfast.console.open_history.LogReader", lambda *_: pytest.fail("Kafka is asked"))
    result = CliRunner().invoke(main, [*command, "--history-dir", place, "--bootstrap-server", "127.0.0.1:1"])
    assert (result.exit_code, problem in result.stderr) == (code, True), result.stderr


TOPIC = format_topic_id(KEY.topic_id)


def at(minute: int) -> str:
    return str(BEGIN_MS + minute * 60_000)


def test_the_state_of_a_group_at_an_instant(directory: Path) -> None:
    def told(*arguments: str) -> list[tuple[Any, ...]]:
        result = run(directory, "history", KEY.group_id, *arguments, "--json")
        assert result.exit_code == Exit.DONE, result.stderr
        return [
            (row["partition"], row["status"], row["log_offset"], (row["state"] or {}).get("start_offset"))
            for row in json.loads(result.stdout)
        ]

    assert told("--at", at(1)) == [(KEY.partition, "live", 1, 100)]
    assert told("--at", "2026-02-01T00:01:30") == [(KEY.partition, "live", 1, 100), (7, "live", 2, 0)]
    assert told() == [(KEY.partition, "live", 3, 105), (7, "deleted", 4, None)]
    assert told(TOPIC, "7", "--at", at(3)) == [(7, "live", 2, 0)]
    table = run(directory, "history", KEY.group_id).stdout.splitlines()
    assert table[1].split() == [
        *(format_key(KEY), "2026-02-01T00:02:00.000Z", "3", "live", "1", "0", "105", "0"),
        *("105-106:acknowledged:2,", "107-109:available:1"),
    ]
    one = [
        line.split() for line in run(directory, "history", KEY.group_id, TOPIC, str(KEY.partition)).stdout.splitlines()
    ]
    assert ["status", "live"] in one
    assert ["start", "offset", "105"] in one
    assert ["write", "timestamp", "1970-01-01T00:00:00.005Z"] in one


def test_what_happened_to_an_offset(directory: Path) -> None:
    named = ("history", KEY.group_id, TOPIC, str(KEY.partition), "--offset", "105")
    output = json.loads(run(directory, *named, "--json").stdout)
    assert output == [
        {
            "at_ms": BEGIN_MS + 60_000,
            "state": "available",
            "delivery_count": 1,
            "text": "not finished by 1 delivery; to be given out again",
            "owner_epoch": 1,
            "state_epoch": 1,
            "log_partition": 0,
            "log_offset": 1,
            "source": "history",
        },
        {
            "at_ms": BEGIN_MS + 180_000,
            "state": "acknowledged",
            "delivery_count": 2,
            "text": "acknowledged at delivery 2",
            "owner_epoch": 1,
            "state_epoch": 1,
            "log_partition": 0,
            "log_offset": 3,
            "source": "history",
        },
    ]
    untold = run(directory, *named[:-1], "109999")
    assert untold.stdout == ""
    assert "Nothing is said of offset 109999: it was never given out" in untold.stderr
    assert run(directory, *named, "--at", at(2)).stdout.splitlines()[1].split() == [
        *("2026-02-01T00:00:00.000Z", "0", "1", "available", "1", "history"),
        *("not", "finished", "by", "1", "delivery;", "to", "be", "given", "out", "again"),
    ]


def test_what_changed_between_two_times(directory: Path) -> None:
    output = json.loads(run(directory, "diff", "--from", at(1), "--to", at(3), "--json").stdout)
    assert [(row["partition"], row["what"], row["changes"]) for row in output] == [
        (KEY.partition, "changed", 1),
        (7, "created", 1),
    ]
    assert output[0]["from"]["state"]["start_offset"] == 100
    assert output[0]["to"]["state"]["start_offset"] == 105
    one = run(directory, "diff", KEY.group_id, TOPIC, str(KEY.partition), "--from", at(2))
    assert one.stderr == "1 share partition differs.\n"
    table = run(directory, "diff", KEY.group_id, "--from", at(2)).stdout.splitlines()
    assert table[1].split() == [format_key(KEY), "changed", "100", "→", "105", "-", "→", "0", "1", "0", "1"]
    assert table[2].split()[1:] == ["deleted", "0", "→", "-", "-", "1", "→", "-", "0", "→", "-", "1"]


def test_state_story_and_difference_hold_one_rule_where_the_clock_was_set_back(tmp_path: Path) -> None:
    """The second change came at minute 9, the third one at minute 3: who sees the third one has seen the second."""
    values: list[Value] = [SNAPSHOT, UPDATE, Update(0, -1, 103, 0, ())]
    records = [*LogWriter(Random(1)).records, *(record(index + 1, value) for index, value in enumerate(values))]
    minutes = (0, 1, 9, 3)
    stamped = [Stamped(each, BEGIN_MS + minute * 60_000) for each, minute in zip(records, minutes, strict=True)]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows_of(0, stamped))
    named = (KEY.group_id, TOPIC, str(KEY.partition))

    def state(minute: int) -> int:
        (row,) = json.loads(run(tmp_path, "history", *named, "--at", at(minute), "--json").stdout)
        return int(row["log_offset"])

    def story(minute: int) -> list[int]:
        output = json.loads(run(tmp_path, "history", *named, "--offset", "105", "--at", at(minute), "--json").stdout)
        return [step["log_offset"] for step in output]

    def changes(begin: int, end: int) -> list[int]:
        output = json.loads(run(tmp_path, "diff", "--from", at(begin), "--to", at(end), "--json").stdout)
        return [row["changes"] for row in output]

    assert [state(minute) for minute in (1, 2, 3, 9)] == [1, 1, 3, 3]
    assert [story(minute) for minute in (1, 2, 3, 9)] == [[1], [1], [1, 2], [1, 2]]
    assert [changes(1, 2), changes(2, 3), changes(3, 9), changes(0, 9)] == [[], [2], [], [3]]


def test_what_is_requested_wrongly_or_in_vain_is_said(directory: Path) -> None:
    def failed(*arguments: str) -> tuple[int, str]:
        result = run(directory, *arguments)
        return result.exit_code, result.stderr

    early = failed("history", KEY.group_id, "--at", at(-9))
    assert early[0] == Exit.NOT_FOUND
    assert early[1].startswith("The history begins at 2026-02-01T00:00:00.000Z; what was before is not known.\n")
    assert failed("history", "nobody")[0] == Exit.NOT_FOUND
    assert failed("history", KEY.group_id, "--offset", "5")[0] == Exit.WRONG_USAGE
    assert failed("history", KEY.group_id, "--follow")[0] == Exit.WRONG_USAGE
    assert failed("history", KEY.group_id, "orders") == (
        Exit.WRONG_USAGE,
        "Error: 'orders' is no topic id, and only Kafka knows names: leave --no-log out.\n",
    )
    assert failed("diff", "--from", at(2), "--to", at(1))[0] == Exit.WRONG_USAGE
    nothing = (Exit.NOT_FOUND, "Error: Nothing is known of such a share partition at that time.\n")
    assert failed("diff", "nobody", "--from", at(2)) == nothing
    assert failed("diff", KEY.group_id, TOPIC, "99", "--from", at(2)) == nothing
    assert failed("diff", KEY.group_id, "--from", at(-9), "--to", at(-8)) == early
    assert failed("diff", "--from", at(-9), "--to", at(-8))[0] == Exit.DONE
    assert failed("diff", KEY.group_id, "--from", at(9)) == (Exit.DONE, "0 share partitions differ.\n")


def test_a_gap_is_said_and_what_was_before_it_is_uncertain(directory: Path) -> None:
    """The job was away for a week while the log was cut past it, and went on with another share partition's snapshot."""
    back_ms = BEGIN_MS + 7 * DAY_MS
    write_batch(directory, STATE_TOPIC_ID, "a-2", [gap_row(0, 90, back_ms), gap_row(1, 80, back_ms)])
    said = "Log partition 0: the log was cut before the job had read what lay below 90; what was between is lost"

    def told(*arguments: str) -> tuple[list[tuple[int, str]], str]:
        result = run(directory, *arguments, "--json")
        rows = [row.get("to") or row for row in json.loads(result.stdout)]
        return [(row["log_offset"], row["status"]) for row in rows], result.stderr

    named = ("history", KEY.group_id, TOPIC, str(KEY.partition))
    for time in ((), ("--at", str(back_ms + 1)), ("--at", str(back_ms - 2 * DAY_MS))):
        states, complaint = told(*named, *time)
        assert states == [(3, "uncertain")]
        assert said in complaint
        assert "Log partition 1" not in complaint, "the share partition is not in that one"
    assert told(*named, "--at", at(3)) == ([(3, "live")], "")
    changed, complaint = told("diff", "--from", at(3))
    assert changed == [(3, "uncertain"), (4, "uncertain")]
    rows = json.loads(run(directory, "diff", "--from", at(3), "--json").stdout)
    assert [row["what"] for row in rows] == ["uncertain", "uncertain"]
    table = run(directory, "history", KEY.group_id).stdout.splitlines()
    assert table[2].split()[2:] == ["4", "uncertain", "-", "-", "-", "-", "-"]
    assert said in complaint
    assert "Log partition 1: the log was cut" in complaint
