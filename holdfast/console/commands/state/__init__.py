"""`holdfast state`: the share-state calls, for one share partition or a few."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from holdfast.api.results import SummaryResult
from holdfast.client import Client, ShareStateError
from holdfast.console.commands.state.apply import CURRENT_EPOCH, Named, look_at, missing
from holdfast.console.commands.state.changes import delete, init, raise_leader_epoch, write
from holdfast.console.commands.state.denials import query_about
from holdfast.console.lazy_commands import LazyCommands
from holdfast.console.options import (
    EPOCH_OR_NONE,
    address_option,
    dry_run_option,
    find_topic_id,
    json_option,
    share_partition_options,
)
from holdfast.console.show.output import batch_data, print_facts, print_json, print_table
from holdfast.records.share.batches import STATE_NAMES
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

T = TypeVar("T")

#: The summary of a share partition that has no state; one that has may look the same.
_NO_STATE = SummaryResult(start_offset=-1)


@click.group(commands=LazyCommands({"list": "groups:list_states"}))
def state() -> None:
    """Read and change the delivery state of a share partition.

    Example: holdfast state read --group orders-workers --topic orders --partition 0
    """


@state.command()
@share_partition_options
@click.option(
    "--leader-epoch",
    type=EPOCH_OR_NONE,
    default=CURRENT_EPOCH,
    show_default=True,
    help="Raises the leader epoch, so that leaders with a lower one are refused; -1 leaves it alone.",
)
@dry_run_option
@json_option
@address_option
def read(group: str, topic: str, partition: int, leader_epoch: int, dry_run: bool, as_json: bool, address: str) -> None:
    """Show the state of a share partition: its start offset, and what became of the records from there on.

    Example: holdfast state read --group orders-workers --topic orders --partition 0
    """
    named = Named(group, topic, partition)
    if leader_epoch != CURRENT_EPOCH:
        raise_leader_epoch(named, leader_epoch, address, is_dry_run=dry_run)
    found = _call(address, named, lambda client, topic_id: _read(client, SharePartitionKey(group, topic_id, partition)))
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
    """Show the epochs of a share partition, its start offset and how many records after it are finished.

    Example: holdfast state summary --group orders-workers --topic orders --partition 0
    """
    named = Named(group, topic, partition)

    async def summarize(client: Client, topic_id: bytes) -> SummaryResult:
        found = await client.read_summary(group, topic_id, partition)
        if found == _NO_STATE:
            # Kafka answers so for a share partition without state, too, so a call is made that is refused for such a one.
            await _read(client, SharePartitionKey(group, topic_id, partition))
        return found

    found = _call(address, named, summarize)
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


for command in (init, write, delete):
    state.add_command(command)


async def _read(client: Client, key: SharePartitionKey) -> ShareState:
    """Return the newest state of a share partition; a call of Read would need the leader epoch that is current.

    Raises:
        ShareStateError: it has no state, or is not served.
    """
    found, refusal = await look_at(client, key)
    if refusal is not None:
        raise refusal
    assert found is not None
    return found


def _call(address: str, named: Named, call: Callable[[Client, bytes], Awaitable[T]]) -> T:
    """Make a call about a share partition, and return its answer.

    Raises:
        Failure: it has no state, or the call failed for another reason.
    """

    async def with_topic(client: Client) -> T:
        topic_id = await find_topic_id(client, named.topic)
        try:
            return await call(client, topic_id)
        except ShareStateError as error:
            # Read is refused alike where a group id is too long, which Summary refuses as well.
            if error.name == "INVALID_REQUEST":
                found = await client.read_summary(named.group, topic_id, named.partition)
                if found == _NO_STATE:
                    raise missing(named) from None
            raise

    return query_about(address, named.group, named.topic, "read", with_topic)
