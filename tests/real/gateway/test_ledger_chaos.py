"""Stock share consumers work through a topic while their node, its broker and their connections are killed, frozen and cut.

Every record, every answer and every time goes into a ledger, which is judged in the end: none lost, none skipped, none settled and
delivered again, no offset locked by two at once, each duplicate explained.

Short by default: the worst disturbances once. LEDGER_S=600 goes on with all of them for 600 seconds; LEDGER_CONSUMERS says
how many consumers there are (4), LEDGER_SEED which run is played again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.client import ClientError, connect
from holdfast.kafka.addresses import parse_address
from tests.real.gateway.cutting_proxy import CuttingProxy
from tests.real.gateway.ledger import Delivery, Ledger, Place, read_journal
from tests.real.gateway.state_log import Fate, LogTape, StateLog
from tests.real.nodes import DEFAULT_TIMES, ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

LEDGER_S: Final = float(os.environ.get("LEDGER_S", "0"))
SEED: Final = int(os.environ.get("LEDGER_SEED", random.randrange(1 << 32)))
CONSUMERS: Final = int(os.environ.get("LEDGER_CONSUMERS", "4"))
#: Two consumers share each, so that they hold records of one partition at a time.
PARTITIONS: Final = 2
GROUP: Final = "ledger"
TOPIC: Final = "records"
#: The least that a group may have, so that locks end while the run goes on.
LOCK_S: Final = 15.0
#: Kafka's default: now and then a record is given up, and the ledger must prove it.
DELIVERIES_MAX: Final = 5
CONFIGS: Final = {
    f"gateway.groups.{GROUP}.share.auto.offset.reset": "earliest",
    f"gateway.groups.{GROUP}.share.record.lock.duration.ms": int(LOCK_S * 1_000),
    f"gateway.groups.{GROUP}.share.delivery.count.limit": DELIVERIES_MAX,
}
LOG_PARTITIONS: Final = 4
#: Between two records.
PAUSE_S: Final = 0.002
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Polls with records after a disturbance before the next one.
PROGRESS: Final = 20
_TICK_S: Final = 0.05
#: A turn that is so late is a stall: time-outs of the node and of consumers are some seconds.
_STALL_S: Final = 1.0
#: Disturbances of the short form.
SHORT: Final = ("node killed", "answers cut", "node frozen", "consumer killed", "broker killed")


class Numbers:
    """A thread that produces numbered records, one producer for each codec in turn, and notes the place of each."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.places: list[Place] = []
        self.given_up = 0
        self._stop = threading.Event()
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "acks": "all",
                    "compression.type": codec,
                    "linger.ms": 20,
                    # One that stalls at a dead broker gives up: its records may be in the topic, and the ledger expects them not.
                    "message.timeout.ms": 60_000,
                    "log_level": 0,
                }
            )
            for codec in CODECS
        ]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            if self._stop.is_set():
                return
            producer = self._producers[number // 100 % len(CODECS)]
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._on_delivery)
            if number % 10 == 0:
                for each in self._producers:
                    each.poll(0)
            time.sleep(PAUSE_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.given_up += 1
        else:
            self.places.append((partition, offset))

    def stop(self) -> None:
        """Produce no more, and wait until all records are in the topic."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers:
            assert producer.flush(PATIENCE_S) == 0


class Consumers:
    """Processes with a stock consumer each; one that ends is replaced."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory
        self._seeds = count(SEED & 0xFFFF)
        self._running: dict[subprocess.Popen[bytes], Path] = {}
        #: The journals of those that ended, and when.
        self._ended: list[tuple[Path, float]] = []
        self.killed = 0
        self._ends = {0, -signal.SIGKILL}

    def keep(self, number: int) -> None:
        """Note those that ended, and start others in their place."""
        for process in list(self._running):
            if process.poll() is not None:
                assert process.returncode in self._ends, f"a consumer ended with {process.returncode}"
                self._ended.append((self._running.pop(process), time.monotonic()))
        while len(self._running) < number:
            seed = next(self._seeds)
            journal = self._directory / f"consumer-{seed}"
            command = [sys.executable, "-m", "tests.real.gateway.ledger_consumer"]
            arguments = [self._address, GROUP, TOPIC, str(journal), str(seed)]
            self._running[subprocess.Popen([*command, *arguments])] = journal

    def kill(self, chance: random.Random) -> None:
        """End one by SIGKILL."""
        chance.choice(list(self._running)).kill()
        self.killed += 1

    def freeze(self, chance: random.Random) -> Callable[[], None]:
        """Stop one, and return what has it go on."""
        process = chance.choice(list(self._running))
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all in good order."""
        # One that has only just been started does not know the signal yet.
        self._ends.add(-signal.SIGTERM)
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in list(self._running):
            process.wait(PATIENCE_S)
        self.keep(0)

    def clean_up(self) -> None:
        """Leave no process."""
        for process in self._running:
            process.kill()
            process.wait()

    def count_polls(self) -> int:
        """Return how many polls brought records so far."""
        journals = [*self._running.values(), *(journal for journal, _ in self._ended)]
        return sum(journal.read_bytes().count(b'"asked"') for journal in journals if journal.exists())

    def deliveries(self) -> list[Delivery]:
        """Return what all of them got; after `stop`."""
        return [each for journal, ended_s in self._ended for each in read_journal(journal, ended_s)]


class StallWatch:
    """A thread that notes when the machine stands still, which disturbs a run as much as what is done to it."""

    def __init__(self) -> None:
        self.stalled_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._stop.wait(_TICK_S):
            now_s = time.monotonic()
            if now_s - before_s > _STALL_S:
                self.stalled_s += between(before_s, now_s)
            before_s = now_s

    def stop(self) -> list[float]:
        """Watch no more, and return times within all stalls."""
        self._stop.set()
        self._thread.join()
        return self.stalled_s


def between(from_s: float, to_s: float) -> list[float]:
    """Return times from one to another, so many that no answer falls between two of them."""
    return [*(from_s + at * _TICK_S for at in range(int((to_s - from_s) / _TICK_S) + 1)), to_s]


class Run:
    """The parts of a run, and what befalls them."""

    def __init__(
        self, kafka: EmbeddedKafka, node: NodeProcess, proxy: CuttingProxy, consumers: Consumers, chance: random.Random
    ) -> None:
        self._kafka = kafka
        self._node = node
        self._proxy = proxy
        self._consumers = consumers
        self._chance = chance
        self.disturbed_s: list[float] = []
        self.done: list[str] = []
        #: Each step, by its name.
        self.steps: dict[str, Callable[[], Awaitable[None]]] = {
            "node killed": self._kill_node,
            "connections cut": self._cut,
            "answers cut": self._cut_answers,
            "node frozen": self._freeze_node,
            "consumer killed": self._kill_consumer,
            "node stopped": self._stop_node,
            "broker killed": self._kill_broker,
            "consumer frozen": self._freeze_consumer,
            "broker frozen": self._freeze_broker,
            "broker stopped": self._stop_broker,
        }

    async def play(self, name: str) -> None:
        """Do one thing, and wait until records flow again."""
        began_s = time.monotonic()
        self.disturbed_s.append(began_s)
        await self.steps[name]()
        # An answer to an earlier request may come a while later.
        over_s = time.monotonic()
        self.disturbed_s += between(began_s, over_s)
        before = self._consumers.count_polls()

        def has_more() -> bool:
            self._consumers.keep(CONSUMERS)
            assert self._node.exit_code() is None, f"the node ended: {self._node.last_words()}"
            return self._consumers.count_polls() >= before + PROGRESS

        await wait_until(has_more, f"more records after: {name}")
        again_s = time.monotonic()
        self.disturbed_s.append(again_s)
        self.done.append(name)
        print(f"  {name}: took {over_s - began_s:.1f} s, then records after {again_s - over_s:.1f} s", flush=True)

    async def _kill_node(self) -> None:
        self._node.kill()
        await asyncio.sleep(self._chance.random())
        self._node.launch()

    async def _stop_node(self) -> None:
        self._node.signal(signal.SIGTERM)
        assert await self._node.wait_exit() == 0
        self._node.launch()

    async def _freeze_node(self) -> None:
        self._node.signal(signal.SIGSTOP)
        await asyncio.sleep(self._pause_s(1.5))
        self._node.signal(signal.SIGCONT)

    async def _freeze_consumer(self) -> None:
        thaw = self._consumers.freeze(self._chance)
        await asyncio.sleep(self._pause_s(1.5))
        thaw()

    def _pause_s(self, least_s: float) -> float:
        """Return how long something is frozen: now and then for longer than a lock lasts, in a long run."""
        return LOCK_S + 5 if LEDGER_S and self._chance.random() < 0.1 else least_s + 4 * self._chance.random()

    async def _cut(self) -> None:
        self._proxy.cut()

    async def _cut_answers(self) -> None:
        for _ in range(3):
            self._proxy.cut_in_answers()
            await asyncio.sleep(0.2)

    async def _kill_consumer(self) -> None:
        self._consumers.kill(self._chance)

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._kafka.kill)
        await asyncio.sleep(self._chance.random() * (10 if LEDGER_S else 1))
        await asyncio.to_thread(self._kafka.restart)

    async def _stop_broker(self) -> None:
        await asyncio.to_thread(self._kafka.stop)
        await asyncio.to_thread(self._kafka.restart)

    async def _freeze_broker(self) -> None:
        await asyncio.to_thread(self._kafka.freeze)
        await asyncio.sleep(self._pause_s(1.0))
        await asyncio.to_thread(self._kafka.thaw)


@contextmanager
def own_kafka() -> Iterator[EmbeddedKafka]:
    """Give a broker that may be killed, with the topic."""
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)
        yield kafka


async def all_done(node: NodeProcess, ends: dict[int, int]) -> bool:
    """Tell whether the state has every record as finished."""
    try:
        async with connect(node.address, ONE_TRY) as client:
            rows = (await client.admin("share-partitions", group=GROUP))["share_partitions"]
    except ClientError:
        return False
    done = {row["partition"]: row["start_offset"] + row["finished"] for row in rows if not row["in_flight"]}
    return all(done.get(partition, 0) >= end for partition, end in ends.items())


def read_fates(tape: LogTape, topic_id: bytes) -> tuple[dict[Place, Fate], list[str]]:
    """Return what the log says of each record, and the faults in it."""
    fates: dict[Place, Fate] = {}
    faults: list[str] = []
    for log_partition in tape.records:
        log = StateLog(GROUP)
        for record in log_partition:
            log.add(record)
        faults += log.faults
        for key in log.states:
            assert key.topic_id == topic_id
            for fate in log.fates(key):
                fates |= {(key.partition, offset): fate for offset in range(fate.first, fate.last + 1)}
    return fates, faults


async def test_no_record_is_lost_or_skipped_and_each_duplicate_is_explained(topic: str, tmp_path: Path) -> None:
    print(f"\nLEDGER_SEED={SEED}")
    chance = random.Random(SEED)
    with own_kafka() as kafka, node_processes(kafka.bootstrap_servers, topic, tmp_path) as make_node:
        servers = kafka.bootstrap_servers
        listen = make_node().address
        async with CuttingProxy(*parse_address(listen)) as proxy:
            node = make_node(
                **dict(DEFAULT_TIMES)
                | CONFIGS
                | {
                    "listen": listen,
                    "advertised_listener": proxy.address,
                    "gateway.topics": TOPIC,
                    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
                    "membership": "static",
                    "take_over": True,
                }
            )
            await node.start()
            tape = LogTape(servers, topic, LOG_PARTITIONS)
            numbers, consumers = Numbers(servers), Consumers(proxy.address, tmp_path)
            watch = StallWatch()
            try:
                run = Run(kafka, node, proxy, consumers, chance)
                consumers.keep(CONSUMERS)
                await wait_until(lambda: consumers.count_polls() > PROGRESS, "the first records")
                ends_s = time.monotonic() + LEDGER_S
                for name in run.steps if LEDGER_S else SHORT:
                    await run.play(name)
                while time.monotonic() < ends_s:
                    await run.play(chance.choice(list(run.steps)))
                await asyncio.to_thread(numbers.stop)
                ends: dict[int, int] = {}
                for partition, offset in numbers.places:
                    ends[partition] = max(ends.get(partition, 0), offset + 1)
                deadline = time.monotonic() + PATIENCE_S
                while not await all_done(node, ends):
                    consumers.keep(CONSUMERS)
                    assert time.monotonic() < deadline, "not all records were finished"
                    await asyncio.sleep(0.2)
                await asyncio.to_thread(consumers.stop)
            finally:
                consumers.clean_up()
                stalled_s = watch.stop()
            node.signal(signal.SIGTERM)
            assert await node.wait_exit() == 0
            tape.stop()
        fates, faults = read_fates(tape, topic_id_of(servers, TOPIC))
        # The topic has no holes, so a record whose producer gave it up is there if it has an offset.
        places = [(partition, offset) for partition, end in ends.items() for offset in range(end)]
        findings = Ledger(
            places, consumers.deliveries(), fates, [*run.disturbed_s, *stalled_s], LOCK_S, DELIVERIES_MAX
        ).judge()
        findings.faults += faults
        print(
            f"{len(numbers.places)} records produced, {numbers.given_up} given up by their producer; "
            f"{len(run.done)} disturbances: {dict(Counter(run.done))}\n"
            f"{len(places)} records of the topic: {dict(findings.ends)}; {findings.deliveries} deliveries, "
            f"{findings.duplicates.total()} of them duplicates: {dict(findings.duplicates)}; "
            f"answers by code: {dict(findings.codes)}; {sum(map(len, tape.records))} records of the log; "
            f"faults: {len(findings.faults)}"
        )
        print("\n".join(f"  given up: {line}" for line in findings.given_up))
        assert not findings.faults, "\n".join(findings.faults[:20])
