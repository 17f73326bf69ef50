"""What is true in the end: found in the log, read back from the daemon, and compared with what was answered."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from demo.orders import Placed
from demo.share_partition import Delivery, by_offset
from demo.worker import GROUP, STATE_EPOCH, Ledger
from holdfast.client import Client, ShareStateError
from holdfast.console.sources.log_reader import LogReader
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.values import Snapshot, Update


class LogContents(NamedTuple):
    """What the state topic holds."""

    kinds: Counter[str]  #: records that count, by kind
    size_bytes: Counter[str]  #: keys and values of those, by kind
    void_records: int
    owner_epochs: Counter[int]  #: records that count, by owner epoch
    deliveries: dict[int, dict[int, Delivery]]  #: partition and offset to what was written about it last
    start_offsets: dict[int, int]  #: by partition; all records below it are finished


class Check(NamedTuple):
    """Something that must hold."""

    claim: str
    holds: bool
    details: Sequence[str] = ()  #: what differs, where it does not hold


def read_log(bootstrap_servers: str, state_topic: str) -> LogContents:
    """Read the whole log as any other program could."""
    contents = LogContents(Counter(), Counter(), 0, Counter(), {}, {})
    reader = LogReader({"bootstrap.servers": bootstrap_servers}, state_topic)
    try:
        for entry in reader.read():
            if not entry.counts or entry.owner_epoch is None:
                contents = contents._replace(void_records=contents.void_records + 1)
                continue
            contents.kinds[entry.kind] += 1
            contents.size_bytes[entry.kind] += entry.size_bytes
            contents.owner_epochs[entry.owner_epoch] += 1
            if entry.key is not None and isinstance(entry.value, Snapshot | Update):
                known = contents.deliveries.setdefault(entry.key.partition, {})
                known |= by_offset(entry.value.state_batches)
                before = contents.start_offsets.get(entry.key.partition, 0)
                contents.start_offsets[entry.key.partition] = max(before, entry.value.start_offset)
    finally:
        reader.close()
    return contents


async def judge(
    client: Client, topic_id: bytes, orders: Placed, ledgers: Mapping[int, Ledger], contents: LogContents
) -> list[Check]:
    """Compare all there is; `ledgers` and `orders` are by partition."""
    differing = [
        f"order {order.number} (partition {partition}, offset {offset}): {order.outcome()} expected, {written} found"
        for partition, placed in enumerate(orders)
        for offset, order in placed.items()
        if (written := contents.deliveries[partition].get(offset)) != order.outcome()
    ]
    read_back, is_complete, is_fenced = True, True, False
    for partition, ledger in ledgers.items():
        summary = await client.read_summary(GROUP, topic_id, partition)
        found = await client.read(GROUP, topic_id, partition, summary.leader_epoch)
        read_back &= (found.start_offset, tuple(found.state_batches)) == (ledger.start_offset, tuple(ledger.batches))
        is_complete &= found.start_offset + summary.delivery_complete_count == len(orders[partition])
    try:
        late = [StateBatch(0, len(orders[0]) - 1, 0, 1)]
        await client.write(GROUP, topic_id, 0, STATE_EPOCH, leader_epoch=1, start_offset=-1, state_batches=late)
    except ShareStateError as refusal:
        is_fenced = refusal.name == "FENCED_LEADER_EPOCH"
    return [
        Check("Every order was acknowledged, or archived where it never succeeds.", not differing, differing[:1]),
        Check("The state read back is what was answered, batch by batch.", read_back),
        Check("The daemon counts every order as finished.", is_complete),
        Check("A late write of the dead worker is refused (FENCED_LEADER_EPOCH).", is_fenced),
    ]
