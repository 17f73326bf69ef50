"""`holdfast groups kafka`: the groups of every type that the brokers of any Kafka coordinate, with their members and offsets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from holdfast.console.confirmation import confirm, say_losses
from holdfast.console.options import ask_brokers, dry_run_option, json_option, kafka_options, kafka_properties
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import counted, print_json, print_table, say
from holdfast.console.show.tables import Column
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.group_calls import SHARE, Deleted, Described
from holdfast.kafka.discovery.group_offset_calls import Offsets
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.protocol.error_codes import ErrorCode, error_name

T = TypeVar("T")

_group_ids = click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")


@click.group()
def kafka() -> None:
    """Look at the groups of every type that Kafka's brokers coordinate, and delete them.

    Example: holdfast groups kafka list --bootstrap-server 127.0.0.1:9092
    """


@kafka.command("list")
@json_option
@kafka_options
def list_groups(as_json: bool, bootstrap_server: str, properties: Sequence[str]) -> None:
    """Show the groups of all brokers. Its exit code is 1 where a broker does not answer; the others' groups are shown.

    Example: holdfast groups kafka list --bootstrap-server 127.0.0.1:9092
    """
    found = _ask(bootstrap_server, properties, Groups.list_all)
    if as_json:
        print_json([each._asdict() for each in found.groups])
    else:
        rows = [(each.group, each.group_type or None, each.state or None, each.protocol_type) for each in found.groups]
        print_table(("group", "type", "state", "protocol"), rows)
    for address, why in found.failures.items():
        say(f"The groups of {format_address(*address)} are not known: {why}")
    if found.failures:
        raise Failure(f"{counted(len(found.failures), 'broker')} did not list groups.")


@kafka.command()
@_group_ids
@click.option("--offsets", "has_offsets", is_flag=True, help="Show the committed offsets, too.")
@json_option
@kafka_options
def describe(
    group_ids: Sequence[str], has_offsets: bool, as_json: bool, bootstrap_server: str, properties: Sequence[str]
) -> None:
    """Show state and members of classic, consumer and share groups, with one request for each coordinator and type.

    For a group of another type, such as a streams group, it shows type and state, and says that it cannot be described.
    Its exit code is 6 where there is no such group, and 1 where a group could not be described otherwise; the others are shown.

    Example: holdfast groups kafka describe orders-readers payments-readers
    """

    async def look(groups: Groups) -> tuple[dict[str, Described], dict[str, Offsets]]:
        if not has_offsets:
            return await groups.describe_or_name(group_ids), {}
        described, offsets = await _with_offsets(groups, group_ids)
        return described, {each: found for each, found in offsets.items() if described[each].group_type != SHARE}

    described, offsets = _ask(bootstrap_server, properties, look)
    rows = [_described_row(each, found, offsets.get(each)) for each, found in described.items()]
    if as_json:
        print_json(rows)
    else:
        columns = ("group", "type", "state", "protocol", Column("members", is_number=True))
        cells = [(*(row[name] for name in columns[:4]), len(row["members"]), row["error"]) for row in rows]
        print_table((*columns, Column("error", is_detail=True)), cells)
        _print_offsets(rows)
    if has_offsets:
        for each in (each for each, found in described.items() if found.group_type == SHARE):
            say(
                f"{each} is a share group and commits no offsets; `holdfast groups describe {each}` shows how far it is."
            )
    _fail_for({each: (found.error_code, found.reason) for each, found in described.items()})
    _fail_for({each: (found.error_code(), found.problem()) for each, found in offsets.items()})


@kafka.command()
@_group_ids
@dry_run_option
@click.option("--force", is_flag=True, help="Do it also where offsets are lost, without a prompt.")
@json_option
@kafka_options
def delete(
    group_ids: Sequence[str],
    dry_run: bool,
    force: bool,
    as_json: bool,
    bootstrap_server: str,
    properties: Sequence[str],
) -> None:
    """Delete groups without members, with one request for each coordinator; committed offsets and delivery state go with them.

    The data of a group whose type cannot be described here is not known, and counts as data that goes.
    Its exit code is 6 where there is no such group, and 1 where a group could not be deleted otherwise; the others are deleted.

    Example: holdfast groups kafka delete orders-readers --dry-run
    """
    described, committed = _ask(bootstrap_server, properties, lambda groups: _with_offsets(groups, group_ids))
    losses = _losses(described, committed)
    if dry_run:
        say_losses(losses)
        say("Nothing was changed (--dry-run).")
        deleted = {each: _would_be(found) for each, found in described.items()}
    else:
        confirm(losses, is_forced=force)
        deleted = _ask(bootstrap_server, properties, lambda groups: groups.delete(group_ids))
    rows = [(each, not found.error_code, _error(found)) for each, found in deleted.items()]
    if as_json:
        print_json([{"group": each, "deleted": ok and not dry_run, "error": error} for each, ok, error in rows])
    else:
        title = "would be deleted" if dry_run else "deleted"
        print_table(("group", title, Column("error", is_detail=True)), rows)
    _fail_for({each: (found.error_code, found.reason) for each, found in deleted.items()})


def _ask(bootstrap_server: str, properties: Sequence[str], question: Callable[[Groups], Awaitable[T]]) -> T:
    timeout_ms = int(READ_TIMEOUT_S * 1_000)
    return ask_brokers(
        kafka_properties(bootstrap_server, properties), lambda links: question(Groups(links, timeout_ms))
    )


async def _with_offsets(groups: Groups, group_ids: Sequence[str]) -> tuple[dict[str, Described], dict[str, Offsets]]:
    """Return what groups are and what they committed, requested together, so that neither waits for the other."""
    return await asyncio.gather(groups.describe_or_name(group_ids), groups.offsets(group_ids))


def _error(found: Described | Deleted) -> str | None:
    if not found.error_code:
        return None
    name = error_name(found.error_code)
    return f"{name}: {found.reason}" if found.reason else name


def _losses(described: Mapping[str, Described], committed: Mapping[str, Offsets]) -> list[str]:
    """Return what goes with these groups; what is not known of one that may exist is such a loss, too."""
    losses = [
        f"the offsets of {counted(len(each.committed), 'partition')} that {group_id} committed"
        for group_id, each in committed.items()
        if each.committed
    ]
    for group_id, found in described.items():
        offsets = committed.get(group_id)
        if found.group_type == SHARE:
            losses.append(f"the delivery state of the share group {group_id}")
        elif found.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            losses.append(f"what {group_id} has, which is not known ({_error(found)})")
        elif offsets is not None and offsets.error_code() not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            losses.append(f"the offsets of {group_id}, which are not known ({offsets.problem()})")
    return losses


def _would_be(found: Described) -> Deleted:
    """Return what a coordinator would say of the deletion of a group."""
    if found.is_only_listed and found.state == "Empty":
        return Deleted()
    if found.is_only_listed:
        return Deleted(ErrorCode.NON_EMPTY_GROUP, f"its state is {found.state}")
    if not found.error_code and found.members:
        return Deleted(ErrorCode.NON_EMPTY_GROUP, "it has members")
    return Deleted(found.error_code, found.reason)


def _described_row(group_id: str, found: Described, offsets: Offsets | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "group": group_id,
        "type": found.group_type or None,
        "state": found.state or None,
        "protocol_type": found.protocol_type or None,
        "protocol": found.protocol or None,
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.host,
            }
            for each in found.members
        ],
        "error": _error(found),
    }
    if offsets is not None:
        row["offsets"] = [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in sorted(offsets.committed.items())
        ]
        row["offsets_error"] = offsets.problem() or None
    return row


def _print_offsets(rows: Sequence[Mapping[str, Any]]) -> None:
    offsets = [(row["group"], *each.values()) for row in rows for each in row.get("offsets", ())]
    if offsets:
        click.echo()
        print_table(("group", "topic", "partition", "offset"), offsets, numbers=("partition", "offset"))


def _fail_for(errors: Mapping[str, tuple[int, str]]) -> None:
    """End with a failure where a group has an error; that of a group that does not exist has an exit code of its own."""
    failed = {group_id: error for group_id, error in errors.items() if error[0]}
    if not failed:
        return
    are_missing = all(code == ErrorCode.GROUP_ID_NOT_FOUND for code, _ in failed.values())
    text = "; ".join(f"{group_id}: {error_name(code)}" for group_id, (code, _) in failed.items())
    raise Failure(f"{text}. `holdfast groups kafka list` shows all.", Exit.NOT_FOUND if are_missing else Exit.FAILED)
