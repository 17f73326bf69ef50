"""`holdfast state` and `holdfast find`: the share-state calls, for one share partition or a few."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from holdfast.client import Client
from holdfast.client.errors import error_name
from holdfast.console.options import (
    BatchType,
    address_option,
    ask,
    dry_run_option,
    find_topic_id,
    json_option,
    share_partition_options,
    split_key,
)
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.output import STATE_NAMES, batch_data, batch_text, print_facts, print_json, print_table, say
from holdfast.console.tables import Column
from holdfast.records.batches import StateBatch
from holdfast.records.errors import InvalidKey
from holdfast.records.keys import SharePartitionKey, format_key, log_partition

T = TypeVar("T")

_epoch = click.IntRange(min=-1)


@click.group()
def state() -> None:
    """Read and change the delivery state of a share partition.

    Example: holdfast state read --group orders-workers --topic orders --partition 0
    """


@state.command()
@share_partition_options
@click.option("--state-epoch", type=click.IntRange(min=0), default=0, show_default=True, help="Epoch of the new state.")
@click.option("--start-offset", type=_epoch, default=-1, show_default=True, help="First offset; -1: not decided yet.")
@dry_run_option
@address_option
def init(
    group: str, topic: str, partition: int, state_epoch: int, start_offset: int, dry_run: bool, address: str
) -> None:
    """Create the state of a share partition, or begin a new state epoch of it.

    Example: holdfast state init --group orders-workers --topic orders --partition 0 --state-epoch 1 --start-offset 0
    """

    async def call(client: Client, topic_id: bytes) -> None:
        await client.initialize(group, topic_id, partition, state_epoch, start_offset)

    plan = f"initialize it with state epoch {state_epoch} and start offset {start_offset}"
    _change(address, (group, topic, partition), plan, dry_run, call)


@state.command()
@share_partition_options
@click.option(
    "--leader-epoch", type=_epoch, default=-1, show_default=True, help="Raises the leader epoch; -1 leaves it alone."
)
@json_option
@address_option
def read(group: str, topic: str, partition: int, leader_epoch: int, as_json: bool, address: str) -> None:
    """Show the state of a share partition: its start offset, and what became of the records from there on.

    Example: holdfast state read --group orders-workers --topic orders --partition 0
    """
    found = _call(
        address,
        (group, topic, partition),
        lambda client, topic_id: client.read(group, topic_id, partition, leader_epoch),
    )
    if as_json:
        batches = [batch_data(batch) for batch in found.state_batches]
        print_json({"state_epoch": found.state_epoch, "start_offset": found.start_offset, "state_batches": batches})
        return
    print_facts({"state epoch": found.state_epoch, "start offset": found.start_offset})
    if found.state_batches:
        click.echo()
        print_table(
            ("first", "last", "delivery state", "delivery count"),
            [
                (first, last, STATE_NAMES.get(delivery_state, delivery_state), count)
                for first, last, delivery_state, count in found.state_batches
            ],
            numbers=("first", "last", "delivery count"),
        )


@state.command()
@share_partition_options
@json_option
@address_option
def summary(group: str, topic: str, partition: int, as_json: bool, address: str) -> None:
    """Show the epochs of a share partition, its start offset and how many records behind it are finished.

    Example: holdfast state summary --group orders-workers --topic orders --partition 0
    """
    found = _call(
        address, (group, topic, partition), lambda client, topic_id: client.read_summary(group, topic_id, partition)
    )
    facts = {
        "state_epoch": found.state_epoch,
        "leader_epoch": found.leader_epoch,
        "start_offset": found.start_offset,
        "delivery_complete_count": found.delivery_complete_count,
    }
    if as_json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


@state.command()
@share_partition_options
@click.option("--state-epoch", type=_epoch, default=-1, show_default=True, help="Must be the current one; -1: any.")
@click.option("--leader-epoch", type=_epoch, default=-1, show_default=True, help="Must be the current one; -1: any.")
@click.option("--start-offset", type=_epoch, default=-1, show_default=True, help="New first offset; -1: unchanged.")
@click.option(
    "--delivery-complete-count", type=_epoch, default=-1, show_default=True, help="Finished records; -1: unknown."
)
@click.option("--batch", "batches", type=BatchType(), multiple=True, help="What became of a range of offsets.")
@dry_run_option
@address_option
def write(
    group: str,
    topic: str,
    partition: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
    dry_run: bool,
    address: str,
) -> None:
    """Record what became of ranges of offsets. States are available, acknowledged and archived.

    Example: holdfast state write --group orders-workers --topic orders --partition 0 --batch 0-9:acknowledged:1 --batch 10:available:2
    """

    async def call(client: Client, topic_id: bytes) -> None:
        await client.write(
            group, topic_id, partition, state_epoch, leader_epoch, start_offset, batches, delivery_complete_count
        )

    parts = [f"write {batch_text(batch)}" for batch in batches]
    if start_offset != -1:
        parts.append(f"move the start offset to {start_offset}")
    if not parts:
        raise Failure("There is nothing to write; give --batch or --start-offset.", Exit.WRONG_USAGE)
    _change(address, (group, topic, partition), ", ".join(parts), dry_run, call)


@state.command()
@share_partition_options
@dry_run_option
@address_option
def delete(group: str, topic: str, partition: int, dry_run: bool, address: str) -> None:
    """Delete the state of a share partition.

    Example: holdfast state delete --group orders-workers --topic orders --partition 0 --dry-run
    """

    async def call(client: Client, topic_id: bytes) -> None:
        await client.delete(group, topic_id, partition)

    _change(address, (group, topic, partition), "delete its state", dry_run, call)


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="GROUP:TOPIC:PARTITION...")
@json_option
@address_option
def find(keys: Sequence[str], as_json: bool, address: str) -> None:
    """Show which node coordinates share partitions. TOPIC is a name or an id.

    Example: holdfast find orders-workers:orders:0 orders-workers:orders:1
    """

    async def look_up(client: Client) -> list[dict[str, object]]:
        parsed = [await _parse_key(client, key) for key in keys]
        partition_count = (await client.admin("status"))["log_partitions"]
        rows: list[dict[str, object]] = []
        for key, answer in zip(parsed, await client.find(parsed), strict=True):
            is_found = isinstance(answer[0], str)
            rows.append(
                {
                    "key": format_key(key),
                    "coordinator": f"{answer[0]}:{answer[1]}" if is_found else None,
                    "log_partition": log_partition(key, partition_count) if partition_count else None,
                    "error": None if is_found else f"{error_name(int(answer[0]))}: {answer[1]}",
                }
            )
        return rows

    rows = ask(address, look_up)
    if as_json:
        print_json(rows)
    else:
        # As they were asked for: with the names of their topics.
        print_table(
            (
                "share partition",
                "coordinator",
                Column("log partition", is_number=True),
                Column("error", is_detail=True),
            ),
            [(key, *list(row.values())[1:]) for key, row in zip(keys, rows, strict=True)],
        )
    if any(row["error"] for row in rows):
        raise Failure("Not every share partition has a coordinator; `holdfast partitions` shows why.")


async def _parse_key(client: Client, text: str) -> SharePartitionKey:
    group, topic, partition = split_key(text)
    return SharePartitionKey(group, await find_topic_id(client, topic), partition)


def _call(address: str, named: tuple[str, str, int], call: Callable[[Client, bytes], Awaitable[T]]) -> T:
    async def with_topic(client: Client) -> T:
        return await call(client, await find_topic_id(client, named[1]))

    return ask(address, with_topic)


def _change(
    address: str,
    named: tuple[str, str, int],
    plan: str,
    is_dry_run: bool,
    call: Callable[[Client, bytes], Awaitable[None]],
) -> None:
    """Say what will be done to a share partition, and do it."""
    group, topic, partition = named

    async def announced(client: Client, topic_id: bytes) -> None:
        say(f"Share partition {format_key(SharePartitionKey(group, topic_id, partition))} ({topic}): {plan}.")
        if is_dry_run:
            say("Nothing was changed (--dry-run).")
            return
        await call(client, topic_id)
        say("Done.")

    try:
        _call(address, named, announced)
    except InvalidKey as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
