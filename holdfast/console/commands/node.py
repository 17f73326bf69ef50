"""Commands to a running node: status, settings, metrics, log partitions, readers, and an admin's decisions."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import click

from holdfast.api.admin import reason_problem
from holdfast.console.confirmation import Manner, change_options, confirm, say_losses
from holdfast.console.lazy_commands import LazyCommands
from holdfast.console.options import INT32_MAX, PARTITION, address_option, admin, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.division import (
    how_many_are_ready,
    how_many_serve,
    print_hand_overs,
    print_members,
    print_partitions,
)
from holdfast.console.show.output import print_facts, print_json, print_rows, print_table, say
from holdfast.console.show.tables import Column, rounded
from holdfast.console.sources.group_nodes import merge_partitions, other_nodes, query_all
from holdfast.console.sources.member_conditions import query_conditions

_PRUNING_COLUMNS: Final = {
    "partition": Column("partition", is_number=True),
    "log_start": Column("log start", is_number=True),
    "log_bytes": Column("log bytes", is_number=True),
    "dead_bytes": Column("dead bytes", is_number=True),
    "why_not_pruned": Column("why not pruned", is_detail=True),
}
_READER_COLUMNS: Final = {
    "group": Column("group"),
    "state": Column("state"),
    "behind": Column("records behind", is_number=True),
    "still_ms": Column("not moved for ms", is_number=True),
}
_WORD: Final = re.compile(r"[a-z0-9]+")

#: State of a reader to its explanation, unless the reader just reads.
_READER_NOTES: Final = {
    "not started": "{group} is the job of `holdfast compact`, which a node can do without; it has not run yet, and holds nothing.",
    "never committed": "{group} has never committed an offset, and holds the whole log until it does.",
    "not looked up": "How far {group} is has not been found out yet, so it holds the whole log.",
    "lost its offsets": "Kafka has forgotten the offsets of {group}, which may begin again, so it holds the whole log.",
    "silent": "{group} has records to read and does not move; it holds the log until it does, or `holdfast readers drop` drops it.",
    "dropped": "{group} was dropped, and holds nothing until it commits again.",
}

_partition_argument = click.argument("partition", type=PARTITION)

_LOOK_EVERY_S: Final = 0.2

Facts = dict[str, Any]


def _check_reason(context: click.Context, parameter: click.Parameter, reason: str) -> str:
    problem = reason_problem(reason)
    if problem:
        raise click.BadParameter(f"{problem}.")
    return reason


_wide_option = click.option("--wide", "is_wide", is_flag=True, help="Show all columns, also those of numbers.")

_wait_option = click.option(
    "--wait-ms",
    type=click.IntRange(0, INT32_MAX),
    default=10_000,
    show_default=True,
    help="How long to wait for the load before saying what is there.",
)

_reason_option = click.option("--reason", required=True, callback=_check_reason, help="Why; it is kept in the log.")


@click.command()
@click.option("--alive", is_flag=True, help="Exit with 0 for any answer, ready or not: for what restarts nodes.")
@json_option
@address_option
def status(alive: bool, as_json: bool, address: str) -> None:
    """Show whether a node is ready, and what it serves; exit code 1 says that it is not ready, with the reason.

    A node is ready while every log partition serves and the brokers that lead them answer.

    Example: holdfast status --address 127.0.0.1:9492
    """
    answer = admin(address, "status")
    if as_json:
        print_json(answer)
    else:
        winners = [
            f"node {by['node_id']} at {by['advertised_address'] or '?'}" for by in answer.get("superseded_by", ())
        ]
        facts = answer | {"superseded_by": ", ".join(winners) or None}
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
    if not (answer["is_ready"] or alive):
        raise Failure(f"The node is not ready: {answer.get('why_not_ready') or 'it does not say why'}.")


@click.command()
@click.argument("part", default="")
@json_option
@address_option
def settings(part: str, as_json: bool, address: str) -> None:
    """Show the settings with which a node runs, secrets hidden; with PART only those whose name holds it.

    Example: holdfast settings timeout
    """
    everything = admin(address, "settings")
    answer = {name: value for name, value in everything.items() if part in name}
    if not answer:
        raise _no_name("setting", part, everything)
    if as_json:
        print_json(answer)
        return
    texts = {name: _value_text(value) for name, value in answer.items()}
    width = max((len(texts[name]) for name, value in answer.items() if _is_number(value)), default=0)
    rows = [(name, f"{texts[name]:>{width}}" if _is_number(value) else texts[name]) for name, value in answer.items()]
    print_table(("setting", Column("value", is_detail=True)), rows)


@click.command()
@click.argument("part", default="")
@json_option
@address_option
def metrics(part: str, as_json: bool, address: str) -> None:
    """Show what a node counts and measures; with PART only those whose name holds it.

    Example: holdfast metrics latency
    """
    everything = admin(address, "metrics")
    answer = {name: rounded(value) for name, value in sorted(everything.items()) if part in name}
    if not answer:
        raise _no_name("metric", part, everything)
    if as_json:
        print_json(answer)
    else:
        print_table(("metric", "value"), answer.items(), numbers=("value",))


@click.command()
@_wide_option
@json_option
@address_option
def members(is_wide: bool, as_json: bool, address: str) -> None:
    """Show whether the nodes that divide the log are ready, and which log partitions and duties each has.

    The state of the one that is queried is `stable`, or `rejoining` while the group divides again; a node that left and is waited for
    is `absent`. Each member is queried whether it is ready and which version it is. With --wide it also says whether it leads the group,
    its ownership generation, how long ago its last heartbeat was answered, up to which offset it has read the config topic, its member id
    and its group.instance.id. If one of these is not known, the reason takes its place; with --json it is null, and the reason is in
    the field of the same name with `_unknown`.

    Example: holdfast members --wide
    """
    rows, problems = query_conditions(admin(address, "members"), address)
    if not as_json:
        say(how_many_are_ready(rows))
    for problem in problems:
        say(problem)
    if as_json:
        print_json(rows)
    else:
        print_members(rows, is_wide=is_wide)


@click.group(invoke_without_command=True)
@click.option(
    "--why-not-pruned", is_flag=True, help="Show for each log the key or the reader that keeps it from getting shorter."
)
@_wide_option
@json_option
@address_option
@click.pass_context
def partitions(context: click.Context, why_not_pruned: bool, is_wide: bool, as_json: bool, address: str) -> None:
    """Show whether all log partitions serve, and who owns each; with --wide also how far each is.

    A node that is a member of a group names the others, and what they have is shown as they have it. If one of them does not answer, the
    state is `elsewhere`, by the map of the group; a log partition that no member has is `unassigned`.

    Example: holdfast partitions --why-not-pruned
    """
    if context.invoked_subcommand is not None:
        return
    if why_not_pruned and is_wide:
        raise click.UsageError("--why-not-pruned has columns of its own, and takes no --wide.")
    answers, problems = query_all(address, "partitions")
    answer = merge_partitions(answers)
    if not (why_not_pruned or as_json):
        say(how_many_serve(answer, query_all(address, "status").found))
    for problem in problems:
        say(problem)
    if why_not_pruned:
        _print_why_not_pruned(answer, as_json)
    elif as_json:
        print_json(answer)
    else:
        print_partitions(answer, is_wide=is_wide)


def _print_why_not_pruned(answer: Sequence[Facts], as_json: bool) -> None:
    if as_json:
        names = (*_PRUNING_COLUMNS, "oldest_key", "oldest_snapshot_offset")
        print_json([{name: row[name] for name in names} for row in answer])
    else:
        print_rows(_PRUNING_COLUMNS, answer)


@partitions.command("hand-overs")
@json_option
@address_option
def hand_overs(as_json: bool, address: str) -> None:
    """Show the last times that a log partition got another owner, the newest first: from whom, to whom, how long the load took, and why.

    Each node remembers 64 of them from its start on; of all members of the group each is shown once.

    Example: holdfast partitions hand-overs
    """
    answers, problems = query_all(address, "hand-overs")
    # No other command needs a part of the daemon.
    from holdfast.daemon.partitions.hand_overs import merge

    found = merge(answers)
    for problem in problems:
        say(problem)
    if as_json:
        print_json(found)
    elif found:
        print_hand_overs(found)
    else:
        say("No node remembers a hand-over.")


@partitions.command()
@_partition_argument
@_wait_option
@change_options
def take(partition: int, wait_ms: int, manner: Manner) -> None:
    """Let this node take a log partition, whichever node has it now.

    Example: holdfast partitions take 7 --dry-run
    """
    plan = f"take log partition {partition} with the next owner epoch; its owner, if there is one, stops serving it"
    look = partial(_look_until_loaded, manner.address, partition, wait_ms)
    _decide(manner, plan, "partitions-take", look, partition=partition)


@partitions.command()
@_partition_argument
@_reason_option
@_wait_option
@change_options
def accept(partition: int, reason: str, wait_ms: int, manner: Manner) -> None:
    """End the alarm of a log partition: go on with the log as it is, and with what it has lost.

    Example: holdfast partitions accept 7 --reason "restored from last night's backup" --dry-run
    """
    plan = f"take log partition {partition} with a checkpoint that accepts its log as it is, because: {reason}"
    look = partial(_look_until_loaded, manner.address, partition, wait_ms)
    _decide(manner, plan, "partitions-accept", look, partition=partition, reason=reason)


@click.group(commands=LazyCommands({"create": "topics:create_topic"}))
def topics() -> None:
    """Make a topic; decide about topics whose state the node holds.

    Example: holdfast topics accept-deleted --reason "the shop was closed" --dry-run
    """


@topics.command("accept-deleted")
@_reason_option
@change_options
def accept_deleted(reason: str, manner: Manner) -> None:
    """Let the state of deleted topics go, after the node has stopped because there are too many of them.

    It goes when the node looks for deleted topics the next time.

    Example: holdfast topics accept-deleted --reason "the shop was closed" --dry-run
    """
    plan = "write tombstones for all share partitions of the topics that the cluster does not know any more"
    _decide(manner, plan, "topics-accept-deleted", None, reason=reason)
    _say_alone(manner.address, "This is decided for the log partitions of this node alone")


@click.group(invoke_without_command=True)
@json_option
@address_option
@click.pass_context
def readers(context: click.Context, as_json: bool, address: str) -> None:
    """Show who reads the log: consumer groups, past whose committed offsets it is not pruned.

    Example: holdfast readers --json
    """
    if context.invoked_subcommand is not None:
        return
    answer = admin(address, "readers")
    if as_json:
        print_json(answer)
        return
    _say_alone(address, "These readers are shown for the log partitions of this node alone")
    # The end of the log is no aim of one that has never begun.
    print_rows(_READER_COLUMNS, [row | {"behind": None} if row["state"] == "not started" else row for row in answer])
    for row in answer:
        if row["state"] in _READER_NOTES:
            say(_READER_NOTES[row["state"]].format(group=row["group"]))


@readers.command("drop")
@click.argument("group")
@click.option("--reason", required=True, callback=_check_reason, help="Why; it is written into a log line of the node.")
@change_options
def drop_reader(group: str, reason: str, manner: Manner) -> None:
    """Prune the log past a reader that is gone; it is one again when it commits, or when the node restarts.

    Example: holdfast readers drop audit --reason "it was switched off in May" --dry-run
    """
    plan = f"prune the log past the offsets that {group} has committed, so that it may miss records when it comes back"
    look = partial(_look_at, manner.address, "readers", "group", group)
    _decide(manner, plan, "readers-drop", look, group=group, reason=reason)
    _say_alone(manner.address, "This is decided for the log partitions of this node alone")


def _value_text(value: object) -> str:
    """Return a setting as it is given in the environment."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _no_name(kind: str, part: str, names: Iterable[str]) -> Failure:
    """Return the failure for a name that no setting or metric has, with names like it."""
    words = {word for name in names for word in (name.partition("{")[0], *_WORD.findall(name))}
    like = get_close_matches(part, sorted(words), n=3)
    meant = f"; did you mean {' or '.join(like)}?" if like else f"; `holdfast {kind}s` shows all of them."
    return Failure(f"No {kind} has {part!r} in its name{meant}", Exit.NOT_FOUND)


def _decide(
    manner: Manner, plan: str, command: str, look: Callable[[Sequence[str]], Facts | None] | None, **arguments: object
) -> None:
    """Show what a decision changes, ask for consent where data is lost, send it, and show the result.

    Args:
        manner: how.
        plan: what the node will do, in words.
        command: of the node.
        look: returns the fields named as they are; None where they change only later.
        arguments: of the command.
    """
    answer = admin(manner.address, "decision-preview", decision=command, **arguments)
    before, after, lost = answer["before"], answer["after"], answer["data_lost"]
    say(f"The node at {manner.address} will {plan}:")
    for name, value in after.items():
        if value != before[name]:
            say(f"  {name.replace('_', ' ')}: {_text(before[name])} → {_text(value)}")
    if before == after:
        say("Nothing changed: it is so already.")
    elif manner.is_dry_run:
        say_losses(lost)
        say("Nothing was changed (--dry-run).")
    else:
        confirm(lost, is_forced=manner.is_forced)
        # One address may lead to several nodes; the node that showed the change must make it.
        done = admin(manner.address, command, **arguments, run_id=answer["run_id"])
        found = None if look is None else look(list(after))
        now = "" if found is None else ", ".join(f"{name.replace('_', ' ')} {_text(found[name])}" for name in found)
        say(f"Done: {done}." + (f" Now: {now}." if now else ""))
        after = found or after
    manner.report(before, after, lost)


def _say_alone(address: str, what: str) -> None:
    """Say which other members have log partitions, for what a command does at one node only."""
    if others := other_nodes(admin(address, "members")):
        say(f"{what}; repeat it for those of the others: {', '.join(f'--address {node.address}' for node in others)}.")


def _look_until_loaded(address: str, partition: int, wait_ms: int, fields: Sequence[str]) -> Facts | None:
    deadline_s = time.monotonic() + wait_ms / 1_000
    while True:
        found = _look_at(address, "partitions", "partition", partition, fields)
        if found is None or found["state"] != "loading" or time.monotonic() >= deadline_s:
            return found
        time.sleep(_LOOK_EVERY_S)


def _look_at(address: str, command: str, name: str, value: object, fields: Sequence[str]) -> Facts | None:
    row = next((row for row in admin(address, command) if row[name] == value), None)
    return None if row is None else {field: row[field] for field in fields}


def _text(value: object) -> str:
    return "none" if value is None else str(value)
