"""Troubles of the logs that a node reads: they cost time and one line each, no record, and nobody else's records."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from holdfast.broker import EmbeddedKafka, find_java, kafka_classpath
from holdfast.kafka.librdkafka_types import ConfigResource, ResourceType, earliest_offset
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.runtime.partition.states import State
from tests.real.gateway.raw_member import RawMember, raw_member, until_offered
from tests.real.gateway.test_attacks import ALONE, GROUP, LONG_LOCKS, gateway
from tests.real.gateway.test_stock_consumers import Worker, produce, produce_to
from tests.real.log.test_damage import flip_a_bit
from tests.real.nodes import topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.running_node import RunningNode, make_settings
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

Lines = Sequence[MutableMapping[str, Any]]
NOT_SERVED: Final = "share_partition_not_served"
STORAGE: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
EAGER: Final = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Give a broker that tests may stop, and whose files they may change then."""
    directory = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(data_dir=directory, jvm_options=QUICK_KAFKA, heap_mib=256, properties=EAGER) as kafka:
        yield kafka


def make_topic(kafka: EmbeddedKafka, partitions: int = 1) -> str:
    name = f"orders-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    made = admin.create_topics([NewTopic(name, partitions, 1)])[name]
    made.result(PATIENCE_S)
    return name


@asynccontextmanager
async def stopped(kafka: EmbeddedKafka) -> AsyncIterator[Callable[[str, int], Path]]:
    """Stop a broker for a while; gives the segment of a partition."""
    await asyncio.to_thread(kafka.stop)
    yield lambda topic, partition: next(kafka.data_dir.rglob(f"{topic}-{partition}/00000000000000000000.log"))
    await asyncio.to_thread(kafka.restart)


def old_records(magic: int, count: int) -> bytes:
    """Return records as brokers before 0.11 wrote them."""
    written = b""
    for offset in range(count):
        value = b"old %d" % offset
        time_ms = struct.pack(">q", 1_400_000_000_000) if magic else b""
        body = struct.pack(">bb", magic, 0) + time_ms + struct.pack(">ii", -1, len(value)) + value
        message = struct.pack(">I", zlib.crc32(body)) + body
        written += struct.pack(">qi", offset, len(message)) + message
    return written


def of(lines: Lines, event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == event]


async def take(member: RawMember, count: int, partition: int = 0, records_max: int = 500) -> list[tuple[int, int]]:
    """Fetch until a number of offsets of a partition came, and return their ranges; an error ends the test."""
    ranges: list[tuple[int, int]] = []
    async with asyncio.timeout(PATIENCE_S):
        while sum(last - first + 1 for first, last in ranges) < count:
            for number, found in (await member.fetch(records_max=records_max)).items():
                assert not found.error_code or number != partition, found
                if number == partition:
                    ranges += [(first, last) for first, last, _ in found.acquired]
    return ranges


async def test_only_broker_restarts_while_consumers_wait(own_kafka: EmbeddedKafka, topic: str) -> None:
    servers, orders = own_kafka.bootstrap_servers, make_topic(own_kafka)
    with capture_logs() as lines:
        async with gateway(servers, topic, orders) as node:
            worker = Worker(node.address, GROUP, orders)
            produce(servers, orders, [b"before"])
            await worker.until(lambda w: len(w.seen) == 1)
            async with raw_member(node.address, "others", topic_id_of(servers, orders)) as member:
                assert await take(member, 1) == [(0, 0)]
                before = node.requests
                began_s = time.monotonic()
                async with stopped(own_kafka):
                    for _ in range(4):
                        assert not any(each.error_code for each in (await member.fetch()).values())
                seconds = time.monotonic() - began_s
                print(f"\naway for {seconds:.1f} s: {node.requests - before} requests")
                assert node.requests - before <= 10 * seconds
                produce(servers, orders, [b"after"])
                assert await take(member, 1) == [(1, 1)]
            await worker.until(lambda w: len(w.seen) == 2)
            await worker.stop()
    assert not worker.problems
    assert of(lines, "records_not_read")


@pytest.mark.parametrize("magic", [0, 1])
async def test_records_of_an_old_format_are_one_line_and_one_partition(
    own_kafka: EmbeddedKafka, topic: str, magic: int
) -> None:
    servers, orders = own_kafka.bootstrap_servers, make_topic(own_kafka, 2)
    produce_to(servers, orders, 1, 10)
    async with stopped(own_kafka) as segment:
        segment(orders, 0).write_bytes(old_records(magic, 5))
    topic_id = topic_id_of(servers, orders)
    with capture_logs() as lines:
        async with gateway(servers, topic, orders) as node:
            async with raw_member(node.address, GROUP, topic_id, [0, 1]) as member:
                codes, began_s, given = set[int](), time.monotonic(), set[int]()
                while time.monotonic() < began_s + 3 or not codes or len(given) < 10:
                    assert time.monotonic() < began_s + PATIENCE_S, (codes, given)
                    for number, found in (await member.fetch()).items():
                        if number == 0:
                            assert not found.acquired
                            # An answer that is due while it loads has no error yet.
                            codes |= {found.error_code} - {0}
                        else:
                            assert found.error_code == 0
                            given |= {offset for first, last, _ in found.acquired for offset in range(first, last + 1)}
                assert (codes, given) == ({STORAGE}, set(range(10)))
            worker = Worker(node.address, f"{GROUP}-2", orders)
            await worker.until(lambda w: len(w.seen) == 10)
            await worker.stop()
    mine = [line for line in of(lines, NOT_SERVED) if f"{GROUP}:" in line["share_partition"]]
    assert [f"have format {magic}" in line["why"] for line in mine] == [True]


async def test_log_partition_that_failed_stops_what_lies_in_it_alone(own_kafka: EmbeddedKafka, topic: str) -> None:
    servers, orders = own_kafka.bootstrap_servers, make_topic(own_kafka, 4)
    topic_id = topic_id_of(servers, orders)
    for partition in range(4):
        produce_to(servers, orders, partition, 10)
    async with (
        gateway(servers, topic, orders) as node,
        raw_member(node.address, GROUP, topic_id, [0, 1, 2, 3]) as member,
    ):
        seen: set[int] = set()
        while len(seen) < 4:
            seen |= {number for number, found in (await member.fetch()).items() if found.acquired}
    async with stopped(own_kafka) as segment:
        damaged = segment(topic, 0)
        whole, _ = flip_a_bit(damaged, 1)
    settings = make_settings(servers, topic, **{"gateway.topics": orders} | LONG_LOCKS)
    node = RunningNode(settings)
    try:
        # While the other one loads, what lies in it is refused, too.
        await node.until(
            lambda: {held.is_alarmed or held.state for held in node.partitions()} == {True, State.ACTIVE},
            "one log partition has failed, and the other one serves",
        )
        await until_offered(node.address, orders)
        codes: dict[int, int] = {}
        given: set[int] = set()
        async with raw_member(node.address, GROUP, topic_id, [0, 1, 2, 3]) as member:
            began_s = time.monotonic()
            while time.monotonic() < began_s + 3 or any(not codes.get(each) for each in {0, 1, 2, 3} - given):
                assert time.monotonic() < began_s + PATIENCE_S, (codes, given)
                for number, found in (await member.fetch()).items():
                    codes[number] = codes.get(number, 0) or found.error_code
                    given |= {number} if found.acquired else set()
            stalled = {number for number, code in codes.items() if code}
            assert stalled
            assert given == {0, 1, 2, 3} - stalled
            assert {codes[number] for number in stalled} == {STORAGE}
            # The copy is made whole, as by another leader; the broker reads its file again.
            damaged.write_bytes(whole)
            await node.ready()
            while given != {0, 1, 2, 3}:
                given |= {number for number, found in (await member.fetch()).items() if found.acquired}
    finally:
        await asyncio.shield(node.stop())


async def test_retention_takes_no_record_that_is_there(own_kafka: EmbeddedKafka, topic: str) -> None:
    """Below the start offset it changes nothing; above what is held, what is gone is passed over and all else comes."""
    servers, orders = own_kafka.bootstrap_servers, make_topic(own_kafka)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def keep_ms(retention_ms: int) -> None:
        entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, orders, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def log_start() -> int:
        asked = {TopicPartition(orders, 0): earliest_offset()}
        return int(next(iter(admin.list_offsets(asked).values())).result(PATIENCE_S).offset)

    large = bytes(100_000)
    produce(servers, orders, [large] * 100, **ALONE)
    async with (
        gateway(servers, topic, orders) as node,
        raw_member(node.address, GROUP, topic_id_of(servers, orders)) as member,
    ):
        [first] = await take(member, 1, records_max=1)
        answer = await member.acknowledge({0: [first]})
        assert {each.error_code for _, them in answer.topics for each in them} == {0}
        cut = TopicPartition(orders, 0, 1)
        await asyncio.to_thread(lambda: [each.result(PATIENCE_S) for each in admin.delete_records([cut]).values()])
        held = await take(member, 5, records_max=5)
        assert held[0][0] == 1, "a log start at the start offset changes nothing"
        await asyncio.to_thread(keep_ms, 1)
        await wait_until(lambda: log_start() == 100, "retention has taken all")
        await asyncio.to_thread(keep_ms, 3_600_000)
        produce(servers, orders, [b"new"] * 10, **ALONE)
        offsets: set[int] = set()
        async with asyncio.timeout(PATIENCE_S):
            while not offsets >= set(range(100, 110)):
                for first_offset, last_offset in await take(member, 1):
                    offsets |= set(range(first_offset, last_offset + 1))
        # Acknowledgements of records that are gone are answered, and change nothing.
        answer = await member.acknowledge({0: held})
        assert {each.error_code for _, them in answer.topics for each in them} == {0}
        answer = await member.acknowledge({0: [(100, 109)]})
        assert {each.error_code for _, them in answer.topics for each in them} == {0}


def set_read_quota(kafka: str, client_id: str, bytes_per_second: int) -> None:
    """Bound what a client may read."""
    command = [find_java(), *QUICK_KAFKA, "-cp", kafka_classpath(), "kafka.admin.ConfigCommand"]
    options = ["--bootstrap-server", kafka, "--alter", "--entity-type", "clients", "--entity-name", client_id]
    quota = ["--add-config", f"consumer_byte_rate={bytes_per_second}"]
    subprocess.run([*command, *options, *quota], check=True, capture_output=True, timeout=PATIENCE_S)


async def test_read_quota_costs_time_and_one_line(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    orders = new_topic(1)
    produce(kafka, orders, [bytes(100_000)] * 10, **ALONE)
    await asyncio.to_thread(set_read_quota, kafka, topic, 60_000)
    with capture_logs() as lines:
        async with gateway(kafka, topic, orders, **{"kafka.client.id": topic}) as node:
            began_s = time.monotonic()
            worker = Worker(node.address, GROUP, orders)
            await worker.until(lambda w: len(w.seen) == 10)
            took_s = time.monotonic() - began_s
            await worker.stop()
            throttled_ms = (await node.client.admin("metrics"))["holdfast_gateway_read_throttle_time_seconds_total"]
    assert not worker.problems
    why = [line["why"] for line in of(lines, "records_not_read")]
    print(f"\nquota: {took_s:.1f} s, {throttled_ms} ms, {why}")
    assert throttled_ms > 0
    assert any("asks for a pause, because this client has used up its quota" in each for each in why)
