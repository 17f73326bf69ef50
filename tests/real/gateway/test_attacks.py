"""Troubles one by one: of clients, of topics, and of the log; consumers go on, and neither they nor the node spin."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.api.share_fetch import FetchedPartition
from holdfast.broker import EmbeddedKafka
from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.runtime.log_protocol import LogRecord
from tests.real.gateway.raw_member import RawMember, raw_member, until_offered
from tests.real.gateway.test_stock_consumers import EARLIEST, Worker, produce, produce_to
from tests.real.nodes import topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.running_node import RunningNode, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, look_until, poll_pause_s, wait_until

pytestmark = pytest.mark.real

#: A lock of these tests lasts so long that none ends.
LOCK_S: Final = 60.0
LONG_LOCKS: Final = EARLIEST | {"gateway.groups.default.share.record.lock.duration.ms": int(LOCK_S * 1_000)}
GROUP: Final = "workers"
#: Each record is a batch, and so acquired alone.
ALONE: Final = {"batch.num.messages": 1}


@asynccontextmanager
async def gateway(kafka: str, state_topic: str, topics: str, **settings: object) -> AsyncIterator[RunningNode]:
    """Give a node that offers a topic, in the process of the test."""
    async with running(make_settings(kafka, state_topic, **{"gateway.topics": topics} | LONG_LOCKS | settings)) as node:
        await until_offered(node.address, topics)
        yield node


async def metric(node: RunningNode, name: str) -> float:
    """Return a number of a node's gateway."""
    return float((await node.client.admin("metrics"))[f"holdfast_gateway_{name}"])


async def until_waiting(node: RunningNode, count: int) -> None:
    """Wait until a number of fetches wait in a node."""
    await look_until(
        lambda: metric(node, "fetches_waiting"), lambda waiting: waiting == count, f"{count} fetches that wait"
    )


@contextmanager
def process_that_holds(address: str, topic: str, journal: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process whose stock consumer takes records, says so in a file, and does nothing more."""
    program = (
        "import sys, time\n"
        "from confluent_kafka import ShareConsumer\n"
        "address, group, topic, journal = sys.argv[1:]\n"
        "own = {'bootstrap.servers': address, 'group.id': group, 'share.acknowledgement.mode': 'explicit', 'log_level': 0}\n"
        "consumer = ShareConsumer(own)\n"
        "consumer.subscribe([topic])\n"
        "messages = []\n"
        "while not messages:\n"
        "    messages = list(consumer.poll(0.5))\n"
        "open(journal, 'w').write(str(len(messages)))\n"
        "time.sleep(1000)\n"
    )
    command = [sys.executable, "-c", program, address, GROUP, topic, str(journal)]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_killed_client_gives_its_records_back_at_once(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    orders = new_topic(1)
    produce(kafka, orders, [b"%d" % number for number in range(50)])
    async with gateway(kafka, topic, orders) as node:
        journal = tmp_path / "journal"
        with process_that_holds(node.address, orders, journal) as process:
            await wait_until(lambda: journal.exists() and journal.read_text(), "it holds records")
            worker = Worker(node.address, GROUP, orders)
            held = int(journal.read_text())
            assert held == 50
            process.kill()
            began_s = time.monotonic()
            await worker.until(lambda w: len(w.seen) >= 50)
            took_s = time.monotonic() - began_s
            await worker.stop()
        print(f"\nkilled: {held} records were there for others after {took_s:.2f} s")
        assert not await metric(node, "locks_ended_total"), "no lock had to end"


async def wait_for_outcome(member: RawMember) -> FetchedPartition:
    """Fetch until partition 0 has records or an error: an answer that is due before it is loaded has neither."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + PATIENCE_S:
        found = (await member.fetch(wait_ms=2_000)).get(0)
        if found is not None and (found.acquired or found.error_code):
            return found
    raise AssertionError("nothing came of it")


async def wait_for_records(member: RawMember) -> FetchedPartition:
    """Fetch until records of partition 0 come."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + PATIENCE_S:
        found = (await member.fetch(wait_ms=500)).get(0)
        if found is not None and found.acquired:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("no records came")


async def test_a_state_that_another_leader_fenced_is_asked_for_twice_a_second(
    kafka: str, topic: str, new_topic: NewTopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Read by another program with an epoch that no owner has: each load is refused, and other partitions go on."""
    loads = []
    load = LedPartition.load

    def count(led: LedPartition) -> None:
        loads.append((time.monotonic(), led.key.partition))
        load(led)

    monkeypatch.setattr(LedPartition, "load", count)
    orders = new_topic(2)
    topic_id = topic_id_of(kafka, orders)
    for partition in range(2):
        produce_to(kafka, orders, partition, 300)
    async with gateway(kafka, topic, orders) as node:
        async with raw_member(node.address, GROUP, topic_id, [0, 1]) as first:
            # The fence is one of a state, which there is when records come.
            seen, began_s = set[int](), time.monotonic()
            while seen != {0, 1}:
                assert time.monotonic() < began_s + PATIENCE_S, f"records came of {seen} alone"
                seen |= {number for number, found in (await first.fetch()).items() if found.acquired}
        await node.client.read(GROUP, topic_id, 0, leader_epoch=1 << 30)
        loads.clear()
        began_s = time.monotonic()
        codes: set[int] = set()
        requests = of_other = 0
        async with raw_member(node.address, GROUP, topic_id, [0, 1]) as member:
            while time.monotonic() < began_s + 3 or of_other < 20:
                answer = await member.fetch(wait_ms=500, records_max=1)
                requests += 1
                codes |= {each.error_code for each in answer.values()}
                of_other += 1 in answer and bool(answer[1].acquired)
                assert time.monotonic() < began_s + PATIENCE_S, "the other partition has records, and they come"
        seconds = time.monotonic() - began_s
        of_fenced = [at for at, partition in loads if partition == 0]
        print(f"\nfenced: {requests} fetches, {len(of_fenced)} loads in {seconds:.1f} s, codes {codes}")
        assert len(of_fenced) <= 2 * seconds + 2
        # As docs/alarms.md has it. In between the group may begin again by itself, which the new state epoch ends.
        await node.client.initialize(GROUP, topic_id, 0, state_epoch=1_000, start_offset=7)
        async with raw_member(node.address, GROUP, topic_id, [0]) as member:
            assert (await wait_for_outcome(member)).error_code, "a new state alone keeps the fence"
        await node.client.delete(GROUP, topic_id, 0)
        async with raw_member(node.address, GROUP, topic_id, [0]) as member:
            await wait_for_records(member)
            await node.client.initialize(GROUP, topic_id, 0, state_epoch=1_000, start_offset=7)
        async with raw_member(node.address, GROUP, topic_id, [0]) as member:
            assert (await wait_for_records(member)).acquired[0][0] == 7


async def test_a_topic_made_again_under_its_name_is_read_from_its_beginning(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(2)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    async with gateway(kafka, topic, orders, metadata_refresh_interval_ms=1_000) as node:
        produce(kafka, orders, [b"before %d" % number for number in range(100)])
        worker = Worker(node.address, GROUP, orders)
        await worker.until(lambda w: len(w.seen) >= 100)
        await asyncio.to_thread(admin.delete_topics([orders])[orders].result, PATIENCE_S)
        await asyncio.sleep(1)
        await asyncio.to_thread(admin.create_topics([NewTopic(orders, 2, 1)])[orders].result, PATIENCE_S)
        began_s = time.monotonic()
        await asyncio.sleep(0.5)
        produce(kafka, orders, [b"after %d" % number for number in range(100)])
        await wait_until(
            lambda: sum(value.startswith(b"after") for _, _, value in worker.seen) >= 100,
            "records of the new topic",
        )
        print(
            f"\nmade again: its records came {time.monotonic() - began_s:.1f} s after; problems {set(worker.problems)}"
        )
        await worker.stop()


async def test_records_that_were_deleted_are_passed_over_and_all_others_come(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(1)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    produce(kafka, orders, [b"%d" % number for number in range(100)], **ALONE)
    async with gateway(kafka, topic, orders) as node:
        topic_id = topic_id_of(kafka, orders)
        async with raw_member(node.address, GROUP, topic_id) as member:
            # The first ten are held, the others were never given.
            while not (found := (await member.fetch(records_max=10)).get(0)) or not found.acquired:
                pass
            cut = TopicPartition(orders, 0, 50)
            await asyncio.to_thread(lambda: [each.result(PATIENCE_S) for each in admin.delete_records([cut]).values()])
            produce(kafka, orders, [b"%d" % number for number in range(100, 200)])
            worker = Worker(node.address, GROUP, orders)
            await worker.until(lambda w: {offset for _, offset, _ in w.seen} >= set(range(100, 200)))
            answer = await member.acknowledge({0: [(first, last) for first, last, _ in found.acquired]})
            print(f"\ndeleted: acknowledged below the log's start: {answer.topics}, given: {len(worker.seen)}")
        await wait_until(lambda: len(worker.seen) >= 150 or worker.problems, "all that was not held")
        await worker.stop()
        assert not worker.problems


async def test_each_codec_and_a_batch_that_is_larger_than_a_fetch_pass(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(1, max_message_bytes=str(8 << 20))
    values = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        some = [f"{codec} {number}".encode() * 20 for number in range(50)]
        produce(kafka, orders, some, **{"compression.type": codec, "linger.ms": 50})
        values += some
    large = random.Random(1).randbytes(6 << 20)
    produce(kafka, orders, [large], **{"message.max.bytes": 8 << 20})
    values.append(large)
    produce(kafka, orders, [b"last"])
    values.append(b"last")
    async with gateway(kafka, topic, orders) as node:
        worker = Worker(node.address, GROUP, orders, **{"fetch.max.bytes": 1 << 20, "fetch.message.max.bytes": 100_000})
        await worker.until(lambda w: len(w.seen) >= len(values))
        await worker.stop()
        assert sorted(value for _, _, value in worker.seen) == sorted(values)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_aborted_records_come_only_where_the_group_reads_uncommitted_ones(
    kafka: str, topic: str, new_topic: NewTopicFactory, isolation: str
) -> None:
    orders = new_topic(1)
    committed, aborted = [], []
    for transaction in range(6):
        producer = Producer(
            {"bootstrap.servers": kafka, "transactional.id": f"{orders}-{transaction % 2}", "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        some = [b"%d of %d" % (number, transaction) for number in range(20)]
        for value in some:
            producer.produce(orders, value)
        producer.flush(PATIENCE_S)
        if transaction % 3 == 1:
            producer.abort_transaction(PATIENCE_S)
            aborted += some
        else:
            producer.commit_transaction(PATIENCE_S)
            committed += some
    produce(kafka, orders, [b"last"])
    wanted = committed + [b"last"] + (aborted if isolation == "read_uncommitted" else [])
    settings = {"gateway.groups.default.share.isolation.level": isolation}
    async with gateway(kafka, topic, orders, **settings) as node:
        worker = Worker(node.address, GROUP, orders)
        await worker.until(lambda w: any(value == b"last" for _, _, value in w.seen) and len(w.seen) >= len(wanted))
        await worker.stop()
        assert sorted(value for _, _, value in worker.seen) == sorted(wanted)


async def test_a_compacted_topic_is_worked_through_to_its_end(topic: str) -> None:
    """A broker of its own, whose cleaner does not rest for 15 seconds."""
    eager = {"log.cleaner.backoff.ms": "100"}
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, heap_mib=256, properties=eager) as own:
        servers, orders = own.bootstrap_servers, "orders"
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
        admin.create_topics([NewTopic(orders, 1, 1, config=config)])[orders].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 20, "acks": "all"})
        for number in range(2_000):
            producer.produce(orders, b"%d" % number, key=b"%d" % (number % 7 if number % 10 else number))
        assert producer.flush(PATIENCE_S) == 0

        def compact() -> list[LogRecord]:
            """Roll the segment until the cleaner has been there, and return the records that are left."""
            while True:
                producer.produce(orders, b"last", key=b"last")
                assert producer.flush(PATIENCE_S) == 0
                left = read_log(servers, orders, 0)
                if len(left) < 400:
                    return left
                time.sleep(0.2)

        left = await asyncio.to_thread(compact)
        async with gateway(servers, topic, orders) as node:
            worker = Worker(node.address, GROUP, orders)
            await worker.until(lambda w: left[-1].offset in {offset for _, offset, _ in w.seen})
            await worker.stop()
            # The cleaner may have gone on while the records were read.
            still_there = await asyncio.to_thread(read_log, servers, orders, 0)
            seen = {offset for _, offset, _ in worker.seen}
            assert {record.offset for record in still_there} <= seen <= {record.offset for record in left}
            # The last of it is written when the worker is gone.
            began_s, row = time.monotonic(), dict[str, Any]()
            while not row or row["in_flight"] or row["start_offset"] + row["finished"] != left[-1].offset + 1:
                assert time.monotonic() < began_s + PATIENCE_S, row
                [row] = (await node.client.admin("share-partitions", group=GROUP))["share_partitions"]
        print(f"\ncompacted: {len(left)} records of {left[-1].offset + 1} offsets")


async def test_eight_consumers_at_four_partitions_all_get_their_share(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(4)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(kafka, topic, orders))
        workers = [Worker(node.address, GROUP, orders) for _ in range(8)]
        began_s, assigned = time.monotonic(), list[int]()
        while assigned != [1] * len(workers) or await metric(node, "share_sessions") < len(workers):
            assert time.monotonic() < began_s + PATIENCE_S, f"they have {assigned} partitions"
            members = (await node.client.admin("group-members", group=GROUP))["members"]
            assigned = [each["partitions"] for each in members]
            await asyncio.sleep(poll_pause_s(began_s))
        producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5, "log_level": 0})
        for number in range(8_000):
            producer.produce(orders, b"%d" % number, partition=number % 4)
            if number % 40 == 0:
                producer.flush(PATIENCE_S)
                await asyncio.sleep(0.02)
        assert producer.flush(PATIENCE_S) == 0
        await wait_until(lambda: sum(len(each.seen) for each in workers) >= 8_000, "all records")
        for each in workers:
            await each.stop()
        counts = sorted(len(each.seen) for each in workers)
        print(f"\nfairness: {counts}")
        assert sum(counts) == 8_000
        assert counts[0] >= 8_000 / 8 / 4, "nobody starves"


async def test_a_client_that_reads_no_answers_holds_up_nobody(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    orders = new_topic(2)
    produce(kafka, orders, [bytes(100_000)] * 1_000, **{"compression.type": "none"})
    topic_id = topic_id_of(kafka, orders)
    async with gateway(kafka, topic, orders) as node:
        async with raw_member(node.address, GROUP, topic_id, [0, 1]) as deaf:
            await deaf.fetch()
            transport: Any = deaf.connection._transport  # no client of ours is deaf
            transport.pause_reading()
            asks = [asyncio.ensure_future(deaf.fetch(records_max=100)) for _ in range(20)]
            worker = Worker(node.address, GROUP, orders)
            await worker.until(lambda w: len(w.seen) >= 200)
            for each in asks:
                each.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        await worker.until(lambda w: len({(p, o) for p, o, _ in w.seen}) >= 1_000)
        await worker.stop()


async def test_a_stop_answers_the_fetches_that_wait(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    orders = new_topic(1)
    topic_id = topic_id_of(kafka, orders)
    async with gateway(kafka, topic, orders) as node, AsyncExitStack() as stack:
        members = [await stack.enter_async_context(raw_member(node.address, GROUP, topic_id)) for _ in range(20)]
        for each in members:
            await each.fetch(wait_ms=1)
        wait_s = 60
        asks = [asyncio.ensure_future(each.fetch(wait_ms=wait_s * 1_000)) for each in members]
        await until_waiting(node, len(asks))
        began_s = time.monotonic()
        await node.stop()
        assert time.monotonic() - began_s < wait_s / 2
        assert await asyncio.gather(*asks) == [{}] * len(members), "no partition has an error"
