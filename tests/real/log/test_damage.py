"""A bit that flips on a broker's disk: its log partition says so, and the others serve."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.log_reader import LogReader, LogSelection
from holdfast.daemon.settings.models import Settings
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.runtime.partition.states import State
from tests.real.nodes import topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import LONG_SESSION
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

SHARE_PARTITIONS = 20
LOG_PARTITIONS = 4


def batches_in(segment: Path) -> int:
    """Return the number of record batches of a segment."""
    whole, count, at = segment.read_bytes(), 0, 0
    while at < len(whole):
        count, at = count + 1, at + 12 + int.from_bytes(whole[at + 8 : at + 12], "big")
    return count


def flip_a_bit(segment: Path, batch: int = 1) -> tuple[bytes, int]:
    """Damage a batch of a segment, counted from 0; returns what the segment was and the batch's base offset."""
    whole = segment.read_bytes()
    at = stop = 0
    for _ in range(batch + 1):
        at, stop = stop, stop + 12 + int.from_bytes(whole[stop + 8 : stop + 12], "big")
    damaged = bytearray(whole)
    damaged[stop - 3] ^= 1
    segment.write_bytes(bytes(damaged))
    return whole, int.from_bytes(whole[at : at + 8], "big")


def assert_dump_ends_at(servers: str, topic: str, partition: int, offset: int) -> None:
    reader = LogReader({"bootstrap.servers": servers}, topic)
    shown: list[int] = []
    with closing(reader), pytest.raises(Failure) as refused:
        shown.extend(entry.offset for entry in reader.read(LogSelection((partition,))))
    assert refused.value.exit_code is Exit.FAILED
    assert f"{topic} partition {partition} cannot be read on: the record batch at offset {offset} is damaged" in (
        refused.value.message
    )
    assert shown == list(range(offset)), "what lies before it, and nothing of it"


async def write_all(settings: Settings, topic_id: bytes) -> None:
    async with running(settings) as node:
        for partition in range(SHARE_PARTITIONS):
            await node.client.initialize("g", topic_id, partition, 1, 0)
            await node.client.write("g", topic_id, partition, 1, 0, -1, [StateBatch(7, 7, ACKNOWLEDGED, 1)])


@pytest.mark.parametrize(
    ("damaged", "batch"), [(0, 1), (LOG_PARTITIONS - 1, 0)], ids=["a later batch", "the first batch"]
)
async def test_one_damaged_batch_on_a_disk_stops_its_own_log_partition_alone(
    topic: str, tmp_path: Path, damaged: int, batch: int
) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA, properties=LONG_SESSION) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("queue", SHARE_PARTITIONS, 1)])["queue"].result(PATIENCE_S)
        settings = make_settings(
            servers, topic, **{"share.coordinator.state.topic.num.partitions": LOG_PARTITIONS, "snapshots.topic": ""}
        )
        await write_all(settings, topic_id_of(servers, "queue"))
        kafka.stop()
        (segment,) = (tmp_path / "kafka").rglob(f"{topic}-{damaged}/00000000000000000000.log")
        whole, offset = flip_a_bit(segment, batch)
        kafka.restart()

        node = RunningNode(settings)
        try:
            await node.until(
                lambda: (
                    [held.state for held in node.partitions() if held.index != damaged]
                    == [State.ACTIVE] * (LOG_PARTITIONS - 1)
                    and any(held.is_alarmed for held in node.partitions())
                ),
                "the others serve, and one says that it is damaged",
            )
            (hurt,) = (held for held in node.partitions() if held.index == damaged)
            await node.until(
                lambda: (
                    f"the record batch at offset {offset} is damaged: its checksum is wrong" in (hurt.failure or "")
                ),
                "the offset is named",
            )
            assert not node.node.is_ready
            await asyncio.to_thread(assert_dump_ends_at, servers, topic, damaged, offset)
            # The copy is made whole, as by another leader; the broker reads its file again.
            segment.write_bytes(whole)
            await node.ready()
            assert hurt.state is State.ACTIVE
        finally:
            await asyncio.shield(node.stop())
