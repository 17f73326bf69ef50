"""The commands that change the state of a share partition."""

from collections.abc import Sequence

import click

from holdfast.client import Client
from holdfast.console.commands.state.apply import CURRENT_EPOCH, Named, StateChange, change
from holdfast.console.commands.state.start_offsets import Edge, StartOffset, find_offset
from holdfast.console.confirmation import Manner, change_options
from holdfast.console.options import EPOCH_OR_NONE, INT32_MAX, BatchType, share_partition_options
from holdfast.console.outcomes import Exit, Failure
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

_beyond_option = click.option(
    "--beyond-the-end", is_flag=True, help="Also decide about records that the topic does not have yet."
)


@click.command()
@share_partition_options
@click.option(
    "--state-epoch", type=click.IntRange(0, INT32_MAX), default=0, show_default=True, help="Epoch of the new state."
)
@click.option(
    "--start-offset",
    type=StartOffset(),
    default=-1,
    show_default=True,
    help="First offset: a number, `earliest` or `latest`; -1: not decided yet.",
)
@_beyond_option
@change_options
def init(
    group: str,
    topic: str,
    partition: int,
    state_epoch: int,
    start_offset: int | Edge,
    beyond_the_end: bool,
    manner: Manner,
) -> None:
    """Create the state of a share partition, or begin a new state epoch of it, which forgets the state that is there.

    Example: holdfast state init --group orders-workers --topic orders --partition 0 --state-epoch 1 --start-offset 0
    """
    first_offset = find_offset(manner.address, Named(group, topic, partition), "initialize", start_offset)

    async def make(client: Client, key: SharePartitionKey, seen: ShareState | None) -> object:
        return await client.initialize(group, key.topic_id, partition, state_epoch, first_offset)

    fields = {"state_epoch": state_epoch, "start_offset": first_offset}
    wanted = StateChange("initialize", fields, make, first_offset)
    change(Named(group, topic, partition), manner, wanted, may_pass_end=beyond_the_end)


@click.command()
@share_partition_options
@click.option(
    "--state-epoch",
    type=EPOCH_OR_NONE,
    default=CURRENT_EPOCH,
    show_default=True,
    help="Must be the current one; -1: that.",
)
@click.option(
    "--leader-epoch",
    type=EPOCH_OR_NONE,
    default=CURRENT_EPOCH,
    show_default=True,
    help="Must be the current one; -1: that.",
)
@click.option(
    "--start-offset",
    type=StartOffset(),
    default=-1,
    show_default=True,
    help="New first offset: a number, `earliest` or `latest`; it never goes back; -1: unchanged.",
)
@click.option(
    "--delivery-complete-count",
    type=EPOCH_OR_NONE,
    default=-1,
    show_default=True,
    help="Finished records from the start offset on; -1: unknown.",
)
@click.option("--batch", "batches", type=BatchType(), multiple=True, help="New state of a range of offsets.")
@_beyond_option
@change_options
def write(
    group: str,
    topic: str,
    partition: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int | Edge,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
    beyond_the_end: bool,
    manner: Manner,
) -> None:
    """Record what became of ranges of offsets. States are available, acknowledged, archiving and archived.

    For every offset the highest delivery count wins, and of equal counts the highest state.
    So a write may change less than it says, or nothing.

    Example: holdfast state write --group orders-workers --topic orders --partition 0 --batch 0-9:acknowledged:1 --batch 10:available:2
    """
    if not batches and start_offset == -1:
        raise Failure("There is nothing to write; give --batch or --start-offset.", Exit.WRONG_USAGE)
    if delivery_complete_count != -1 and start_offset == -1:
        raise Failure(
            "--delivery-complete-count counts from a start offset on, so it is taken with one only; give --start-offset.",
            Exit.WRONG_USAGE,
        )
    first_offset = find_offset(manner.address, Named(group, topic, partition), "write", start_offset)

    async def make(client: Client, key: SharePartitionKey, seen: ShareState | None) -> object:
        # A leader or an Initialize that came since the look has raised its epoch, and this write is refused.
        assert seen is not None
        epochs = max(0, seen.state_epoch_fence), max(0, seen.leader_epoch_fence)
        return await client.write(
            group, key.topic_id, partition, *epochs, first_offset, batches, delivery_complete_count
        )

    fields = {
        "state_epoch": state_epoch,
        "leader_epoch": leader_epoch,
        "start_offset": first_offset,
        "delivery_complete_count": delivery_complete_count,
        "state_batches": [list(batch) for batch in batches],
    }
    behind_offset = max(first_offset, *(batch.last_offset + 1 for batch in batches), 0)
    wanted = StateChange("write", fields, make, behind_offset)
    change(Named(group, topic, partition), manner, wanted, may_pass_end=beyond_the_end)


@click.command()
@share_partition_options
@change_options
def delete(group: str, topic: str, partition: int, manner: Manner) -> None:
    """Delete the state of a share partition.

    Example: holdfast state delete --group orders-workers --topic orders --partition 0 --dry-run
    """

    async def make(client: Client, key: SharePartitionKey, seen: ShareState | None) -> object:
        return await client.delete(group, key.topic_id, partition)

    change(Named(group, topic, partition), manner, StateChange("delete", {}, make))


def raise_leader_epoch(named: Named, leader_epoch: int, address: str, *, is_dry_run: bool) -> None:
    """Raise the leader epoch of a share partition, as a leader does that reads its state."""

    async def make(client: Client, key: SharePartitionKey, seen: ShareState | None) -> object:
        return await client.read(key.group_id, key.topic_id, key.partition, leader_epoch)

    manner = Manner(address, is_dry_run, is_forced=False, is_json=False)
    change(named, manner, StateChange("read", {"leader_epoch": leader_epoch}, make))
