"""The reader of any topics, which follows leaders and topics; over sockets to a small Kafka on loopback."""

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import TopicGone, TopicRecreated
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.pure.kafka.records.readings import QUICK, offsets_of, reader_of, take_to
from tests.pure.kafka.records.samples import make_batch
from tests.waiting import wait_until


async def test_batches_come_as_they_lie_in_the_log_by_id_and_by_name() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        log = topic.partitions[0]
        for compression in range(5):
            log.append(data=make_batch(log.end, [b"x" * 100] * 3, compression=compression))
        for ref in (topic.topic_id.bytes, "topic"):
            reading = reader.open(ref, 0, 0)
            batches = await take_to(reading, 15)
            assert [bytes(batch.data) for batch in batches] == log.log
            assert (reading.position, reading.high_watermark, reading.log_start_offset) == (15, 15, 0)
            reading.close()
    assert {version for _, version, _ in kafka.fetches} == {17}


@pytest.mark.parametrize("highest", [12, 13, 14, 15, 16, 17, 18])
async def test_version_is_what_the_broker_offers(highest: int) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].versions[1] = (4, highest)
        topic = kafka.make_topic()
        topic.partitions[0].append(b"a", b"b")
        assert offsets_of(await take_to(reader.open(topic.topic_id.bytes, 0, 1), 2)) == [0]
    assert {version for _, version, _ in kafka.fetches} == {min(highest, 17)}


async def test_cluster_without_topic_ids_is_read_by_name() -> None:
    async with fake_kafka(has_ids=False) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        assert offsets_of(await take_to(reading, 1)) == [0]
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]
    assert {version for _, version, _ in kafka.fetches} == {12}


@pytest.mark.parametrize("versions", [(4, 11), (0, 3)])
async def test_broker_that_is_too_old_is_named(versions: tuple[int, int]) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].versions[1] = versions
        kafka.make_topic()
        reading = reader.open("topic", 0, 0)
        said = (
            "the broker speaks versions {} to {} of Fetch, one of 12 to 17 is needed; upgrade it to Kafka 2.7 or newer"
        )
        await wait_until(lambda: said.format(*versions) in reading.problem)
        assert reading.take_nowait() is None


async def test_leader_that_moves_is_followed() -> None:
    async with fake_kafka(3) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        reading = reader.open("topic", 0, 0)
        for leader in (2, 3, 1, 2):
            log.append()
            await take_to(reading, log.end)
            kafka.move(log, leader)
        log.append()
        (batch,) = await take_to(reading, log.end)
        assert (batch.base_offset, batch.leader_epoch, reading.leader_epoch) == (4, 4, 4)
    assert {broker for broker, _, _ in kafka.fetches} == {1, 2, 3}


async def test_broker_that_was_cut_off_is_not_believed() -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        kafka.brokers[1].cut_off()
        kafka.move(log, 2)
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]
        for _ in range(4):  # whichever broker is asked first
            await reader.cluster.look_up(["topic"])
            assert reader.cluster.topics["topic"].leaders == {0: (2, 1)}


async def test_frozen_broker_delays_no_partition_that_has_moved() -> None:
    async with fake_kafka(3) as kafka, reader_of(kafka, QUICK._replace(timeout_ms=600_000)) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        kafka.brokers[1].goes_on.clear()
        kafka.move(log, 2)
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]


async def test_connection_that_breaks_is_opened_again() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        reading = reader.open("topic", 0, 0)
        for number in range(3):
            log.append()
            assert offsets_of(await take_to(reading, number + 1)) == [number]
            for writer in list(kafka.brokers[1].writers):
                writer.transport.abort()


async def test_answer_that_cannot_be_read_is_fetched_again() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].garbage = b"\xff" * 50
        kafka.make_topic().partitions[0].append()
        assert offsets_of(await take_to(reader.open("topic", 0, 0), 1)) == [0]
    assert len(kafka.fetches) >= 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
async def test_trouble_that_passes_ends_no_reading(code: ErrorCode) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic(leaders=[1, 1])
        topic.partitions[0].errors = [int(code)]
        for log in topic.partitions:
            log.append()
        readings = [reader.open("topic", index, 0) for index in range(2)]
        assert [offsets_of(await take_to(each, 1)) for each in readings] == [[0], [0]]
        assert [each.problem for each in readings] == ["", ""]


async def test_leader_that_lacks_is_waited_for() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[-1]).partitions[0]
        reading = reader.open("topic", 0, 0)
        beyond = reader.open("topic", 7, 0)
        await wait_until(lambda: reading.problem == "the partition has no leader")
        await wait_until(lambda: beyond.problem == "the topic has no partition 7")
        kafka.move(log, 1)
        log.append()
        assert offsets_of(await take_to(reading, 1)) == [0]


@pytest.mark.parametrize("by_id", [True, False])
async def test_topic_that_is_deleted_is_told_once_all_brokers_say_so(by_id: bool) -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        reading = reader.open(topic.topic_id.bytes if by_id else "topic", 0, 0)
        await wait_until(lambda: reading.is_at_end)
        kafka.brokers[2].cut_off()
        del kafka.topics["topic"]
        topic.partitions[0].wake()
        await wait_until(lambda: reading.problem)
        accepted = kafka.brokers[2].accepted
        await wait_until(lambda: kafka.brokers[2].accepted >= accepted + 3)
        assert reading.failure is None
        kafka.brokers[2].view = None
        with pytest.raises(TopicGone):
            await reading.take()


async def test_topic_that_never_was_is_told() -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        for ref in ("nothing", bytes(15) + b"\x09", bytes(16), bytes(15) + b"\x01"):
            with pytest.raises(TopicGone):
                await reader.open(ref, 0, 0).take()
    assert not kafka.fetches


async def test_topic_that_is_made_again_is_another_one() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        topic.partitions[0].append()
        readings = [reader.open("topic", 0, 0), reader.open(topic.topic_id.bytes, 0, 0)]
        for reading in readings:
            await take_to(reading, 1)
        again = kafka.make_topic()
        again.partitions[0].append(b"of the other topic")
        topic.partitions[0].wake()
        with pytest.raises(TopicRecreated):
            await readings[0].take()
        with pytest.raises(TopicGone):
            await readings[1].take()


async def test_topic_without_id_is_another_one_after_all_brokers_missed_it() -> None:
    async with fake_kafka(has_ids=False) as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        topic.partitions[0].append()
        kafka.move(topic.partitions[0], 1)
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        del kafka.topics["topic"]
        topic.partitions[0].wake()
        with pytest.raises(TopicGone):
            await reading.take()
        kafka.make_topic().partitions[0].append(b"of the other topic")
        reading.seek(1)
        with pytest.raises(TopicRecreated):
            await reading.take()


async def test_name_that_had_no_topic_is_looked_up_again_for_a_new_reading() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        with pytest.raises(TopicGone):
            await reader.open("topic", 0, 0).take()
        kafka.make_topic().partitions[0].append()
        await take_to(reader.open("topic", 0, 0), 1)
