"""`holdfast history` and `holdfast diff`: the past of share partitions, from the history and the log behind it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
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
from holdfast.console.sources.history_states import Change, Known, OffsetStory, StatesAt, Status, Step, Wanted, after
from holdfast.console.sources.log_reader import LogReader
from holdfast.console.sources.topic_names import TopicNames
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


class Past(NamedTuple):
    """What a command reads, and of whom."""

    log: "HistoryLog"
    wanted: Wanted
    begin_ms: int | None  #: time of the first change in the history
    has_tail: bool  #: whether the log is read as well
    names: TopicNames

    def warn_before_begin(self, time_ms: int | None) -> None:
        """Say that a time lies before all that is known."""
        if self.begin_ms is None:
            say("The history is empty so far.")
        elif time_ms is not None and time_ms < self.begin_ms:
            say(f"The history begins at {time_text(self.begin_ms)}; what was before is not known.")


def _asking_the_past(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options that name share partitions, history and log; the command gets `past` in their place."""

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
    def with_past(
        group: str | None,
        topic: str | None,
        partition: int | None,
        history_dir: str,
        job_group: str,
        no_log: bool,
        bootstrap_server: str,
        properties: Sequence[str],
        state_topic: str,
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        try:
            from holdfast.console.sources.history_files import HistoryDirectory, HistoryFiles
            from holdfast.console.sources.history_log import HistoryLog
        except ImportError:
            raise Failure(
                f"The history is read with pyarrow, not installed here; {how_to_install('history')}."
            ) from None
        directory = HistoryDirectory(history_dir)  # before Kafka is asked: what is wrong with it, Kafka does not know
        with ExitStack() as stack:
            log = None
            if no_log:
                # The default name looks like an id.
                state_topic_id = None if state_topic == STATE_TOPIC_DEFAULT else _id_of(state_topic)
                topic_id = _id_of(topic)
            else:
                log = LogReader(kafka_properties(bootstrap_server, properties), state_topic)
                stack.callback(log.close)
                topic_id = None if topic is None else log.kafka.find_topic_id(topic)
                state_topic_id = log.kafka.topic_id(state_topic)
            if topic is not None and topic_id is None:
                raise Failure(
                    f"{topic!r} is no topic id, and only Kafka knows names: leave --no-log out.", Exit.WRONG_USAGE
                )
            wanted = Wanted(group, topic_id, partition)
            changes = HistoryLog(HistoryFiles(directory, state_topic_id), log, job_group, wanted)
            names = TopicNames(None if log is None else log.kafka)
            command(past=Past(changes, wanted, changes.begin_ms(), log is not None, names), **arguments)

    return with_past


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
@_asking_the_past
def history(at_ms: int | None, offset: int | None, follow: bool, as_json: bool, past: Past) -> None:
    """Show the state of share partitions at an instant, or what happened to one offset of one of them.

    GROUP [TOPIC [PARTITION]] says of which; TOPIC is a name or an id.
    What is no more in the log is taken from the history that the Spark job writes.
    It shows what the log holds, which may include writes whose caller saw a time-out.
    With --follow and --json each change is a line. Ctrl-C ends --follow, with exit code 0.

    Example: holdfast history orders-workers orders 0 --at 2026-01-31T12:00:00Z --history-dir /var/lib/holdfast/history
    """
    if follow and (at_ms is not None or not past.has_tail):
        raise Failure("--follow goes with neither --at nor --no-log.", Exit.WRONG_USAGE)
    if offset is not None and past.wanted.partition is None:
        raise Failure("--offset is one of a topic partition; name GROUP, TOPIC and PARTITION.", Exit.WRONG_USAGE)
    past.warn_before_begin(at_ms)
    try:
        if offset is not None:
            _tell_story(past, OffsetStory(offset), at_ms, follow, as_json)
        else:
            _tell_states(past, at_ms, follow, as_json)
    except KeyboardInterrupt:
        # It is how following ends, and may come while the past is read.
        if not follow:
            raise


@click.command()
@click.argument("group", required=False)
@click.option("--from", "from_ms", type=TimeType(), required=True, help="The earlier time (ISO 8601, or ms).")
@click.option("--to", "to_ms", type=TimeType(), help="The later time; otherwise now.")
@json_option
@_asking_the_past
def diff(from_ms: int, to_ms: int | None, as_json: bool, past: Past) -> None:
    """Show what changed between two times, by share partition; with GROUP [TOPIC [PARTITION]] only there.

    Example: holdfast diff orders-workers --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --history-dir /var/lib/holdfast/history
    """
    if to_ms is not None and to_ms < from_ms:
        raise Failure("--to lies before --from.", Exit.WRONG_USAGE)
    past.warn_before_begin(from_ms)
    earlier, later = StatesAt(from_ms), StatesAt(to_ms)
    for change in past.log.changes(to_ms):
        earlier.meet(change)
        later.meet(change)
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
    if as_json:
        print_json([row for _, row in rows])
    else:
        print_table(_DIFF_COLUMNS, [_diff_row(past.names.shown(key), row) for key, row in rows])
    say(f"{len(rows)} share partitions differ.")


# ---- states ----------------------------------------------------------------------------------------------------------


def _tell_states(past: Past, at_ms: int | None, follow: bool, as_json: bool) -> None:
    states = StatesAt(at_ms)
    for change in past.log.changes(at_ms):
        states.meet(change)
    found: list[tuple[SharePartitionKey, Known | None]] = [*sorted(states.known.items())]
    found += [(key, None) for key in sorted(states.unknown())]
    if not found:
        raise Failure("Nothing is known of such a share partition at that time.", Exit.NOT_FOUND)
    if follow:
        _print_states(past, chain(found, _changed(past, states.known)), as_json, len(found))
    elif as_json:
        print_json([_state_data(key, known) for key, known in found])
    elif past.wanted.partition is not None:
        ((key, state),) = found
        _print_state(past.names.shown(key), _known_data(state))
    else:
        _print_states(past, found, False, len(found))


def _changed(past: Past, known: dict[SharePartitionKey, Known]) -> Iterator[tuple[SharePartitionKey, Known]]:
    for change in _coming(past):
        known[change.key] = after(known.get(change.key), change)
        yield change.key, known[change.key]


def _print_states(
    past: Past, states: Iterable[tuple[SharePartitionKey, Known | None]], as_lines: bool, rows_measured: int
) -> None:
    if as_lines:
        for key, known in states:
            print_json(_state_data(key, known), is_line=True)
    else:
        rows = (_state_row(past.names.shown(key), _known_data(known)) for key, known in states)
        print_table(_STATE_COLUMNS, rows, rows_measured=rows_measured)


def _print_state(share_partition: str, data: dict[str, Any]) -> None:
    facts = {name.replace("_", " "): data[name] for name in ("status", "log_partition", "log_offset")}
    state = {} if data["state"] is None else state_facts(data["state"])
    print_facts({"share partition": share_partition, **facts, "changed": _time(data), **state})


# ---- the story of an offset ------------------------------------------------------------------------------------------


def _tell_story(past: Past, story: OffsetStory, at_ms: int | None, follow: bool, as_json: bool) -> None:
    steps: list[Step] = []
    #: Later than the instant, until a change follows that is not: as with states, what was before that one counts.
    later: list[Step] = []
    for change in past.log.changes(at_ms):
        later += story.meet(change)
        if at_ms is None or (isinstance(change, Change) and change.timestamp_ms <= at_ms):
            steps += later
            later.clear()
    told = chain(steps, (step for change in _coming(past) for step in story.meet(change))) if follow else steps
    if as_json and follow:
        for step in told:
            print_json(_step_data(step), is_line=True)
    elif as_json:
        print_json(list(map(_step_data, steps)))
    elif steps or follow:
        print_table(_STEP_COLUMNS, map(_step_row, told), rows_measured=len(steps))
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


def _coming(past: Past) -> Iterator[Change]:
    """Yield what comes, until an interrupt: it is how following ends."""
    with set_by(SIGINT) as is_interrupted:
        while not is_interrupted.wait(_FOLLOW_EVERY_S):
            yield from past.log.new_changes()


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


def _state_data(key: SharePartitionKey, known: Known | None) -> dict[str, Any]:
    return _key_data(key) | _known_data(known)


def _known_data(known: Known | None) -> dict[str, Any]:
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


def _what(before: Known | None, known: Known, was_there: bool) -> str:
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
