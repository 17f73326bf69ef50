"""The share service over the real runtime and the log in memory: from a request to its answer, across a reload."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.results import PartitionRequest, ReadResult, StateRequest, StateResponse
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.pruning.pruner import PruningSlice
from holdfast.daemon.settings.models import PruningSettings
from holdfast.metrics.instruments import Counter
from holdfast.runtime.partition.states import State
from holdfast.share.decisions import ShareShard
from holdfast.share.service import ShareService
from tests.configs import partition_config, shard_config
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Process
from tests.world.samples import TOPIC, Image, batch
from tests.world.service import FakeMetrics, ask, codes


class Node:
    """A process with a share service, of which no log partition may fail."""

    def __init__(self, topic: MemoryTopic, name: str, **config: Any) -> None:
        self.process = Process(
            topic,
            partition_config(node_id=name, log=topic.identity),
            lambda _: ShareShard(shard_config(**config)),
        )
        self.runtime = self.process.runtime
        self.runtime.new_metadata_image(Image({TOPIC: 8}))
        self.process.start()
        self.service = ShareService(self.runtime, FakeMetrics(), lambda: 0.0, InternalErrors(Counter()))
        self.service.start_up(len(topic.partitions))

    def settle(self) -> None:
        """Let everything happen that can."""
        self.process.settle()
        assert State.FAILED not in [state for _, state in self.process.changes]
        assert ("error", "decide_failed") not in self.process.notes

    def load(self, generation: int) -> None:
        self.process.load(generation)
        self.settle()

    def send(self, api_key: int, *asked: PartitionRequest) -> list[StateResponse]:
        """Send a request; what is returned holds its answer once there is one."""
        answers: list[StateResponse] = []
        self.service.handle(api_key, StateRequest("g1", [(TOPIC, list(asked))]), answers.append)
        return answers

    def call(self, api_key: int, *asked: PartitionRequest) -> StateResponse:
        answers = self.send(api_key, *asked)
        self.settle()
        [answer] = answers
        return answer


def read(node: Node, partition: int = 0) -> ReadResult:
    [(_, [(_, result)])] = node.call(READ, ask(READ, partition))
    assert isinstance(result, ReadResult)
    return result


@pytest.mark.parametrize("limit", [500, 0])
def test_the_reviews_example_from_request_to_reload(limit: int) -> None:
    """Decision 25: a count survives a moved start offset, on the update path, on the snapshot path, and on another node."""
    topic = MemoryTopic()
    node = Node(topic, "a", snapshot_update_records_per_snapshot=limit)
    node.load(1)
    node.call(INITIALIZE, ask(INITIALIZE, 0, start_offset=100))
    first = (batch(100, 109, 0, 1), batch(110, 119, 0, 2), batch(120, 129, 0, 1))
    assert codes(node.call(WRITE, ask(WRITE, 0, state_batches=first))) == [(TOPIC, [(0, 0)])]
    node.call(WRITE, ask(WRITE, 0, start_offset=110, state_batches=(batch(120, 129, 2, 1),)))
    expected = ReadResult(0, None, 0, 110, (batch(110, 119, 0, 2), batch(120, 129, 2, 1)))
    assert read(node) == expected
    other = Node(topic, "b", snapshot_update_records_per_snapshot=limit)
    other.load(2)
    assert read(other) == expected
    assert codes(node.call(READ, ask(READ, 0))) == [(TOPIC, [(0, 16)])]


@pytest.mark.parametrize("api_key", [INITIALIZE, READ, WRITE, DELETE, SUMMARY])
def test_no_answer_leaves_before_the_log_has_moved(api_key: int) -> None:
    node = Node(MemoryTopic(), "a")
    node.load(1)
    node.call(INITIALIZE, ask(INITIALIZE, 0))
    answers = node.send(api_key, ask(api_key, 0))
    assert answers == []
    node.settle()
    assert codes(answers[0]) == [(TOPIC, [(0, 0)])]


def test_a_malformed_write_is_answered_at_once() -> None:
    node = Node(MemoryTopic(), "a")
    node.load(1)
    answers = node.send(WRITE, ask(WRITE, 0, state_batches=(batch(9, 1, 0, 1),)))
    assert codes(answers[0]) == [(TOPIC, [(0, 42)])]


def test_a_request_half_done_when_its_shards_unload_says_which_half() -> None:
    node = Node(MemoryTopic(4), "a")
    node.load(1)
    everything = range(8)
    node.call(INITIALIZE, *[ask(INITIALIZE, partition) for partition in everything])
    answers = node.send(WRITE, *[ask(WRITE, partition) for partition in everything])
    indexes = {partition: index for (_, _, partition), (_, index) in node.service._places.items()}
    lost = indexes[0]
    assert len(set(indexes.values())) > 1
    node.runtime.unload(lost, 2)
    assert answers == []
    node.settle()
    [answer] = answers
    assert codes(answer) == [
        (TOPIC, [(partition, 16 if indexes[partition] == lost else 0) for partition in everything])
    ]


def test_a_share_partition_whose_snapshot_does_not_fit_harms_nobody_else() -> None:
    node = Node(MemoryTopic(message_bytes_max=2000), "a", snapshot_update_records_per_snapshot=3)
    node.load(1)
    node.call(INITIALIZE, ask(INITIALIZE, 0), ask(INITIALIZE, 1))
    outcomes = []
    for number in range(5):
        # Batches that never join, 100 in each write.
        many = tuple(batch(1000 * (number + 1) + 2 * n, 1000 * (number + 1) + 2 * n, 2, 1) for n in range(100))
        response = node.call(WRITE, ask(WRITE, 0, state_batches=many), ask(WRITE, 1))
        outcomes.append(codes(response)[0][1])
    assert outcomes == [[(0, 0), (1, 0)]] * 3 + [[(0, -1), (1, 0)]] * 2
    assert len(read(node).state_batches) == 300


def test_pruning_goes_on_until_the_log_is_cut_and_loads_to_the_same_state() -> None:
    topic = MemoryTopic()
    node = Node(topic, "a")
    node.load(1)
    node.call(INITIALIZE, *[ask(INITIALIZE, partition) for partition in range(5)])
    node.call(READ, ask(READ, 2, leader_epoch=7))
    node.call(INITIALIZE, ask(INITIALIZE, 2, start_offset=50))
    node.call(WRITE, ask(WRITE, 3, state_batches=(batch(100, 109, 0, 3),)))
    node.call(DELETE, ask(DELETE, 4))
    node.runtime.refresh(0)
    node.settle()
    partition = node.runtime.partitions[0]
    below, settings = partition.reading.checkpoint_offset, PruningSettings()
    counts: list[int] = []
    while not counts or counts[-1]:
        node.runtime.write(0, PruningSlice(below, settings, lambda _, count: counts.append(count), records_max=2))
        node.settle()
    assert counts == [2, 2, 0]
    assert isinstance(partition.machine, ShareShard)
    assert partition.machine.is_prunable_to(below)
    before = [read(node, index) for index in range(5)]
    node.runtime.refresh(0, below)  # names the cut
    node.settle()
    node.runtime.delete_records(0, below)
    node.settle()
    other = Node(topic, "b")
    other.load(2)
    assert [read(other, index) for index in range(5)] == before
    # The fence, which only the records that were cut had raised, is still there.
    assert codes(other.call(WRITE, ask(WRITE, 2, leader_epoch=6))) == [(TOPIC, [(2, 74)])]
