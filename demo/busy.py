"""A busier time: many groups write the state of many share partitions, so that there is a log worth folding."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from confluent_kafka.cimpl import NewTopic

from demo.worker import PATIENT, STATE_EPOCH
from holdfast.api.results import (
    InitializePartition,
    InitializeResult,
    ReadPartition,
    ReadResult,
    WritePartition,
    WriteResult,
)
from holdfast.client import connect
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey

GROUPS: Final = 20
PARTITIONS: Final = 100
UPDATES: Final = 20
#: No leader has read the states, so none is fenced.
LEADER_EPOCH: Final = 0
_KAFKA_TIMEOUT_S: Final = 30.0

#: What share partitions were answered: start offset and batches.
Answered = Mapping[SharePartitionKey, tuple[int, tuple[StateBatch, ...]]]


async def write_much(daemon: str, bootstrap_servers: str, name: str) -> Answered:
    """Make a topic and write the state of its share partitions again and again; returns what was written last.

    Raises:
        RuntimeError: a write was refused.
    """
    with KafkaClients({"bootstrap.servers": bootstrap_servers}).admin() as admin:
        await asyncio.to_thread(admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result, _KAFKA_TIMEOUT_S)
    random = Random(name)
    answered: dict[SharePartitionKey, tuple[int, tuple[StateBatch, ...]]] = {}
    async with connect(daemon, PATIENT) as client:
        topic_id = parse_topic_id((await client.admin("resolve-topic", name=name))["topic_id"])

        async def live(group: str) -> None:
            beginnings = [(topic_id, InitializePartition(index, STATE_EPOCH, 0)) for index in range(PARTITIONS)]
            results: list[InitializeResult | WriteResult] = [*await client.initialize_many(group, beginnings)]
            for update in range(UPDATES):
                writes = []
                for index in range(PARTITIONS):
                    # Ten more records are finished, but for one that will be delivered again.
                    first, again = 10 * update, 10 * update + random.randrange(10)
                    batches = (StateBatch(first, first + 9, ACKNOWLEDGED, 1), StateBatch(again, again, AVAILABLE, 2))
                    writes.append((topic_id, WritePartition(index, STATE_EPOCH, LEADER_EPOCH, first, 9, batches)))
                    if update == UPDATES - 1:
                        answered[SharePartitionKey(group, topic_id, index)] = first, batches
                results += await client.write_many(group, writes)
            if refused := [result for result in results if result.error_code]:
                raise RuntimeError(f"{len(refused)} writes were refused, the first with {refused[0].error_message}")

        await asyncio.gather(*(live(f"busy-{number}") for number in range(GROUPS)))
    return answered


async def count_wrong(daemon: str, answered: Answered) -> int:
    """Read all states back; returns how many are not what was written last."""

    def by_offset(batches: Sequence[StateBatch]) -> dict[int, tuple[int, int]]:
        states: dict[int, tuple[int, int]] = {}
        for first, last, state, count in batches:
            states |= {offset: max(states.get(offset, (-1, -1)), (count, state)) for offset in range(first, last + 1)}
        return states

    wrong = 0
    groups: dict[str, list[SharePartitionKey]] = {}
    for key in answered:
        groups.setdefault(key.group_id, []).append(key)
    async with connect(daemon, PATIENT) as client:
        for group, keys in groups.items():
            asked = [(key.topic_id, ReadPartition(key.partition, LEADER_EPOCH)) for key in keys]
            results: list[ReadResult] = await client.read_many(group, asked)
            for key, found in zip(keys, results, strict=True):
                start_offset, batches = answered[key]
                is_right = found.start_offset == start_offset and by_offset(found.state_batches) == by_offset(batches)
                wrong += not is_right
    return wrong
