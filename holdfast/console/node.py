"""What a running node tells and takes: status, settings, metrics, its log partitions, and an admin's decisions."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.console.options import address_option, admin, dry_run_option, json_option
from holdfast.console.outcomes import Failure
from holdfast.console.output import print_facts, print_json, print_table, say
from holdfast.records.admin import reason_problem

_PARTITION_COLUMNS = ("partition", "state", "owner", "owner_epoch", "written", "committed", "log_start", "keys")
_NUMBERS = ("partition", "owner epoch", "written", "committed", "log start", "keys")

_partition_argument = click.argument("partition", type=click.IntRange(min=0))


def _check_reason(context: click.Context, parameter: click.Parameter, reason: str) -> str:
    problem = reason_problem(reason)
    if problem:
        raise click.BadParameter(f"{problem}.")
    return reason


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
    told = admin(address, "status")
    if as_json:
        print_json(told)
    else:
        print_facts({name.replace("_", " "): value for name, value in told.items()})
    if not (told["is_ready"] or alive):
        raise Failure(f"The node is not ready: {told.get('why_not_ready') or 'it does not say why'}.")


@click.command()
@click.argument("part", default="")
@json_option
@address_option
def settings(part: str, as_json: bool, address: str) -> None:
    """Show the settings with which a node runs, secrets hidden; with PART only those whose name holds it.

    Example: holdfast settings timeout
    """
    told = {name: value for name, value in admin(address, "settings").items() if part in name}
    if as_json:
        print_json(told)
    else:
        print_table(("setting", "value"), told.items())


@click.command()
@click.argument("part", default="")
@json_option
@address_option
def metrics(part: str, as_json: bool, address: str) -> None:
    """Show what a node counts and measures; with PART only those whose name holds it.

    Example: holdfast metrics latency
    """
    told = {name: value for name, value in sorted(admin(address, "metrics").items()) if part in name}
    if as_json:
        print_json(told)
    else:
        print_table(("metric", "value"), [(name, f"{value:,.10g}") for name, value in told.items()], numbers=("value",))


@click.group(invoke_without_command=True)
@click.option(
    "--why-not-pruned", is_flag=True, help="What keeps each log from getting shorter: the key or reader in the way."
)
@json_option
@address_option
@click.pass_context
def partitions(context: click.Context, why_not_pruned: bool, as_json: bool, address: str) -> None:
    """Show the log partitions of a node: who owns each, in which state, and how far it is.

    Example: holdfast partitions --why-not-pruned
    """
    if context.invoked_subcommand is not None:
        return
    told = admin(address, "partitions")
    if why_not_pruned:
        _print_why_not_pruned(told, as_json)
        return
    if as_json:
        print_json(told)
        return
    print_table(
        [name.replace("_", " ") for name in _PARTITION_COLUMNS],
        [[row[name] for name in _PARTITION_COLUMNS] for row in told],
        numbers=_NUMBERS,
    )
    same: dict[tuple[str, str], list[int]] = {}  # the log partitions of which one thing is to be said
    for row in told:
        if row["is_alarmed"]:
            way_out = f"`holdfast partitions accept {row['partition']} --reason …` ends the alarm"
            say(f"Partition {row['partition']} is {row['state']}: {row['failure']}; {way_out}.")
        elif row["failure"]:
            same.setdefault((row["state"], row["failure"]), []).append(row["partition"])
    for (state, failure), numbers in same.items():
        which = f"Partition {numbers[0]} is" if len(numbers) == 1 else f"Partitions {', '.join(map(str, numbers))} are"
        say(f"{which} {state}: {failure}.")


def _print_why_not_pruned(told: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    columns = ("partition", "log_start", "log_bytes", "dead_bytes", "why_not_pruned")
    if as_json:
        print_json([{name: row[name] for name in (*columns, "oldest_key", "oldest_snapshot_offset")} for row in told])
    else:
        print_table(
            [name.replace("_", " ") for name in columns],
            [[row[name] for name in columns] for row in told],
            numbers=("partition", "log start", "log bytes", "dead bytes"),
        )


@partitions.command()
@_partition_argument
@dry_run_option
@address_option
def take(partition: int, dry_run: bool, address: str) -> None:
    """Let this node take a log partition, whoever has it now.

    Example: holdfast partitions take 7 --dry-run
    """
    plan = f"take log partition {partition} with the next owner epoch; its owner, if there is one, stops serving it"
    _decide(address, plan, dry_run, "partitions-take", partition=partition)


@partitions.command()
@_partition_argument
@_reason_option
@dry_run_option
@address_option
def accept(partition: int, reason: str, dry_run: bool, address: str) -> None:
    """End the alarm of a log partition: go on with the log as it is, and with what it has lost.

    Example: holdfast partitions accept 7 --reason "restored from last night's backup" --dry-run
    """
    plan = f"take log partition {partition} with a checkpoint that accepts its log as it is, because: {reason}"
    _decide(address, plan, dry_run, "partitions-accept", partition=partition, reason=reason)


@click.group()
def topics() -> None:
    """Decide about topics whose state the node holds.

    Example: holdfast topics accept-deleted --reason "the shop was closed" --dry-run
    """


@topics.command("accept-deleted")
@_reason_option
@dry_run_option
@address_option
def accept_deleted(reason: str, dry_run: bool, address: str) -> None:
    """Let the state of deleted topics go, where the node has stopped because there are so many of them.

    Example: holdfast topics accept-deleted --reason "the shop was closed" --dry-run
    """
    plan = "write tombstones for all share partitions of the topics that the cluster does not know any more"
    _decide(address, plan, dry_run, "topics-accept-deleted", reason=reason)


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
    told = admin(address, "readers")
    if as_json:
        print_json(told)
        return
    columns = ("group", "state", "behind", "still_ms")
    print_table(
        [name.replace("_", " ") for name in columns],
        [[row[name] for name in columns] for row in told],
        numbers=("behind", "still ms"),
    )


@readers.command("drop")
@click.argument("group")
@click.option("--reason", required=True, callback=_check_reason, help="Why; it stands in a log line of the node.")
@dry_run_option
@address_option
def drop_reader(group: str, reason: str, dry_run: bool, address: str) -> None:
    """Prune the log past a reader that is gone; it is one again when it commits, or when the node restarts.

    Example: holdfast readers drop audit --reason "it was switched off in May" --dry-run
    """
    plan = f"prune the log past the offsets that {group} has committed, so that it may miss records when it comes back"
    _decide(address, plan, dry_run, "readers-drop", group=group, reason=reason)


def _decide(address: str, plan: str, is_dry_run: bool, command: str, **arguments: object) -> None:
    say(f"The node at {address} will {plan}.")
    if is_dry_run:
        say("Nothing was changed (--dry-run).")
    else:
        say(f"Done: {admin(address, command, **arguments)}.")
