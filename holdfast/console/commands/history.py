"""`holdfast history` and `holdfast diff`: share partitions as they were, from the history and the log behind it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from itertools import chain
from signal import SIGINT
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from holdfast.console.commands.dump import TimeType
from holdfast.console.interrupts import set_by
from holdfast.console.options import (
    OFFSET,
    PARTITION,
    STATE_TOPIC_DEFAULT,
    json_option,
    kafka_options,
    kafka_properties,
    state_topic_option,
)
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import (
    batch_texts,
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
    KeyFilter,
    KnownState,
    LogChange,
    OffsetHistory,
    StatesAt,
    Status,
    Step,
    after,
)
from holdfast.console.sources.log_reader import LogReader
from holdfast.console.sources.topic_names import TopicNameCache
from holdfast.distribution import how_to_install
from holdfast.records.errors import InvalidKey
from holdfast.records.keys import SharePartitionKey, format_key, format_topic_id, parse_topic_id

if TYPE_CHECKING:
    from holdfast.console.sources.history_log import HistoryLog

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
    Column("what became of it", width=21),
    Column("deliveries", is_number=True),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """The arguments and options by which a command names share partitions, the history and the log."""

    group: str | None
    topic: str | None
    partition: int | None
    history_dir: str
    job_group: str
    no_log: bool
    bootstrap_server: str
    properties: Sequence[str]
    state_topic: str


class OpenHistory(NamedTuple):
    """A history that a command reads, and the log behind it."""

    log: "HistoryLog"
    wanted: KeyFilter
    begin_ms: int | None  #: time of the first change in the history
    has_tail: bool  #: whether the log is read as well
    names: TopicNameCache

    def warn_before_begin(self, time_ms: int | None) -> None:
        """Say that a time lies before all that is known."""
        if self.begin_ms is None:
            say("The history is empty so far.")
        elif time_ms is not None and time_ms < self.begin_ms:
            say(f"The history begins at {time_text(self.begin_ms)}; what was before is not known.")


def _history_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of `HistoryOptions`; the command gets them as `options`."""

    @click.argument("topic", required=False)
    @click.argument("partition", type=PARTITION, required=False)
    @click.option(
        "--history-dir",
        envvar="HOLDFAST_COMPACTION_HISTORY_DIR",
        show_envvar=True,
        required=True,
        metavar="PATH_OR_URI",
        help="Where the job writes the history: its `compaction.history.dir`, a path or a URI (file, s3a, s3n, s3, abfs, abfss, "
        "gs, hdfs).",
    )
    @click.option(
        "--job-group",
        envvar="HOLDFAST_COMPACTION_GROUP",
        show_envvar=True,
        default="holdfast-compaction",
        show_default=True,
        metavar="GROUP",
        help="Consumer group of the job; how far it is counts where an earlier version wrote the history.",
    )
    @click.option(
        "--no-log",
        is_flag=True,
        help="Read the history only, and do without Kafka; topics are then named by their ids.",
    )
    @kafka_options
    @state_topic_option
    @wraps(command)
    def with_options(**arguments: Any) -> None:  # noqa: ANN401
        own = {field.name: arguments.pop(field.name) for field in fields(HistoryOptions)}
        command(options=HistoryOptions(**own), **arguments)

    return with_options


@contextmanager
def open_history(options: HistoryOptions) -> Iterator[OpenHistory]:
    """Give the history that options name, and the log behind it; the log is closed with the block.

    Raises:
        Failure: the history cannot be read, or Kafka cannot be reached, or a topic is not known.
    """
    try:
        from holdfast.console.sources.history_files import HistoryDirectory, HistoryFiles
        from holdfast.console.sources.history_log import HistoryLog
    except ImportError:
        raise Failure(f"The history is read with pyarrow, not installed here; {how_to_install('history')}.") from None
    directory = HistoryDirectory(
        options.history_dir
    )  # before Kafka is reached, which does not know what is wrong with it
    with ExitStack() as stack:
        log = None
        if options.no_log:
            # The default name looks like an id.
            state_topic_id = None if options.state_topic == STATE_TOPIC_DEFAULT else _id_of(options.state_topic)
            topic_id = _id_of(options.topic)
        else:
            log = LogReader(kafka_properties(options.bootstrap_server, options.properties), options.state_topic)
            stack.callback(log.close)
            topic_id = None if options.topic is None else log.kafka.find_topic_id(options.topic)
            state_topic_id = log.kafka.topic_id(options.state_topic)
        if options.topic is not None and topic_id is None:
            raise Failure(
                f"{options.topic!r} is no topic id, and only Kafka knows names: leave --no-log out.", Exit.WRONG_USAGE
            )
        wanted = KeyFilter(options.group, topic_id, options.partition)
        changes = HistoryLog(HistoryFiles(directory, state_topic_id), log, options.job_group, wanted)
        names = TopicNameCache(None if log is None else log.kafka)
        yield OpenHistory(changes, wanted, changes.begin_ms(), log is not None, names)


@click.command()
@click.argument("group")
@click.option("--at", "at_ms", type=TimeType(), help="As it was then (ISO 8601, or ms); otherwise as it is now.")
@click.option(
    "--offset",
    type=OFFSET,
    help="What happened to this offset of the topic partition, change by change.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@json_option
@_history_options
def history(at_ms: int | None, offset: int | None, follow: bool, as_json: bool, options: HistoryOptions) -> None:
    """Show the state of share partitions at an instant, or what happened to one offset of one of them.

    GROUP [TOPIC [PARTITION]] says of which; TOPIC is a name or an id.
    What is no more in the log is taken from the history that the Spark job writes.
    It shows what the log holds, which may include writes whose caller saw a time-out.
    With --follow and --json each change is a line. Ctrl-C ends --follow, with exit code 0.

    Example: holdfast history orders-workers orders 0 --at 2026-01-31T12:00:00Z --history-dir /var/lib/holdfast/history
    """
    with open_history(options) as opened:
        if follow and (at_ms is not None or not opened.has_tail):
            raise Failure("--follow goes with neither --at nor --no-log.", Exit.WRONG_USAGE)
        if offset is not None and options.partition is None:
            raise Failure("--offset is one of a topic partition; name GROUP, TOPIC and PARTITION.", Exit.WRONG_USAGE)
        opened.warn_before_begin(at_ms)
        try:
            if offset is not None:
                _show_offset(opened, OffsetHistory(offset), at_ms, follow, as_json)
            else:
                _show_states(opened, at_ms, follow, as_json)
        except KeyboardInterrupt:
            # It is how following ends, and may come while the history is read.
            if not follow:
                raise


@click.command()
@click.argument("group", required=False)
@click.option("--from", "from_ms", type=TimeType(), required=True, help="The earlier time (ISO 8601, or ms).")
@click.option("--to", "to_ms", type=TimeType(), help="The later time; otherwise now.")
@json_option
@_history_options
def diff(from_ms: int, to_ms: int | None, as_json: bool, options: HistoryOptions) -> None:
    """Show what changed between two times, by share partition; with GROUP [TOPIC [PARTITION]] only there.

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
    say(f"{len(rows)} share partitions differ.")


def _find_differences(
    opened: OpenHistory, from_ms: int, to_ms: int | None
) -> list[tuple[SharePartitionKey, dict[str, Any]]]:
    """Return the share partitions that differ between two times, in order, with what differs."""
    earlier, later = StatesAt(from_ms), StatesAt(to_ms)
    for change in opened.log.changes(to_ms):
        earlier.take(change)
        later.take(change)
    was_there = set(earlier.unknown())
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
        raise Failure("Nothing is known of such a share partition at that time.", Exit.NOT_FOUND)
    if follow:
        _print_states(opened, chain(found, _changed(opened, states.known)), as_json, len(found))
    elif as_json:
        print_json([_state_data(key, known) for key, known in found])
    elif opened.wanted.partition is not None:
        ((key, state),) = found
        _print_state(opened.names.shown(key), _known_data(state))
    else:
        _print_states(opened, found, False, len(found))


def _changed(
    opened: OpenHistory, known: dict[SharePartitionKey, KnownState]
) -> Iterator[tuple[SharePartitionKey, KnownState]]:
    for change in _new_changes(opened):
        known[change.key] = after(known.get(change.key), change)
        yield change.key, known[change.key]


def _print_states(
    opened: OpenHistory,
    states: Iterable[tuple[SharePartitionKey, KnownState | None]],
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
    steps: list[Step] = []
    #: Later than the instant, until a change follows that is not: as with states, what was before that one counts.
    later: list[Step] = []
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
            print_json(_step_data(step), is_line=True)
    elif as_json:
        print_json(list(map(_step_data, steps)))
    elif steps or follow:
        print_table(_STEP_COLUMNS, map(_step_row, shown), rows_measured=len(steps))
    if not (steps or follow):
        raise Failure("Nothing is known of such a share partition at that time.", Exit.NOT_FOUND)


def _step_data(step: Step) -> dict[str, Any]:
    return {
        "timestamp_ms": step.change.timestamp_ms,
        "log_partition": step.change.log_partition,
        "log_offset": step.change.offset,
        "became": step.text,
        "delivery_count": step.delivery_count,
    }


def _step_row(step: Step) -> tuple[object, ...]:
    change = step.change
    return time_text(change.timestamp_ms), change.log_partition, change.offset, step.text, step.delivery_count


# ---- what both need --------------------------------------------------------------------------------------------------


def _new_changes(opened: OpenHistory) -> Iterator[LogChange]:
    """Yield the changes that come, until an interrupt ends the following."""
    with set_by(SIGINT) as is_interrupted:
        while not is_interrupted.wait(_FOLLOW_EVERY_S):
            yield from opened.log.new_changes()


def _id_of(text: str | None) -> bytes | None:
    try:
        return None if text is None else parse_topic_id(text)
    except InvalidKey:
        return None


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
