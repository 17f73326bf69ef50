"""The log partitions move from broker to broker while writes go on: every call is answered, and no answer is lost.

Each writer has a share partition and a connection of its own. It acknowledges one offset after the other, and asks again
until an offset is answered with success; a write that was carried out twice changes nothing more. A writer has one call
in flight, so its next success shows that every call before it was answered: that is waited for after each move. How long
calls took is printed and decides nothing.
MOVES=5 kills five brokers, one after the other (1 by default); `pytest -s` shows how long nothing was answered.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from holdfast.broker import EmbeddedKafka
from holdfast.client import Client, ShareStateError, connect
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.exchange import broker_links
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.container_kafka import needs_processes
from tests.real.membership.member_program import Program, running, settings
from tests.real.nodes import (
    DEFAULT_TIMES,
    ONE_TRY,
    PATIENT_CLIENT,
    NodeProcess,
    make_topic,
    node_processes,
    topic_id_of,
)
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.real

either_client = pytest.mark.parametrize("log_client", ["native", "librdkafka"])

#: Brokers that are killed, one after the other.
MOVES = int(os.environ.get("MOVES", "1"))
BROKERS = 3
WRITERS = 16
GROUP, SHARE_TOPIC = "moving", "shares"
LOG_PARTITIONS = 6
LOG = {
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
}
#: Answers that each writer must get before and after each move.
ENOUGH = 10
#: Of each writer, after an answer: brokers have to start on the same processors.
PAUSE_S = int(os.environ.get("PAUSE_MS", "50")) / 1_000

#: What a daemon may say while its log cannot be reached; a client tries again.
RETRIABLE = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}


class Writer:
    """Acknowledges one offset after the other."""

    def __init__(self, client: Client, topic_id: bytes, partition: int) -> None:
        #: So many offsets from 0 on were answered with success.
        self.answered = 0
        self.refusals: Counter[int] = Counter()
        #: The longest that one call took.
        self.longest_s = 0.0
        #: The longest time without a success.
        self.silence_s = 0.0
        #: Held by it from a call to its answer; whoever holds it keeps the writer from the next one.
        self.turn = asyncio.Lock()
        self._client = client
        self._topic_id = topic_id
        self._partition = partition

    async def write(self) -> None:
        """Acknowledge the next offset."""
        batch = StateBatch(self.answered, self.answered, ACKNOWLEDGED, 1 + self.answered % 2)
        await self._client.write(GROUP, self._topic_id, self._partition, 1, 0, -1, [batch])
        self.answered += 1

    async def is_written(self) -> bool:
        """Acknowledge the next offset, or note the refusal; returns whether it was answered with success."""
        try:
            await self.write()
        except ShareStateError as refusal:
            self.refusals[refusal.code] += 1
            return False
        return True

    async def write_on(self) -> None:
        """Acknowledge the next offset, again and again where it is refused for a moment."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not await self.is_written():
            assert time.monotonic() < deadline_s, self.refusals
            await asyncio.sleep(PAUSE_S)

    async def run(self) -> None:
        succeeded_s = time.monotonic()
        while True:
            asked_s = time.monotonic()
            async with self.turn:
                is_written = await self.is_written()
            if is_written:
                self.silence_s = max(self.silence_s, time.monotonic() - succeeded_s)
                succeeded_s = time.monotonic()
            self.longest_s = max(self.longest_s, time.monotonic() - asked_s)
            await asyncio.sleep(PAUSE_S)

    async def lost(self, patient: Client) -> set[int]:
        """Return the offsets that were answered and are not in the state, as a client finds that is refused for a moment only."""
        answered = self.answered
        found = await patient.read(GROUP, self._topic_id, self._partition, leader_epoch=0)
        held = {
            offset
            for first, last, state, count in found.state_batches
            for offset in range(first, last + 1)
            if (state, count) == (ACKNOWLEDGED, 1 + offset % 2)
        }
        return set(range(answered)) - held


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedKafka]:
    needs_processes("The test kills and freezes three brokers")
    with EmbeddedKafka(brokers=BROKERS, jvm_options=QUICK_KAFKA, heap_mib=256) as cluster:
        make_topic(cluster.bootstrap_servers, SHARE_TOPIC, WRITERS, BROKERS)
        yield cluster


class Scene:
    """A daemon over a topic of its own on this cluster, and writers that keep it busy."""

    def __init__(self, brokers: EmbeddedKafka, state_topic: str, node: NodeProcess, writers: list[Writer]) -> None:
        self.brokers = brokers
        self.node = node
        self.writers = writers
        self._state_topic = state_topic
        # A silent broker must not keep the test from asking another.
        self._admin = AdminClient(
            {"bootstrap.servers": brokers.bootstrap_servers, "log_level": 0, "socket.timeout.ms": 1_000}
        )

    async def busiest(self) -> int:
        """Return the broker that leads the most log partitions."""
        found = await self._wait(lambda _: True, "leaders")
        return Counter(leader for leader, _ in found).most_common(1)[0][0]

    async def wait_moved_from(self, broker_id: int) -> None:
        """Wait until this broker leads no log partition."""
        await self._wait(lambda found: all(leader not in (broker_id, -1) for leader, _ in found), "other leaders")

    async def wait_in_sync(self) -> None:
        """Wait until every broker has every record again."""
        await self._wait(lambda found: all(copies == BROKERS for _, copies in found), "all copies in sync")

    async def wait_refusals(self) -> None:
        """Wait until every writer was refused twice more."""
        goals = [writer.refusals.total() + 2 for writer in self.writers]
        await wait_until(
            lambda: all(writer.refusals.total() >= goal for writer, goal in zip(self.writers, goals, strict=True)),
            "two refusals of each writer",
        )

    async def wait_answers(self) -> None:
        """Wait until every writer has some more answers."""
        goals = [writer.answered + ENOUGH for writer in self.writers]
        await wait_until(
            lambda: all(writer.answered >= goal for writer, goal in zip(self.writers, goals, strict=True)),
            f"{ENOUGH} more answers for each writer",
        )

    async def delete_records(self) -> None:
        """Delete every record of every log partition, whoever leads it by now."""
        left = set(range(LOG_PARTITIONS))
        deadline_s = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline_s, f"records of {left} were not deleted"
            # Another client each time: one remembers who led before.
            admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap_servers, "log_level": 0})
            wanted = [TopicPartition(self._state_topic, partition, -1) for partition in left]
            for partition, deleted in admin.delete_records(wanted, request_timeout=5).items():
                with suppress(KafkaException):
                    await asyncio.to_thread(deleted.result, PATIENCE_S)
                    left.discard(partition.partition)
            await asyncio.sleep(0.05)

    async def wait_made_whole(self, events_before: int) -> None:
        """Wait until the node has written again what was deleted of every log partition."""
        wanted = set(range(LOG_PARTITIONS))

        def is_whole() -> bool:
            events = self.node.events()[events_before:]
            failed = [event for event in events if event["event"] == "log_partition_failed"]
            assert not failed, failed
            return {event["partition"] for event in events if event["event"] == "log_whole_again"} == wanted

        await wait_until(is_whole, "all of it written again")

    def check(self) -> None:
        """Check how the writers were answered."""
        refusals = sum((writer.refusals for writer in self.writers), Counter())
        longest_s = max(writer.longest_s for writer in self.writers)
        silence_s = max(writer.silence_s for writer in self.writers)
        answers = sum(writer.answered for writer in self.writers)
        named = {ErrorCode(code).name: number for code, number in refusals.items()}
        print(
            f"\n{answers} writes answered, {named or 'none'} asked again; "
            f"longest call {longest_s:.2f} s, longest time without success {silence_s:.2f} s"
        )
        assert refusals.keys() <= RETRIABLE

    async def lost(self) -> list[set[int]]:
        """Return what was answered and is not in the state, for each writer that lost something."""
        async with connect(self.node.address, PATIENT_CLIENT) as patient:
            return [lost for writer in self.writers if (lost := await writer.lost(patient))]

    async def _wait(self, condition: Callable[[list[tuple[int, int]]], bool], what: str) -> list[tuple[int, int]]:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (found := await asyncio.to_thread(self._log_partitions)) or not condition(found):
            assert time.monotonic() < deadline_s, f"{what}: not within {PATIENCE_S:.0f} s, but {found}"
            await asyncio.sleep(0.05)
        return found

    def _log_partitions(self) -> list[tuple[int, int]]:
        """Return leader and number of brokers in sync of each log partition; nothing where no broker answers."""
        try:
            partitions = self._admin.list_topics(self._state_topic, timeout=2).topics[self._state_topic].partitions
        except KafkaException:
            return []
        return [(partition.leader, len(partition.isrs)) for partition in partitions.values()]


@asynccontextmanager
async def scene(brokers: EmbeddedKafka, state_topic: str, directory: Path, **settings: object) -> AsyncIterator[Scene]:
    """Give writers at work, and check in the end that nothing was lost, neither here nor by a load."""
    topic_id = topic_id_of(brokers.bootstrap_servers, SHARE_TOPIC)
    config = {**FIXED_CONFIG, "min.insync.replicas": "2"}
    await asyncio.to_thread(make_topic, brokers.bootstrap_servers, state_topic, LOG_PARTITIONS, BROKERS, config)
    async with AsyncExitStack() as stack:
        make_node = stack.enter_context(node_processes(brokers.bootstrap_servers, state_topic, directory))
        node = make_node(**LOG | dict(DEFAULT_TIMES) | settings)
        await node.start()
        async with connect(node.address, PATIENT_CLIENT) as patient:
            for partition in range(WRITERS):
                await patient.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
        writers = []
        for partition in range(WRITERS):
            client = await stack.enter_async_context(connect(node.address, ONE_TRY))
            writers.append(Writer(client, topic_id, partition))
        playing = Scene(brokers, state_topic, node, writers)
        running = [asyncio.create_task(writer.run()) for writer in writers]
        try:
            await playing.wait_answers()
            yield playing
        except AssertionError:
            print(node.last_words())
            raise
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        assert {type(end) for end in ended} == {asyncio.CancelledError}, ended
        playing.check()
        assert await playing.lost() == []
        node.kill()
        await node.start()
        assert await playing.lost() == []


@either_client
async def test_a_broker_is_killed_and_comes_back(
    brokers: EmbeddedKafka, topic: str, tmp_path: Path, log_client: str
) -> None:
    async with scene(brokers, topic, tmp_path, **{"log.client": log_client}) as playing:
        for _ in range(MOVES):
            victim = await playing.busiest()
            brokers.kill(victim)
            await playing.wait_moved_from(victim)
            await playing.wait_answers()
            await asyncio.to_thread(brokers.restart, victim)
            await playing.wait_in_sync()
            await playing.wait_answers()


async def test_a_broker_is_restarted_in_good_order(brokers: EmbeddedKafka, topic: str, tmp_path: Path) -> None:
    """It hands its log partitions over before it ends, so its connections tell of it first; and the groups that it coordinates.

    The members of one know no other broker to begin with. They stay, and nobody joins anew.
    """
    async with scene(brokers, topic, tmp_path) as playing:
        group, victim, others = await coordinated_group(brokers.bootstrap_servers)
        only = brokers.bootstrap_servers.split(",")[victim - 1]
        async with running(Program(), only, settings(group)) as one, running(Program(), only, settings(group)) as two:
            for each in (one, two):
                await each.until_members(2)
            generation = one.member.generation
            await asyncio.to_thread(brokers.stop, victim)
            async with running(Program(), others, settings(group)) as three:
                for each in (one, two, three):
                    await each.until_members(3)
                assert one.member.generation == replace(generation, id=generation.id + 1)
                assert "lost" not in one.program.happened + two.program.happened
            await asyncio.to_thread(brokers.restart, victim)
        await playing.wait_in_sync()
        await playing.wait_answers()


async def coordinated_group(bootstrap_servers: str) -> tuple[str, int, str]:
    """Return the id of a new group, which broker coordinates it, and the address of another one."""
    options = connection_options({"bootstrap.servers": bootstrap_servers})
    links = broker_links(options, PATIENCE_MS)
    group = f"group-{uuid4()}"
    try:
        [found] = await Coordinators(links).find_within([Key(KeyType.GROUP, group)], PATIENCE_S)
    finally:
        links.close()
    assert not found.error_code
    other = next(address for address in options.bootstrap if address != found.address)
    return group, found.node_id, format_address(*other)


async def test_a_broker_falls_silent_and_wakes_up(brokers: EmbeddedKafka, topic: str, tmp_path: Path) -> None:
    async with scene(brokers, topic, tmp_path) as playing:
        victim = await playing.busiest()
        brokers.freeze(victim)
        try:
            await playing.wait_moved_from(victim)
            await playing.wait_answers()
        finally:
            brokers.thaw(victim)
        await playing.wait_in_sync()
        await playing.wait_answers()


@either_client
async def test_a_broker_wakes_up_alone_and_names_leaders_of_the_past(
    brokers: EmbeddedKafka, topic: str, tmp_path: Path, log_client: str
) -> None:
    """Nobody can tell it that it leads no more; the end that its log has is not taken for the end of the log."""
    settings = {"request_timeout_ms": 4_000, "log.client": log_client}
    async with scene(brokers, topic, tmp_path, **settings) as playing:
        victim = await playing.busiest()
        brokers.freeze(victim)
        try:
            await playing.wait_moved_from(victim)
            await playing.wait_answers()
            for other in {node.node_id for node in brokers.nodes} - {victim}:
                brokers.freeze(other)
            brokers.thaw(victim)
            await playing.wait_refusals()
        finally:
            brokers.thaw()
        await playing.wait_in_sync()
        await playing.wait_answers()


async def test_an_owner_outlives_that_all_is_deleted_on_a_leader_just_elected(
    brokers: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """The last record that was acknowledged cannot be shown to its tail any more, and its memory has all of them."""
    times = {"session.timeout.ms": PATIENCE_MS, "rebalance.timeout.ms": PATIENCE_MS}  # it is frozen for some seconds
    async with scene(brokers, topic, tmp_path, **times) as playing:
        async with AsyncExitStack() as turns:
            for writer in playing.writers:
                await turns.enter_async_context(writer.turn)
            # Behind lone writes the last record of a log partition was acknowledged, as a rule, and no fetch has shown it.
            for writer in playing.writers * 3:
                await writer.write_on()
            victim = await playing.busiest()
            events_before = len(playing.node.events())
            playing.node.signal(signal.SIGSTOP)
            try:
                brokers.kill(victim)
                await playing.wait_moved_from(victim)
                await playing.delete_records()
            finally:
                playing.node.signal(signal.SIGCONT)
            await playing.wait_made_whole(events_before)
        await playing.wait_answers()
        await asyncio.to_thread(brokers.restart, victim)
        await playing.wait_in_sync()
