"""The same bytes sent to the newest Kafka's share coordinator and to ours: the same answers, and the same records behind them.

Where we differ from Kafka on purpose stands in test_differences.py.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api import share_state
from holdfast.api.results import (
    InitializePartition,
    ReadPartition,
    SummaryPartition,
    WritePartition,
)
from holdfast.broker import FAST_START, EmbeddedKafka
from holdfast.client import connect
from holdfast.console.sources.log_reader import LogReader
from holdfast.records.log.checkpoint import Checkpoint, is_checkpoint_key
from holdfast.records.share.codecs import kafka as kafka_codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot
from tests.interop.calls import BEGINNING, GROUPS, PARTITIONS, TOPICS, Answer, Call, Peer, calls
from tests.interop.newest_kafka import newest_kafka
from tests.real.nodes import FIRST_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import PATIENT_BROKER
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.real, pytest.mark.interop]

#: Few, so that shares of one log partition meet, and snapshots come often.
LOG_PARTITIONS = 4
UPDATES_PER_SNAPSHOT = 3
#: The same of both, and long: a busy machine must not decide what is answered.
COMMON = {
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
    "share.coordinator.state.topic.num.partitions": str(LOG_PARTITIONS),
    "share.coordinator.write.timeout.ms": "30000",
}
SHARE_TOPIC, STATE_TOPIC, KAFKAS_STATE_TOPIC = "shares", "ours", "__share_group_state"
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH = 3, 42, 74, 124
#: Sequences of calls to try; DIFFERENTIAL_EXAMPLES=1000 tries more.
EXAMPLES = int(os.environ.get("DIFFERENTIAL_EXAMPLES", "60"))


_KNOWN, _ALL = TOPICS[0], range(PARTITIONS)

SUMMARIES = Call(share_state.SUMMARY, 1, "", ((_KNOWN, tuple(SummaryPartition(partition, -1) for partition in _ALL)),))
#: What is asked of every share partition after a restart: its state, and whether its fences still stand.
AFTERWARDS = [
    SUMMARIES,
    *(
        Call(share_state.READ, 0, "", ((_KNOWN, tuple(ReadPartition(p, epoch) for p in _ALL)),))
        for epoch in range(-1, 5)
    ),
    *(
        Call(share_state.WRITE, 1, "", ((_KNOWN, tuple(WritePartition(p, epoch, 4, -1, 5, ()) for p in _ALL)),))
        for epoch in range(-1, 4)
    ),
    Call(share_state.INITIALIZE, 0, "", ((_KNOWN, tuple(InitializePartition(p, 2, 0) for p in _ALL)),)),
]


class Pair:
    """Both coordinators, over one cluster."""

    def __init__(self, bootstrap_servers: str, node: NodeProcess, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self.bootstrap_servers = bootstrap_servers
        self.node = node
        topic_ids = self.topic_ids = dict(
            zip(TOPICS, (topic_id_of(bootstrap_servers, SHARE_TOPIC), b"no such topic id"), strict=True)
        )
        self.apache_kafka = Peer(bootstrap_servers, topic_ids)
        self.holdfast = Peer(node.address, topic_ids)
        self._lives = count()

    def new_life(self) -> dict[str, str]:
        """Give ids of share groups that nobody has used, by their names."""
        life = next(self._lives)
        return {"": "", **{group: f"{group}:{life}" for group in GROUPS}}

    def ask(self, call: Call, group_id: str) -> tuple[Answer, Answer]:
        """Return what Kafka says, and what we say."""
        return self.run(self._ask(call, group_id))

    async def _ask(self, call: Call, group_id: str) -> tuple[Answer, Answer]:
        return await asyncio.gather(self.apache_kafka.ask(call, group_id), self.holdfast.ask(call, group_id))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    # The loop is made by name, because a property is no coroutine, and the plugin's loop is for those.
    with (
        EmbeddedKafka(
            unpacked_kafka=newest_kafka(), jvm_options=FAST_START, properties=PATIENT_BROKER | COMMON
        ) as broker,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
        node_processes(broker.bootstrap_servers, STATE_TOPIC, tmp_path_factory.mktemp("node")) as make_node,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(SHARE_TOPIC, PARTITIONS, 1)])[SHARE_TOPIC].result(PATIENCE_S)
        node = make_node(codec="kafka", **COMMON)
        runner.run(node.start())
        both = Pair(broker.bootstrap_servers, node, runner)
        for address in (broker.bootstrap_servers, node.address):
            runner.run(wait_served(address, both.topic_ids[TOPICS[0]]))
        yield both
        both.apache_kafka.close()
        both.holdfast.close()


async def wait_served(address: str, topic_id: bytes) -> None:
    """Wait until every log partition is served; summaries write nothing."""
    async with connect(address, FIRST_CLIENT) as client:
        asked = [(topic_id, SummaryPartition(partition, -1)) for partition in range(PARTITIONS)]
        for number in range(5 * LOG_PARTITIONS):
            results = await client.read_summary_many(f"nobody {number}", asked)
            assert {result.error_code for result in results} == {0}


def check(call: Call, apache_kafka: Answer, holdfast: Answer) -> None:
    """Check that both said the same."""
    assert not holdfast.has_repetitions, call
    assert holdfast.has_texts, call
    if not call.has_duplicates:
        assert holdfast.results == apache_kafka.results, call
        return
    # Kafka reports the last of several, we the first that failed, and the last if none did.
    assert holdfast.results.keys() == apache_kafka.results.keys(), call
    for asked, result in holdfast.results.items():
        assert result == apache_kafka.results[asked] or result[0] != 0, call


def test_the_same_calls_get_the_same_answers_and_leave_the_same_records(pair: Pair) -> None:
    outcomes: Counter[tuple[int, int]] = Counter()
    lives: list[dict[str, str]] = []

    @settings(max_examples=EXAMPLES)
    @given(st.lists(calls(), min_size=15, max_size=30))
    def live(drawn: list[Call]) -> None:
        lives.append(pair.new_life())
        for call in [*BEGINNING, *drawn]:
            answers = pair.ask(call, lives[-1][call.group])
            check(call, *answers)
            outcomes.update((call.api_key, result[0]) for result in answers[1].results.values())

    live()
    group_ids = {group_id for life in lives for group_id in life.values()}
    kinds = check_logs(pair, group_ids)
    print(f"\n{sum(outcomes.values())} share partitions were asked for: {dict(sorted(outcomes.items()))}")
    print(f"{sum(kinds.values())} records were left: {dict(kinds)}")
    assert outcomes.keys() >= {
        *((api_key, 0) for api_key in share_state.VERSIONS),
        *(
            (api_key, UNKNOWN_TOPIC_OR_PARTITION)
            for api_key in (share_state.INITIALIZE, share_state.DELETE, share_state.SUMMARY)
        ),
        *((api_key, INVALID_REQUEST) for api_key in share_state.VERSIONS),
        *((api_key, FENCED_LEADER_EPOCH) for api_key in (share_state.READ, share_state.WRITE)),
        *((api_key, FENCED_STATE_EPOCH) for api_key in (share_state.INITIALIZE, share_state.WRITE)),
    }
    assert min(kinds[kind] for kind in ("snapshot", "update", "tombstone", "snapshot with fences")) > 0

    check_readers(pair, group_ids)

    # Our load is held against a coordinator that never had to load. From here on the logs may differ in one thing:
    # updates are counted from the newest snapshot in the log, so the next snapshot comes at another time.
    pair.node.kill()
    pair.run(pair.node.start())
    for life in lives:
        for group in GROUPS:
            for call in AFTERWARDS:
                check(call, *pair.ask(call, life[group]))


def check_logs(pair: Pair, group_ids: Set[str]) -> Counter[str]:
    """Check that both logs hold the same of these share groups, byte for byte but for times and a tagged field of ours.

    A new log of ours has its share partitions in other log partitions than Kafka's, so each share partition is compared by itself.

    Returns:
        how many records of each kind there are.
    """
    ours, theirs = (
        [
            comparable(key, value)
            for partition in range(LOG_PARTITIONS)
            for key, value in records_of(pair, topic, partition)
            if is_of(key, group_ids)
        ]
        for topic in (STATE_TOPIC, KAFKAS_STATE_TOPIC)
    )
    assert by_share_partition(ours) == by_share_partition(theirs)
    assert "snapshot with fences" not in {kind for kind, _, _ in theirs}
    return Counter(kind for kind, _, _ in ours)


def by_share_partition(
    records: list[tuple[str, bytes, bytes | None]],
) -> dict[bytes, list[tuple[bytes, bytes | None]]]:
    """Return the records of each share partition in their order: a key begins with the type of its record."""
    found: defaultdict[bytes, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for _, key, value in records:
        found[key[2:]].append((key, value))
    return dict(found)


def check_readers(pair: Pair, group_ids: Set[str]) -> None:
    """Check that our reader and our replay find in both topics the state that Kafka's coordinator answers with."""
    for topic in (KAFKAS_STATE_TOPIC, STATE_TOPIC):
        found: dict[SharePartitionKey, ShareState | None] = {}
        with closing(LogReader({"bootstrap.servers": pair.bootstrap_servers}, topic)) as reader:
            for entry in reader.read():
                assert entry.counts
                assert (entry.owner_epoch is None) == (topic == KAFKAS_STATE_TOPIC)
                if entry.key is not None:
                    assert not isinstance(entry.value, Checkpoint)
                    found[entry.key] = replay(found.get(entry.key), entry.value, UPDATES_PER_SNAPSHOT)
        for group_id in group_ids - {""}:
            states = [found.get(SharePartitionKey(group_id, pair.topic_ids[_KNOWN], partition)) for partition in _ALL]
            # At the leader epoch that is known already, which raises nothing.
            fences = [0 if state is None else state.leader_epoch_fence for state in states]
            asked = tuple(map(ReadPartition, _ALL, fences))
            answer = pair.ask(Call(share_state.READ, 0, "", ((_KNOWN, asked),)), group_id)[0].results
            summed_up = pair.ask(SUMMARIES, group_id)[0].results
            for partition, state in zip(_ALL, states, strict=True):
                place = _KNOWN, partition
                if state is None:
                    assert answer[place][0] == INVALID_REQUEST
                    continue
                assert answer[place] == (0, state.state_epoch, state.start_offset, state.state_batches)
                leader_epoch, complete = state.leader_epoch, state.delivery_complete_count
                assert summed_up[place] == (0, state.state_epoch, leader_epoch, state.start_offset, complete)


def records_of(pair: Pair, topic: str, partition: int) -> list[tuple[bytes, bytes | None]]:
    """Return key and value of all records of a log partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": pair.bootstrap_servers,
            "group.id": "differential",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records: list[tuple[bytes, bytes | None]] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the broker is silent"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return records
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            records.append((key, value))


def is_of(key: bytes, group_ids: Set[str]) -> bool:
    """Tell whether a record is about one of these share groups; a checkpoint is about none."""
    return not is_checkpoint_key(key) and kafka_codec.decode_key(key).key.group_id in group_ids


def comparable(key: bytes, value: bytes | None) -> tuple[str, bytes, bytes | None]:
    """Return kind, key and value of a record, with its times set to zero, and without the fences that our snapshots carry."""
    if value is None:
        return "tombstone", key, None
    if kafka_codec.decode_key(key).record_type == kafka_codec.UPDATE_TYPE:
        return "update", key, value
    snapshot = kafka_codec.decode_value(kafka_codec.SNAPSHOT_TYPE, value).value
    assert isinstance(snapshot, Snapshot)
    assert kafka_codec.encode_value(snapshot) == value
    plain = snapshot._replace(leader_epoch_fence=snapshot.leader_epoch, state_epoch_fence=snapshot.state_epoch)
    timeless = plain._replace(create_timestamp_ms=0, write_timestamp_ms=0)
    kind = "snapshot" if snapshot == plain else "snapshot with fences"
    return kind, key, kafka_codec.encode_value(timeless)
