"""A node that sleeps through its own replacement does no harm, and a node that is told to stop keeps its word."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from holdfast.api.results import StateRequest, WritePartition
from holdfast.api.share_state import WRITE
from holdfast.api.state_requests import encode_request
from holdfast.api.state_responses import decode_response
from holdfast.broker import EmbeddedKafka
from holdfast.client import Client, ShareStateError, connect
from holdfast.client.client import parse_address
from holdfast.client.connection import NodeConnection, open_connection
from holdfast.client.errors import Disconnected
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from tests.real.container_kafka import needs_processes
from tests.real.nodes import ONE_TRY, PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.real.shared_kafka import LONG_SESSION, NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until
from tests.world.samples import EPOCH_MAX

pytestmark = pytest.mark.real

GROUP = "freezing"
SHARE_PARTITIONS = 16

#: What each of two nodes is asked to write after the take-over; neither batch joins another.
THE_SUCCESSORS = StateBatch(1_000_000, 1_000_000, AVAILABLE, 7)
THE_SLEEPERS = StateBatch(2_000_000, 2_000_000, AVAILABLE, 8)

NOT_DONE = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.network_exception}


class Writer:
    """Writes offset after offset of one share partition over its own connection, until an answer is no success or it is told to end."""

    def __init__(self, client: Client, topic_id: bytes, partition: int) -> None:
        self.answered = 0  #: so many offsets from 0 on were answered with success
        self.is_over = False  #: no write follows the one that is outstanding
        self.refusal: ShareStateError | None = None
        self._client = client
        self._topic_id = topic_id
        self._partition = partition

    async def run(self) -> None:
        try:
            while not self.is_over:
                batch = StateBatch(self.answered, self.answered, ACKNOWLEDGED, 1)
                await self._client.write(GROUP, self._topic_id, self._partition, EPOCH_MAX, EPOCH_MAX, -1, [batch])
                self.answered += 1
        except ShareStateError as refusal:
            self.refusal = refusal


async def initialize(node: NodeProcess, topic_id: bytes) -> None:
    async with connect(node.address, PATIENT_CLIENT) as client:
        for partition in range(SHARE_PARTITIONS):
            await client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)


async def acknowledged(client: Client, topic_id: bytes, partition: int) -> set[int]:
    """Return the offsets that the coordinator holds as acknowledged at their first delivery."""
    found = await client.read(GROUP, topic_id, partition, leader_epoch=0)
    return {
        offset
        for first, last, state, count in found.state_batches
        if (state, count) == (ACKNOWLEDGED, 1)
        for offset in range(first, last + 1)
    }


async def write_once(
    client: Client, topic_id: bytes, batches: list[StateBatch], start_offset: int = -1
) -> ShareStateError | None:
    """Write to the first share partition; returns the error with which that was refused."""
    try:
        await client.write(GROUP, topic_id, 0, EPOCH_MAX, EPOCH_MAX, start_offset, batches)
    except ShareStateError as refusal:
        return refusal
    return None


async def write_there(connection: NodeConnection, topic_id: bytes, partition: int, batch: StateBatch) -> int:
    """Write to this very node, coordinator or not; returns the error code of its answer, 0 where it is a success."""
    requested = StateRequest(GROUP, [(topic_id, [WritePartition(partition, EPOCH_MAX, EPOCH_MAX, -1, -1, (batch,))])])
    try:
        answer = await connection.request(WRITE, 1, encode_request(WRITE, 1, requested))
    except Disconnected:
        return ErrorCode.network_exception
    [(_, [(_, result)])] = decode_response(WRITE, 1, *answer)
    return result.error_code


#: The end of its session is what the successor of a member waits for; one that its machine stalls for 5 s has not left by that.
MEMBER: Final = {"membership": "group", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}


@pytest.mark.parametrize(
    ("membership", "log_client"), [("static", "native"), ("group", "native"), ("static", "librdkafka")]
)
async def test_a_frozen_node_that_wakes_up_answers_no_write_that_its_successor_does_not_hold(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path, membership: str, log_client: str
) -> None:
    settings = MEMBER if membership == "group" else {"membership": "static", "when_superseded": "exit"}
    settings = {**settings, "log.client": log_client}
    topic_id = topic_id_of(kafka, new_topic(SHARE_PARTITIONS))
    async with AsyncExitStack() as stack:
        make_node = stack.enter_context(node_processes(kafka, topic, tmp_path))
        sleeper = make_node(node_id=1, **settings)
        await sleeper.start()
        await initialize(sleeper, topic_id)
        clients = [await stack.enter_async_context(connect(sleeper.address, ONE_TRY)) for _ in range(SHARE_PARTITIONS)]
        connections = [await open_connection(parse_address(sleeper.address), ONE_TRY) for _ in range(SHARE_PARTITIONS)]
        for connection in connections:
            stack.callback(connection.close)
        writers = [Writer(client, topic_id, partition) for partition, client in enumerate(clients)]
        running = [asyncio.create_task(writer.run()) for writer in writers]
        await wait_until(lambda: min(writer.answered for writer in writers) >= 5, "five answers for each writer")
        sleeper.signal(signal.SIGSTOP)

        successor = make_node(node_id=2, **settings)
        await successor.start()  # a member has everything when the session of the sleeper is over
        # What the sleeper had answered before it fell asleep has long been received.
        before = [writer.answered for writer in writers]
        outstanding = sum(not task.done() for task in running)
        assert outstanding == SHARE_PARTITIONS
        async with connect(successor.address, ONE_TRY) as client:
            held = [await acknowledged(client, topic_id, partition) for partition in range(SHARE_PARTITIONS)]
            for partition in range(SHARE_PARTITIONS):
                assert set(range(before[partition])) <= held[partition]
                await client.write(GROUP, topic_id, partition, EPOCH_MAX, EPOCH_MAX, -1, [THE_SUCCESSORS])
        # These reach the sleeper's sockets after the take-over, and it reads them when it wakes up. A client would look the
        # coordinator up once more as soon as a writer's refusal comes, and be right to write to the successor.
        too_late = [
            asyncio.create_task(write_there(connection, topic_id, partition, THE_SLEEPERS))
            for partition, connection in enumerate(connections)
        ]
        await asyncio.sleep(0)  # with it each has sent its request
        # A member may soon serve again, and would be right to take what it is asked for then.
        for writer in writers:
            writer.is_over = True

        sleeper.signal(signal.SIGCONT)
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE_S)
        late = sum(writer.answered for writer in writers) - sum(before)
        refusals = [writer.refusal.code for writer in writers if writer.refusal is not None]
        assert set(refusals) <= NOT_DONE
        assert len(refusals) + late == SHARE_PARTITIONS
        assert set(await asyncio.wait_for(asyncio.gather(*too_late), PATIENCE_S)) <= NOT_DONE
        # A write that was in the log before the take-over may still be answered: its successor holds it. None else may.
        for partition, writer in enumerate(writers):
            assert set(range(writer.answered)) <= held[partition]

        def happened(event: str) -> list[dict[str, Any]]:
            return [line for line in sleeper.events() if line["event"] == event]

        if membership == "static":
            assert await sleeper.wait_exit() == 4
            assert {line["node"] for line in happened("log_partitions_lost")} == {"2"}
        else:
            # It is a member again, and serves its half of what its successor has held.
            await wait_until(lambda: happened("membership_lost"), "the sleeper learns that its session is over")
            await wait_until(lambda: len(happened("assignment_adopted")) >= 2, "the sleeper is given its half")
            await sleeper.wait_ready()
            await successor.wait_ready()

        async with connect(successor.address, PATIENT_CLIENT) as client:
            for partition in range(SHARE_PARTITIONS):
                found = await client.read(GROUP, topic_id, partition, leader_epoch=0)
                assert THE_SUCCESSORS in found.state_batches
                assert THE_SLEEPERS not in found.state_batches
                assert held[partition] == await acknowledged(client, topic_id, partition)
        successor.signal(signal.SIGTERM)
        assert await successor.wait_exit() == 0
        print(
            f"\n{outstanding} writes were outstanding: {late} were in the log before the take-over and answered late, "
            f"none of the others; of {len(too_late)} sent after the take-over none was answered with success"
        )


@asynccontextmanager
async def busy_node(kafka: str, topic: str, topic_id: bytes, directory: Path, bytes_max: int) -> AsyncIterator[Client]:
    """Give a client of a node whose one log partition takes small records only, and see that others go on all the time."""
    config = FIXED_CONFIG | {"max.message.bytes": str(bytes_max)}
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)
    async with AsyncExitStack() as stack:
        make_node = stack.enter_context(node_processes(kafka, topic, directory))
        # With every write a snapshot, which holds all batches of the state; and a group id may take more than a record does.
        node = make_node(**{"share.coordinator.snapshot.update.records.per.snapshot": 0, "group_id_bytes_max": 32_767})
        await node.start()
        await initialize(node, topic_id)
        clients = [await stack.enter_async_context(connect(node.address, ONE_TRY)) for _ in range(SHARE_PARTITIONS)]
        writers = [Writer(client, topic_id, partition) for partition, client in enumerate(clients) if partition]
        running = [asyncio.create_task(writer.run()) for writer in writers]
        await wait_until(lambda: all(writer.answered for writer in writers), "an answer for each writer")
        yield clients[0]
        so_far = [writer.answered for writer in writers]
        await wait_until(
            lambda: all(now.answered > before for now, before in zip(writers, so_far, strict=True)), "more answers"
        )
        assert not any(task.done() for task in running)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0


async def test_a_state_that_would_outgrow_the_topic_is_refused_and_harms_nobody_else(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic_id = topic_id_of(kafka, new_topic(SHARE_PARTITIONS))
    async with busy_node(kafka, topic, topic_id, tmp_path, bytes_max=60_000) as client:
        held, refusals = 0, 0
        while refusals < 20:
            # Every second offset, so that no two batches join and the state grows.
            batches = [StateBatch(offset, offset, ACKNOWLEDGED, 1) for offset in range(2 * held, 2 * held + 200, 2)]
            refusal = await write_once(client, topic_id, batches)
            if refusal is None:
                held += len(batches)
                assert held < 10_000
            else:
                assert "state batches; move its start offset" in str(refusal)
                refusals += 1
        found = await client.read(GROUP, topic_id, 0, leader_epoch=0)
        assert len(found.state_batches) == held > 0
        # As the refusal says: once its start offset moves, the same share partition is written again.
        assert await write_once(client, topic_id, batches, start_offset=2 * held) is None


async def test_a_record_too_large_for_the_topic_is_refused_and_harms_nobody_else(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic_id = topic_id_of(kafka, new_topic(SHARE_PARTITIONS))
    async with busy_node(kafka, topic, topic_id, tmp_path, bytes_max=20_000) as client:
        for _ in range(20):
            with pytest.raises(ShareStateError, match="larger than the log takes"):
                await client.initialize("g" * 20_000, topic_id, 0, state_epoch=1, start_offset=0)
        assert await write_once(client, topic_id, [StateBatch(0, 9, ACKNOWLEDGED, 1)]) is None


@pytest.fixture
def own_kafka() -> Iterator[EmbeddedKafka]:
    """Give a Kafka that the test may freeze."""
    needs_processes("The test freezes its broker")
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=LONG_SESSION) as kafka:
        yield kafka


def count_stops(node: NodeProcess) -> int:
    return sum(line["event"] == "node_stopping" for line in node.events())


async def test_a_node_told_to_stop_answers_what_is_in_flight_and_stops_at_once_when_told_again(
    own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers = own_kafka.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("queue", SHARE_PARTITIONS, 1)])["queue"].result(PATIENCE_S)
    topic_id = topic_id_of(servers, "queue")
    with node_processes(servers, "state", tmp_path) as make_node:
        node = make_node()
        await node.start()
        await initialize(node, topic_id)

        async def outstanding_write(client: Client) -> "asyncio.Task[object]":
            batch = StateBatch(0, 9, ACKNOWLEDGED, 1)
            task = asyncio.create_task(client.write(GROUP, topic_id, 0, EPOCH_MAX, EPOCH_MAX, -1, [batch]))
            async with asyncio.timeout(PATIENCE_S), connect(node.address, ONE_TRY) as other:
                while not any(row["parked"] for row in await other.admin("partitions")):
                    assert not task.done()
            return task

        async with connect(node.address, ONE_TRY) as client:
            own_kafka.freeze()
            write = await outstanding_write(client)
            node.signal(signal.SIGTERM)
            await wait_until(lambda: count_stops(node) == 1, "the stop")
            own_kafka.thaw()
            await asyncio.wait_for(write, PATIENCE_S)
        assert await node.wait_exit() == 0

        await node.start()
        async with connect(node.address, ONE_TRY) as client:
            assert await acknowledged(client, topic_id, 0) == set(range(10))
            own_kafka.freeze()
            write = await outstanding_write(client)
            node.signal(signal.SIGTERM)
            await wait_until(lambda: count_stops(node) == 2, "the stop")
            node.signal(signal.SIGTERM)
            assert await node.wait_exit() == -signal.SIGTERM
            with pytest.raises(ShareStateError, match="NETWORK_EXCEPTION"):
                await write
        own_kafka.thaw()
