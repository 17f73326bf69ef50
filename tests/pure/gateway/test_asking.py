"""A fetch asks only the share partitions that may have changed, and its answers are those of one that asks them all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.share_acknowledge import ShareAcknowledgeRequest
from holdfast.api.share_consumer import ACCEPT, REJECT, RELEASE, AcknowledgedRange, NamedPartition
from holdfast.api.share_fetch import FetchedPartition, Piece, ShareFetchRequest, decode_response
from holdfast.daemon.access.audit import Client
from holdfast.delivery.group_config import GroupConfig
from holdfast.gateway.consumers import ConsumerCalls
from holdfast.gateway.leading.led_partition import Ended, LedPartition
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import OffsetOutOfRange, PartitionReader
from holdfast.kafka.records.transactions import AbortedTransaction
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.gateway.test_serving import Caller, Topics, World, make_batch
from tests.world.samples import TOPIC

PARTITIONS = range(4)
MEMBERS = ("one", "two")
_MANY = 1 << 30


class GuardedTopics(Topics):
    """Topics of which a client may lose the right to one partition."""

    denied = -1

    def refuse_read(self, caller: object, topic_id: bytes, partition: int) -> Ended | None:
        return Ended(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "denied") if partition == self.denied else None

    def rights(self, caller: Client) -> str:
        return f"{caller.principal} {self.denied}"


class Readers:
    """Readers of logs that grow when the test says so (`leader.Reader`, `partition_reader.ReadingOwner`)."""

    def __init__(self) -> None:
        self.open_readers: dict[PartitionReader, None] = {}
        self.ends = dict.fromkeys(PARTITIONS, 0)

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        reader = PartitionReader(self, topic, partition, offset, last_epoch)
        self.open_readers[reader] = None
        return reader

    def settle(self, reader: PartitionReader) -> None:
        """Fetch one that somebody waits for; the test does it."""
        if reader.is_awaited:
            reader.is_resting = False
        elif reader.is_resting:
            reader.let_ask()

    def drop(self, reader: PartitionReader) -> None:
        del self.open_readers[reader]

    def of(self, partition: int) -> list[PartitionReader]:
        return [each for each in self.open_readers if each.partition == partition and each.failure is None]

    def bring(self, partition: int) -> None:
        """Answer all that read a partition; each batch has 10 offsets, and the fourth of each five was aborted."""
        for reader in self.of(partition):
            first = reader.position - reader.position % 10
            if first < self.ends[partition] and not reader.is_resting:
                is_aborted = first % 50 == 30
                batch = make_batch(first, first + 9, producer_id=7 if is_aborted else -1)
                reader.put((batch,), (AbortedTransaction(7, first),) if is_aborted else ())


class Node:
    """A node and its members, each of which has a connection of its name."""

    def __init__(self, config: GroupConfig = GroupConfig(), *, asks_all: bool = False) -> None:  # noqa: B008 - immutable
        self.world = World(config)
        self.readers = self.world.readers = Readers()  # type: ignore[assignment]
        self.topics = GuardedTopics()
        self.calls = ConsumerCalls(self.world.leader, self.world.sessions, self.topics, lambda _: config)
        self.epochs = dict.fromkeys(MEMBERS, 0)
        self.held: dict[tuple[str, int], list[AcknowledgedRange]] = {}
        self.asked: list[int] = []
        if asks_all:
            self.world.leader.look_at_clock = self._ask_all  # type: ignore[method-assign]
        lead = self.world.leader.lead

        def spy(key: SharePartitionKey) -> LedPartition | Ended:
            self.asked.append(key.partition)
            return lead(key)

        self.world.leader.lead = spy  # type: ignore[method-assign]

    def _ask_all(self) -> None:
        """Have a try of a fetch, which begins so, ask all."""
        for session in self.world.sessions._sessions.values():
            session.changed.update(session.places)

    def find(self, partition: int) -> LedPartition | None:
        return self.world.leader.find(SharePartitionKey("group", TOPIC, partition))

    def fetch(
        self,
        member: str = "one",
        added: Sequence[int] = (),
        forgotten: Sequence[int] = (),
        records_max: int = _MANY,
    ) -> list[FetchedPartition]:
        """Fetch without a wait; returns the answer, in the order of partitions."""
        topics = [(TOPIC, [NamedPartition(each) for each in added])] if added else []
        gone = [(TOPIC, list(forgotten))] if forgotten else []
        epoch, answers = self.epochs[member], list[list[Piece]]()
        request = ShareFetchRequest("group", member, epoch, topics, gone, 0, 1, _MANY, records_max, 500)
        self.calls.fetch(Caller(member), request, answers.append)
        self.epochs[member] += 1
        partitions = [each for _, some in decode_response(b"".join(answers[0])).topics for each in some]
        for each in partitions:
            for first, last, _ in each.acquired:
                self.held.setdefault((member, each.partition), []).append(AcknowledgedRange(first, last, b"\x01"))
        return sorted(partitions, key=lambda each: each.partition)

    def given(self, member: str = "one", **request: Any) -> list[tuple[int, int]]:
        """Fetch; returns partition and first offset of what came."""
        return [(each.partition, first) for each in self.fetch(member, **request) for first, _, _ in each.acquired]

    def produce(self, *partitions: int, batches: int = 1) -> None:
        for partition in partitions:
            self.readers.ends[partition] += 10 * batches
            for _ in range(batches):
                self.readers.bring(partition)


def begin(node: Node, member: str = "one", added: Sequence[int] = PARTITIONS) -> None:
    """Begin a session whose share partitions have loaded, and were asked in vain."""
    node.fetch(member, added=added)
    node.fetch(member)
    node.asked.clear()


async def test_idle_share_partitions_are_not_asked() -> None:
    node = Node()
    begin(node)
    for _ in range(3):
        assert node.given() == []
    assert node.asked == []
    node.produce(2)
    assert (node.given(), node.asked) == ([(2, 0)], [2])
    assert (node.given(), node.asked) == ([], [2, 2]), "it may have had more"
    assert (node.given(), node.asked) == ([], [2, 2])


async def test_added_ones_are_asked_and_forgotten_ones_are_not() -> None:
    node = Node()
    begin(node, added=[0, 1])
    node.fetch(added=[2], forgotten=[1])
    assert node.asked == [2]
    node.produce(0, 1, 2)
    assert node.given() == [(0, 0), (2, 0)]
    assert sorted(node.asked) == [0, 2, 2]


async def test_busy_share_partition_lets_the_others_have_their_turn() -> None:
    node = Node()
    begin(node)
    node.produce(0, 3, batches=3)
    node.produce(1)
    turns = [node.given(records_max=10) for _ in range(7)]
    assert turns == [[(0, 0)], [(3, 0)], [(1, 0)], [(0, 10)], [(3, 10)], [(0, 20)], [(3, 20)]]


async def test_records_that_one_member_left_are_there_for_another() -> None:
    node = Node()
    begin(node, "one", added=[0])
    begin(node, "two", added=[0])
    node.produce(0, batches=2)
    assert node.given("one", records_max=10) == [(0, 0)]
    assert node.given("two") == [(0, 10)]
    assert (node.given("one"), node.given("two")) == ([], [])


async def test_error_is_told_with_each_fetch_and_its_end_too() -> None:
    node = Node()
    begin(node)
    node.topics.denied = 3
    for _ in range(3):
        assert [(each.partition, each.error_code) for each in node.fetch()] == [(3, 29)]
    node.topics.denied = -1
    assert [(each.partition, each.error_code) for each in node.fetch()] == [(3, 0)]
    assert node.fetch() == []


async def test_denied_partition_is_told_though_others_fill_the_answer() -> None:
    node = Node()
    begin(node)
    node.topics.denied = 3
    node.produce(0, batches=2)
    for count in (10, 10, 0):
        told = {each.partition: each.error_code for each in node.fetch(records_max=count)}
        assert told == ({0: 0} if count else {}) | {3: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_other_leader_is_told_of_a_share_partition_that_was_idle() -> None:
    node = Node()
    begin(node)
    node.world.leadership.epoch = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
    node.world.leader.look_at_leadership(2)
    told = [(each.partition, each.error_code, each.leader_id, each.leader_epoch) for each in node.fetch()]
    assert told == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 3)]


async def test_node_that_was_frozen_asks_the_log_about_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    node, calls = Node(), list[SharePartitionKey]()
    begin(node)
    late_ms = node.world.leader.now_ms() + 10_000
    monkeypatch.setattr(node.world.leader, "now_ms", lambda: late_ms)
    monkeypatch.setattr(node.world.state, "read_or_initialize", lambda *call: calls.append(call[0]))
    node.fetch()
    assert [key.partition for key in calls] == [0, 1, 2, 3]


async def test_reader_at_rest_is_asked_by_the_next_fetch() -> None:
    node = Node()
    begin(node, added=[0])
    [reader] = node.readers.of(0)
    reader.rest()
    node.produce(0)
    assert (node.given(), reader.is_resting) == ([], False)
    node.produce(0)
    assert node.given() == [(0, 0)]


async def test_question_that_met_a_bug_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    begin(node)
    node.produce(1)
    with monkeypatch.context() as patched:
        patched.setattr(LedPartition, "give", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            node.fetch()
    node.epochs["one"] += 1
    assert node.given() == [(1, 0)]


# ---- as if all were asked ----------------------------------------------------------------------------------------------

CONFIG = GroupConfig(partition_max_record_locks=30, is_committed=True, delivery_count_limit=3)
steps = st.tuples(
    st.sampled_from(
        ["fetch"] * 8
        + ["produce"] * 3
        + ["say"] * 3
        + ["written"] * 3
        + ["not written", "locks end", "locks end", "leave", "add", "forget", "begin", "rest"]
        + ["log start moves", "reading fails", "another leads", "frozen", "rights"]
    ),
    st.sampled_from(MEMBERS),
    st.sampled_from(PARTITIONS[:2]),
    st.sampled_from((ACCEPT, REJECT, RELEASE)),
)


def take_step(node: Node, kind: str, member: str, partition: int, said: int) -> list[FetchedPartition]:
    """Do one thing at a node; returns the answer that a member got, if any."""
    state, leader, led, is_begun = node.world.state, node.world.leader, node.find(partition), node.epochs[member] > 0
    node.readers.bring(partition)
    if kind == "begin" or (kind == "fetch" and not is_begun):
        node.epochs[member] = 0
        return node.fetch(member, added=PARTITIONS[:2])
    if kind == "fetch":
        return node.fetch(member)
    if kind == "add" and is_begun:
        return node.fetch(member, added=[partition])
    if kind == "forget" and is_begun:
        return node.fetch(member, forgotten=[partition])
    if kind == "produce":
        node.produce(partition)
    elif kind == "say" and is_begun:
        held, node.held[member, partition] = node.held.get((member, partition), []), []
        for first, last, _ in held:
            if led is not None:
                led.acknowledge(member, [AcknowledgedRange(first, last, bytes([said]))], lambda _: None)
    elif kind.endswith("written") and state._responds:
        state.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE if kind == "not written" else 0)
    elif kind == "locks end" and led is not None:
        led.tick(leader.now_ms() + 1e6)
    elif kind == "leave" and is_begun:
        node.epochs[member] = 0
        leave = ShareAcknowledgeRequest("group", member, -1, [])
        node.calls.acknowledge(Caller(member), 1, leave, lambda _: None)
    elif kind == "rest":
        for reader in node.readers.of(partition):
            reader.rest()
    elif kind in ("log start moves", "reading fails"):
        end = node.readers.ends[partition]
        for reader in node.readers.of(partition):
            first = min(end, reader.position + 5) if kind == "log start moves" else 0
            reader.fail(OffsetOutOfRange(reader.position, first, end))
    elif kind == "another leads":
        node.world.leadership.epoch = int(node.world.leadership.epoch) + 1  # type: ignore[arg-type]  # no `Ended` here
        leader.look_at_leadership(partition)
    elif kind == "frozen":
        leader._beat_ms -= 10_000
        type(leader).look_at_clock(leader)
    elif kind == "rights":
        node.topics.denied = partition if node.topics.denied < 0 else -1
    return []


@given(st.lists(steps, min_size=30, max_size=80))
def test_answers_are_those_of_a_node_that_asks_all(steps: list[tuple[str, str, int, int]]) -> None:
    async def live() -> None:
        node, other = Node(CONFIG), Node(CONFIG, asks_all=True)
        for step in steps:
            assert take_step(node, *step) == take_step(other, *step)

    asyncio.run(live())
