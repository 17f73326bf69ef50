"""`holdfast history` and `holdfast diff`: share partitions as they were, from the history and the log after it."""

from collections.abc import Iterable, Iterator
from itertools import chain
from signal import SIGINT
from typing import Any, Final

import click

from holdfast.console.commands.dump import TimeType
from holdfast.console.interrupts import set_by
from holdfast.console.open_history import HistoryOptions, OpenHistory, history_options, open_history
from holdfast.console.options import OFFSET, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import (
    batch_texts,
    counted,
    known_number,
    print_facts,
    print_json,
    print_table,
    say,
    state_data,
    state_facts,
    time_text,
)
from holdfast.console.show.tables import Column, cell_text
from holdfast.console.sources.history_states import (
    KnownState,
    LogChange,
    OffsetHistory,
    StatesAt,
    Status,
    after,
)
from holdfast.console.sources.kafka_reader import Stopped
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.source import Change, to_json
from holdfast.records.share.keys import SharePartitionKey, format_key

_STATE_COLUMNS: Final = (
    Column("share partition"),
    Column("changed", width=24),
    Column("log offset", is_number=True, dropped_as=3),
    Column("status", width=7),
    Column("state epoch", is_number=True, dropped_as=1),
    Column("leader epoch", is_number=True, dropped_as=2),
    Column("start", is_number=True),
    Column("complete", is_number=True),
    Column("batches", is_detail=True),
)
_STEP_COLUMNS: Final = (
    Column("time", width=24),
    Column("log partition", is_number=True, dropped_as=2),
    Column("log offset", is_number=True, dropped_as=1),
    Column("it became", width=12),
    Column("deliveries", is_number=True),
    Column("told by", width=7, dropped_as=3),
    Column("in words", is_detail=True),
)
_DIFF_COLUMNS: Final = (
    Column("share partition"),
    Column("what"),
    Column("start"),
    Column("complete"),
    Column("state epoch", dropped_as=1),
    Column("leader epoch", dropped_as=2),
    Column("changes", is_number=True),
)
_BATCHES_SHOWN: Final = 8
_FOLLOW_EVERY_S: Final = 0.2


@click.command()
@click.argument("group")
@click.option("--at", "at_ms", type=TimeType(), help="As it was then (ISO 8601, or ms); otherwise as it is now.")
@click.option(
    "--offset",
    type=OFFSET,
    help="Show the changes of this offset of the topic partition, one by one.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@json_option
@history_options
def history(at_ms: int | None, offset: int | None, follow: bool, as_json: bool, options: HistoryOptions) -> None:
    """Show the state of share partitions at an instant, or what happened to one offset of one of them.

    GROUP [TOPIC [PARTITION]] says of which; TOPIC is a name or an id.
    Changes that the log no longer has are taken from the history that the Spark job writes.
    It shows what the log holds, which may include writes whose caller saw a time-out.
    With --follow and --json each change is a line. Ctrl-C ends --follow, with exit code 0.

    Example: holdfast history orders-workers orders 0 --at 2026-01-31T12:00:00Z --history-dir /var/lib/holdfast/history
    """
    try:
        with open_history(options) as opened:
            if follow and (at_ms is not None or not opened.has_tail):
                raise Failure("--follow goes with neither --at nor --no-log.", Exit.WRONG_USAGE)
            if offset is not None and options.partition is None:
                raise Failure(
                    "--offset is one of a topic partition; name GROUP, TOPIC and PARTITION.", Exit.WRONG_USAGE
                )
            opened.warn_before_begin(at_ms)
            if offset is not None:
                _show_offset(opened, OffsetHistory(offset), at_ms, follow, as_json)
            else:
                _show_states(opened, at_ms, follow, as_json)
    except KeyboardInterrupt:
        # It is how following ends, and may come while brokers are waited for or the history is read.
        if not follow:
            raise


@click.command()
@click.argument("group", required=False)
@click.option("--from", "from_ms", type=TimeType(), required=True, help="The earlier time (ISO 8601, or ms).")
@click.option("--to", "to_ms", type=TimeType(), help="The later time; otherwise now.")
@json_option
@history_options
def diff(from_ms: int, to_ms: int | None, as_json: bool, options: HistoryOptions) -> None:
    """Show what changed between two times, by share partition; with GROUP [TOPIC [PARTITION]] only there.

    Its exit code is 6 where nothing is known of what is named, at either time.

    Example: holdfast diff orders-workers --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --history-dir /var/lib/holdfast/history
    """
    if to_ms is not None and to_ms < from_ms:
        raise Failure("--to lies before --from.", Exit.WRONG_USAGE)
    with open_history(options) as opened:
        opened.warn_before_begin(from_ms)
        rows = _find_differences(opened, from_ms, to_ms)
        if as_json:
            print_json([row for _, row in rows])
        else:
            print_table(_DIFF_COLUMNS, [_diff_row(opened.names.shown(key), row) for key, row in rows])
    say(f"{counted(len(rows), 'share partition')} differ{'s' * (len(rows) == 1)}.")


def _find_differences(
    opened: OpenHistory, from_ms: int, to_ms: int | None
) -> list[tuple[SharePartitionKey, dict[str, Any]]]:
    """Return the share partitions that differ between two times, in order, with what differs.

    Raises:
        Failure: nothing is known of those that the command names.
    """
    earlier, later = StatesAt(from_ms), StatesAt(to_ms)
    for change in opened.log.changes(to_ms):
        earlier.take(change)
        later.take(change)
    was_there = set(earlier.unknown())
    if opened.wanted.group_id is not None and not (later.known or later.unknown()):
        raise _nothing_known()
    rows: list[tuple[SharePartitionKey, dict[str, Any]]] = []
    for key, known in sorted(later.known.items()):
        before = earlier.known.get(key)
        if before is not None and (before.status, before.state) == (known.status, known.state):
            continue
        row = {
            **_key_data(key),
            "what": _what(before, known, key in was_there),
            "changes": later.change_counts[key] - earlier.change_counts[key],
            "from": _known_data(before),
            "to": _known_data(known),
        }
        rows.append((key, row))
    return rows


# ---- states ----------------------------------------------------------------------------------------------------------


def _show_states(opened: OpenHistory, at_ms: int | None, follow: bool, as_json: bool) -> None:
    states = StatesAt(at_ms)
    for change in opened.log.changes(at_ms):
        states.take(change)
    found: list[tuple[SharePartitionKey, KnownState | None]] = [*sorted(states.known.items())]
    found += [(key, None) for key in sorted(states.unknown())]
    if not found:
        raise _nothing_known()
    if follow:
        _print_states(opened, chain(found, _changed(opened, states.known)), as_lines=as_json, rows_measured=len(found))
    elif as_json:
        print_json([_state_data(key, known) for key, known in found])
    elif opened.wanted.partition is not None:
        ((key, state),) = found
        _print_state(opened.names.shown(key), _known_data(state))
    else:
        _print_states(opened, found, as_lines=False, rows_measured=len(found))


def _changed(
    opened: OpenHistory, known: dict[SharePartitionKey, KnownState]
) -> Iterator[tuple[SharePartitionKey, KnownState]]:
    for change in _new_changes(opened):
        known[change.key] = after(known.get(change.key), change)
        yield change.key, known[change.key]


def _print_states(
    opened: OpenHistory,
    states: Iterable[tuple[SharePartitionKey, KnownState | None]],
    *,
    as_lines: bool,
    rows_measured: int,
) -> None:
    if as_lines:
        for key, known in states:
            print_json(_state_data(key, known), is_line=True)
    else:
        rows = (_state_row(opened.names.shown(key), _known_data(known)) for key, known in states)
        print_table(_STATE_COLUMNS, rows, rows_measured=rows_measured)


def _print_state(share_partition: str, data: dict[str, Any]) -> None:
    facts = {name.replace("_", " "): data[name] for name in ("status", "log_partition", "log_offset")}
    state = {} if data["state"] is None else state_facts(data["state"])
    print_facts({"share partition": share_partition, **facts, "changed": _time(data), **state})


# ---- the history of an offset ----------------------------------------------------------------------------------------


def _show_offset(opened: OpenHistory, history: OffsetHistory, at_ms: int | None, follow: bool, as_json: bool) -> None:
    steps: list[Change] = []
    #: Later than the instant, until a change follows that is not: as with states, what was before that one counts.
    later: list[Change] = []
    for change in opened.log.changes(at_ms):
        later += history.take(change)
        if at_ms is None or (isinstance(change, LogChange) and change.timestamp_ms <= at_ms):
            steps += later
            later.clear()
    shown = (
        chain(steps, (step for change in _new_changes(opened) for step in history.take(change))) if follow else steps
    )
    if as_json and follow:
        for step in shown:
            print_json(to_json(step), is_line=True)
    elif as_json:
        print_json(to_json(tuple(steps)))
    elif steps or follow:
        print_table(_STEP_COLUMNS, map(_step_row, shown), rows_measured=len(steps))
    if not (steps or follow):
        if not history.is_known:
            raise _nothing_known()
        say(
            f"Nothing is said of offset {history.offset}: it was never given out, or it is in flight for the first time."
        )


def _step_row(step: Change) -> tuple[object, ...]:
    place = step.log_partition, step.log_offset
    return time_text(step.at_ms), *place, step.state, step.delivery_count, step.source, step.text


# ---- what both need --------------------------------------------------------------------------------------------------


def _nothing_known() -> Failure:
    return Failure("Nothing is known of such a share partition at that time.", Exit.NOT_FOUND)


def _new_changes(opened: OpenHistory) -> Iterator[LogChange]:
    """Yield the changes that come, until an interrupt ends the following."""
    with set_by(SIGINT, event=opened.is_stopped) as is_interrupted:
        try:
            while not is_interrupted.wait(_FOLLOW_EVERY_S):
                yield from opened.log.new_changes()
        except Stopped:
            return


def _key_data(key: SharePartitionKey) -> dict[str, Any]:
    return {
        "share_partition": format_key(key),
        "group_id": key.group_id,
        "topic_id": format_topic_id(key.topic_id),
        "partition": key.partition,
    }


def _state_data(key: SharePartitionKey, known: KnownState | None) -> dict[str, Any]:
    return _key_data(key) | _known_data(known)


def _known_data(known: KnownState | None) -> dict[str, Any]:
    if known is None:
        return dict.fromkeys(("log_partition", "log_offset", "timestamp_ms", "state")) | {
            "status": Status.UNKNOWN.value
        }
    return {
        "log_partition": known.log_partition,
        "log_offset": known.offset,
        "timestamp_ms": known.timestamp_ms,
        "status": known.status.value,
        "state": None if known.state is None else state_data(known.state),
    }


def _time(data: dict[str, Any]) -> str | None:
    return None if data["timestamp_ms"] is None else time_text(data["timestamp_ms"])


def _state_row(share_partition: str, data: dict[str, Any]) -> tuple[object, ...]:
    state = data["state"]
    fields: tuple[object, ...] = (None,) * 5
    if state is not None:
        batches = batch_texts(state)
        more = len(batches) - _BATCHES_SHOWN
        text = ", ".join(batches[:_BATCHES_SHOWN]) + (f", and {more} batches more" if more > 0 else "")
        numbers = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
        fields = (*(known_number(state[name]) for name in numbers), text or None)
    return share_partition, _time(data), data["log_offset"], data["status"], *fields


def _what(before: KnownState | None, known: KnownState, was_there: bool) -> str:
    if known.status is Status.UNCERTAIN:
        return "uncertain"
    if known.status is Status.DELETED:
        return "deleted"
    if (before is None and not was_there) or (before is not None and before.status is Status.DELETED):
        return "created"
    return "changed"


def _diff_row(share_partition: str, row: dict[str, Any]) -> tuple[object, ...]:
    names = ("start_offset", "delivery_complete_count", "state_epoch", "leader_epoch")

    def values(name: str) -> str:
        earlier, later = (
            cell_text(None if state is None else known_number(state[name]))
            for state in (row["from"]["state"], row["to"]["state"])
        )
        return earlier if earlier == later else f"{earlier} → {later}"

    return share_partition, row["what"], *map(values, names), row["changes"]
