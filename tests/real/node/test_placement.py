"""Which log partition has the state of a share partition: by topic partition in a new topic, as before in one that was served."""

from __future__ import annotations

import pytest

from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.console.sources.log_reader import find_placement
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.log.checkpoint import Placement, decode_checkpoint, is_checkpoint_key
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.keys import SharePartitionKey, log_partition
from tests.real.log.long_log import write_long_log
from tests.real.nodes import topic_id_of
from tests.real.running_node import make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

LOG_PARTITIONS = 2
GROUPS = ("reports", "invoices")


def read_places(kafka: str, topic: str) -> tuple[dict[SharePartitionKey, int], set[Placement]]:
    """Return in which log partition each share partition lies, and what the checkpoints say."""
    places: dict[SharePartitionKey, int] = {}
    placements: set[Placement] = set()
    for index in range(LOG_PARTITIONS):
        for record in read_log(kafka, topic, index):
            if is_checkpoint_key(record.key or b""):
                placements.add(decode_checkpoint(record.value or b"").placement)
            else:
                key = decode_record(record.key, record.value).key
                assert places.setdefault(key, index) == index
    return places, placements


async def test_new_topic_has_states_of_all_groups_together(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    orders, settings = topic_id_of(kafka, new_topic(8)), make_settings(kafka, topic)
    keys = [SharePartitionKey(group, orders, partition) for group in GROUPS for partition in range(8)]
    async with running(settings) as node:
        for key in keys:
            await node.client.initialize(*key, state_epoch=1, start_offset=key.partition)
        assert (await node.client.admin("status"))["placement"] == "BY_TOPIC_PARTITION"
    async with running(settings) as node:
        assert [(await node.client.read(*key, 1)).start_offset for key in keys] == [key.partition for key in keys]
    places, placements = read_places(kafka, topic)
    assert placements == {Placement.BY_TOPIC_PARTITION}
    assert places == {key: log_partition(key, LOG_PARTITIONS, Placement.BY_TOPIC_PARTITION) for key in keys}
    assert {places[key] for key in keys} == {0, 1}
    with KafkaReader({"bootstrap.servers": kafka}) as reader:
        assert find_placement(reader, topic) is Placement.BY_TOPIC_PARTITION


async def test_topic_that_was_served_before_stays_by_group(kafka: str, new_topic: NewTopicFactory) -> None:
    orders = topic_id_of(kafka, new_topic(8))
    topic = new_topic(LOG_PARTITIONS, **{name.replace(".", "_"): value for name, value in FIXED_CONFIG.items()})
    keys = [SharePartitionKey(group, orders, partition) for group in GROUPS for partition in range(8)]
    write_long_log(kafka, topic, keys[::2], LOG_PARTITIONS, 3)
    async with running(make_settings(kafka, topic)) as node:
        for key in keys[1::2]:
            await node.client.initialize(*key, state_epoch=1, start_offset=0)
        for key in keys[::2]:
            assert (await node.client.read(*key, 1)).state_batches
        assert (await node.client.admin("status"))["placement"] == "BY_GROUP"
    places, placements = read_places(kafka, topic)
    assert placements == {Placement.BY_GROUP}
    assert places == {key: log_partition(key, LOG_PARTITIONS) for key in keys}
