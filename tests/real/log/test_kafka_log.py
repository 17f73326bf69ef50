"""The log on a real broker: load, write, lose, restart, freeze; what was acknowledged is in every later load."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.registry import Registry
from holdfast.records.log.header import encode_header
from holdfast.runtime.errors import LoadInProgress, NotAvailable, NotCoordinator, RecordTooLarge
from holdfast.runtime.kafka_log.log import KafkaLog
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.states import State
from tests.real.container_kafka import needs_processes
from tests.real.log.log_node import LogClient, LogNode, bits_of, is_failure, log_config, log_node
from tests.real.quick_java import QUICK_KAFKA
from tests.real.shared_kafka import LONG_SESSION, NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """Give a broker that tests may restart and freeze, if they leave it running."""
    needs_processes("The test restarts and freezes its broker")
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=LONG_SESSION) as kafka:
        yield kafka


@pytest.fixture(params=["native", "librdkafka"], autouse=True)
def log_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have every test pass with either client."""
    monkeypatch.setattr(LogClient, "name", request.param)
    return str(request.param)


@pytest.fixture
def hurt_topic(broker: EmbeddedKafka, topic: str) -> str:
    """Give a topic on the broker that may be hurt."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    return topic


def append_foreign(bootstrap_servers: str, topic: str, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    for _ in range(count):
        producer.produce(topic, b"foreign", partition=0)
        assert producer.flush(PATIENCE_S) == 0


def delete_records(bootstrap_servers: str, topic: str, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        future.result(PATIENCE_S)


async def test_what_was_written_is_there_after_a_restart(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        for bit in range(5):
            node.write_nowait(1 << bit)
        assert await node.write() == 31
        assert [node.outcomes[f"write {bit}"] for bit in range(5)] == [1, 3, 7, 15, 31]
        assert node.partition.committed_offset == 6
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        assert node.value == 31
        assert node.partition.ownership.epoch == 2
        assert node.partition.reading.records_loaded == 7


@pytest.mark.parametrize("compression", range(1, 5), ids=["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_read_back_and_loaded(
    kafka: str, new_topic: NewTopicFactory, compression: int
) -> None:
    topic = new_topic(compression_type="producer")
    async with log_node("a", kafka, topic, state_topic_compression_codec=compression) as node:
        await node.serve()
        for bit in range(5):
            node.write_nowait(1 << bit)
        assert await node.write() == 31
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        assert node.value == 31


async def test_answer_without_records_is_answered_behind_a_foreign_transaction(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    """The last offset is a marker, which is no record: the tail must stand behind it all the same."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic, "log_level": 0})
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        producer.begin_transaction()
        producer.produce(topic, b"foreign", partition=0)
        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
        assert await node.write() == 0
        assert await node.write(1) == 1
        assert node.partition.reading.void_records == 1
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        assert node.value == 1


async def test_void_and_foreign_records_shift_nothing(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    zombie = Producer({"bootstrap.servers": kafka, "acks": "all", "log_level": 0})
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        for sequence in range(3):
            assert await node.write(1 << sequence) == 2 ** (sequence + 1) - 1
            zombie.produce(topic, b"+99", b"n", 0, headers=[("hf", encode_header(0, sequence))])
            assert zombie.flush(PATIENCE_S) == 0
        assert await node.write() == 7
        assert node.partition.reading.void_records == 3


async def test_of_two_nodes_the_first_loses_and_does_not_fight(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with log_node("a", kafka, topic) as first, log_node("b", kafka, topic) as second:
        await first.serve()
        assert await first.write(1) == 1
        second.runtime.load(0, None)
        for bit in range(1, 200):
            first.write_nowait(1 << bit)
            await asyncio.sleep(0)
        await second.wait_state(State.ACTIVE)
        await first.wait_state(State.CLOSED)
        await first.wait_answers()
        assert first.superseded_by == ["b"]
        assert isinstance(await first.write(1 << 200), NotCoordinator)
        acknowledged = {bit for bit in range(200) if not is_failure(first.outcomes[f"write {bit}"])}
        assert acknowledged <= bits_of(second.value)
        total = second.value
        assert await second.write(1 << 300) == total + (1 << 300)
        assert first.partition.retry_at_ms is None
        first.runtime.take(0)
        await first.wait_state(State.ACTIVE)
        await second.wait_state(State.CLOSED)
        assert first.value == total + (1 << 300)
        assert second.superseded_by == ["a"]


async def test_record_too_large_is_refused_alone(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(max_message_bytes="2000")
    async with log_node("a", kafka, topic, message_bytes_max=2_000) as node:
        await node.serve()
        assert isinstance(await node.write(10**2_000), RecordTooLarge)
        assert await node.write(1) == 1
        assert node.partition.ownership.epoch == 1
        # The largest that is taken is taken by the broker as well: key 1, sign 1, and what a record takes besides.
        largest = 10 ** (2_000 - 103 - 3)
        assert await node.write(largest) == largest + 1


async def test_batches_of_many_writes_stay_within_the_topics_limit(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(max_message_bytes="2000")
    async with log_node("a", kafka, topic, message_bytes_max=2_000) as node:
        await node.serve()
        for bit in range(2_000):
            node.write_nowait(1 << bit)
        await node.wait_answers()
        assert not any(map(is_failure, node.outcomes.values()))
        assert node.value == 2**2_000 - 1
        assert node.partition.ownership.epoch == 1


async def test_log_is_cut_at_a_refresh_and_loaded_from_there(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        await node.write(1)
        assert node.runtime.refresh(0)
        await node.write(2)
        cut = node.partition.reading.checkpoint_offset
        assert cut == 2
        assert node.runtime.refresh(0, cut), "it is named"
        await wait_until(lambda: node.partition.reading.cut_offset == cut, "the name of the cut is committed")
        node.runtime.delete_records(0, cut)
        await wait_until(lambda: node.partition.log_start == cut, "the log start moved")
        assert await node.write(4) == 7
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        assert node.partition.log_start == cut
        assert node.value == 6, "what was cut had no snapshot here, as a share shard's would have"
        assert node.partition.ownership.epoch == 2


async def test_tail_that_has_read_everything_learns_that_the_log_was_cut(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic()
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        await node.write(1)
        append_foreign(kafka, topic, 5)
        await wait_until(lambda: node.partition.reading.position == 7, "the tail has read what others wrote")
        delete_records(kafka, topic, 7)
        await wait_until(lambda: node.partition.log_start == 7, "the tail learns where the log starts")
        assert await node.write(2) == 3


@pytest.mark.parametrize("log_client", ["native"], indirect=True)
async def test_log_start_moved_under_the_tail_is_an_alarm_until_an_admin_accepts(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic()
    # A fetch that waits at the broker returns the first of the records that come, and no more.
    async with log_node("a", kafka, topic, fetch_bytes_max=1, fetch_partition_bytes_max=1) as node:
        await node.serve()
        await node.write(1)
        # While the node does nothing, records come and everything is cut; its next fetch is out of range. The threads of librdkafka would
        # read on meanwhile.
        append_foreign(kafka, topic, 5)
        delete_records(kafka, topic, 7)
        await node.wait_state(State.FAILED)
        await wait_until(lambda: node.partition.is_alarmed, "an alarm")
        assert "log starts at 7 and no checkpoint says that it is whole" in (node.partition.failure or "")
        node.runtime.accept(0, "cut by hand")
        await node.wait_state(State.ACTIVE)
        assert node.value == 0
        assert await node.write(2) == 2
    async with log_node("a", kafka, topic) as node:
        await node.serve()
        assert node.value == 2


async def test_log_recreated_under_its_name_is_an_alarm(broker: EmbeddedKafka, hurt_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    async with log_node("a", broker.bootstrap_servers, hurt_topic) as node:
        await node.serve()
        assert await node.write(1) == 1
        await asyncio.to_thread(admin.delete_topics([hurt_topic])[hurt_topic].result, PATIENCE_S)
        await asyncio.to_thread(admin.create_topics([NewTopic(hurt_topic, 1, 1)])[hurt_topic].result, PATIENCE_S)
        await wait_until(lambda: "was committed to 2" in (node.partition.failure or ""), "an alarm")
        assert node.partition.is_alarmed


async def test_load_of_many_records_while_others_write(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with log_node("a", kafka, topic) as first, log_node("b", kafka, topic) as second:
        await first.serve()
        for bit in range(3_000):
            first.write_nowait(1 << bit)
        await first.wait_answers()
        second.runtime.load(0, None)
        bit = 3_000
        while second.partition.state is not State.ACTIVE:
            first.write_nowait(1 << bit)
            bit += 1
            await asyncio.sleep(0.001)
        await first.wait_answers()
        assert second.partition.reading.records_loaded >= 3_002
        acknowledged = {bit for bit in range(first.asked) if not is_failure(first.outcomes[f"write {bit}"])}
        assert set(range(3_000)) <= acknowledged <= bits_of(second.value)


async def keep_writing(node: LogNode, until: asyncio.Event) -> None:
    """Write one bit after the other, as long as the partition serves or comes back; few wait, so no number gets too long for text."""
    while not until.is_set():
        if node.partition.state is State.ACTIVE and node.asked - len(node.outcomes) < 1_000:
            node.write_nowait(1 << node.asked)
        await asyncio.sleep(0.001)


def check_against(node: LogNode, value: int) -> None:
    """Check that the log holds every write that was acknowledged, and none that was said to be refused."""
    held = bits_of(value)
    outcomes = [node.outcomes[f"write {bit}"] for bit in range(node.asked)]
    assert {bit for bit, outcome in enumerate(outcomes) if not is_failure(outcome)} <= held
    refused = {bit for bit, outcome in enumerate(outcomes) if isinstance(outcome, NotAvailable | LoadInProgress)}
    assert not refused & held


async def write_until_answered(node: LogNode) -> None:
    """Write one bit after the other until one is answered: a busy machine may be slower than a short time-out."""
    while True:
        await node.wait_state(State.ACTIVE)
        if not is_failure(await node.write(1 << node.asked)):
            return


async def test_broker_restarts_while_writes_go_on(broker: EmbeddedKafka, hurt_topic: str) -> None:
    async with log_node("a", broker.bootstrap_servers, hurt_topic) as node:
        await node.serve()
        done = asyncio.Event()
        writing = asyncio.create_task(keep_writing(node, done))
        await wait_until(lambda: len(node.outcomes) > 20, "writes are answered")
        await asyncio.to_thread(broker.restart)
        before = sum(not is_failure(outcome) for outcome in node.outcomes.values())
        await wait_until(
            lambda: sum(not is_failure(outcome) for outcome in node.outcomes.values()) > before + 20,
            "writes are answered again",
        )
        done.set()
        await writing
        await node.wait_answers()
    async with log_node("a", broker.bootstrap_servers, hurt_topic) as restarted:
        await restarted.serve()
        check_against(node, restarted.value)


async def test_broker_is_silent_for_longer_than_an_append_may_take(broker: EmbeddedKafka, hurt_topic: str) -> None:
    settings = {"message_timeout_ms": 500, "request_timeout_ms": 500}
    async with log_node("a", broker.bootstrap_servers, hurt_topic, **settings) as node:
        await node.serve()
        await write_until_answered(node)
        epoch = node.partition.ownership.epoch
        broker.freeze()
        try:
            unanswered = [node.write_nowait(1 << node.asked) for _ in range(49)]
            unanswered.append(node.write_nowait())
            await node.wait_answers()
        finally:
            broker.thaw()
        assert all(is_failure(node.outcomes[name]) for name in unanswered)
        await write_until_answered(node)
        assert node.partition.ownership.epoch > epoch
    async with log_node("a", broker.bootstrap_servers, hurt_topic) as restarted:
        await restarted.serve()
        check_against(node, restarted.value)


async def test_no_broker_answers_at_the_start(topic: str) -> None:
    node = LogNode("a", log_config("127.0.0.1:1", topic))
    with pytest.raises(ConnectionFailed):
        await node.shell.start()
    assert await node.shell.stop(PATIENCE_S)


class Recorder:
    """Listens to a log alone, and remembers which instance was told what."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.failed: list[str] = []
        self.latest: dict[int, int | None] = {}

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        self.told.append(("started", partition, instance))

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        self.told += [("record", partition, instance)] * len(records)

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """The records were told."""

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        self.told.append(("caught up", partition, instance))

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        """Nobody deletes."""

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        self.failed.append(f"{partition} instance {instance}: {error.text}")

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        """Nobody asks."""

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        self.latest = offsets


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


async def start_log(kafka: str, topic: str, recorder: Recorder) -> KafkaLog:
    log = KafkaLog(log_config(kafka, topic), lambda: 0, RuntimeMetrics(Registry()))
    await log.start(recorder)  # type: ignore[arg-type]
    return log


async def test_reading_that_was_stopped_while_its_bounds_were_queried_never_begins(
    kafka: str, new_topic: NewTopicFactory, recorder: Recorder
) -> None:
    topic = new_topic(partitions=2)
    append_foreign(kafka, topic)
    log = await start_log(kafka, topic, recorder)
    try:
        log.start_reading(0, 1)
        log.stop_reading(0)
        log.start_reading(1, 1)
        await wait_until(lambda: ("caught up", 1, 1) in recorder.told, "the other partition is read")
        append_foreign(kafka, topic)
        log.start_reading(0, 2)
        log.start_reading(0, 3)
        await wait_until(lambda: recorder.told.count(("record", 0, 3)) == 2, "the newest instance reads all")
        append_foreign(kafka, topic)
        await wait_until(lambda: recorder.told.count(("record", 0, 3)) == 3, "and goes on at the tail")
        assert {instance for _, partition, instance in recorder.told if partition == 0} == {3}
    finally:
        assert await log.close(PATIENCE_S)


async def test_load_whose_start_was_cut_meanwhile_fails_and_says_so(
    kafka: str, new_topic: NewTopicFactory, recorder: Recorder
) -> None:
    topic = new_topic()
    append_foreign(kafka, topic, 3)
    delete_records(kafka, topic, 2)
    log = await start_log(kafka, topic, recorder)
    try:
        log._load.follow(0, 5, 0, 3)
        await wait_until(lambda: bool(recorder.failed), "the load fails")
        assert recorder.failed == ["0 instance 5: offset 0 is out of range"]
        log.start_reading(0, 6)
        await wait_until(lambda: ("caught up", 0, 6) in recorder.told, "a load from the new start ends")
        assert recorder.told.count(("record", 0, 6)) == 1
    finally:
        assert await log.close(PATIENCE_S)


async def test_topic_that_does_not_exist_cannot_be_read(kafka: str, topic: str, recorder: Recorder) -> None:
    log = await start_log(kafka, topic, recorder)
    try:
        log.start_reading(0, 1)
        await wait_until(lambda: bool(recorder.failed), "the load fails")
        assert recorder.failed == ["0 instance 1: no broker returned its start and end"]
        log.query_latest_offsets(1, [0])
        await wait_until(lambda: bool(recorder.latest), "an answer")
        assert recorder.latest == {0: None}
    finally:
        assert await log.close(PATIENCE_S)
