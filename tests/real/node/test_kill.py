"""A daemon is killed while 32 connections write, again and again; nothing that was answered is ever lost.

KILLS=20 kills it so often (3 by default); `pytest -s` shows a line for each.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.client import connect
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.batches import StateBatch
from tests.real.node.journal_writer import GROUP, Journal, batch_of
from tests.real.nodes import PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

KILLS = int(os.environ.get("KILLS", "3"))
CONNECTIONS = 32
#: A kill comes after this many more answers, at least and at most.
ANSWERS_BEFORE_KILL = (100, 2_000)


@contextmanager
def writer_process(
    address: str, topic_id: bytes, journal: Path, connections: int = CONNECTIONS, pause_ms: int = 0
) -> Iterator["subprocess.Popen[bytes]"]:
    """Give a process that writes over so many connections, each of which pauses so long after an answer."""
    arguments = [address, format_topic_id(topic_id), str(connections), str(journal), str(pause_ms)]
    with subprocess.Popen([sys.executable, "-m", "tests.real.node.journal_writer", *arguments]) as writer:
        try:
            yield writer
        finally:
            writer.kill()


async def find_lost(node: NodeProcess, topic_id: bytes, answered: Mapping[int, int]) -> list[StateBatch]:
    """Return what was answered and is not in the state, having looked at every partition."""
    lost = []
    async with connect(node.address, PATIENT_CLIENT) as client:
        for partition, count in answered.items():
            found = await client.read(GROUP, topic_id, partition, leader_epoch=0)
            held = {
                StateBatch(offset, offset, batch.delivery_state, batch.delivery_count)
                for batch in found.state_batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            lost += [batch_of(offset) for offset in range(count) if batch_of(offset) not in held]
    return lost


@pytest.mark.parametrize("client", ["native", "librdkafka"])
async def test_no_answered_write_is_lost_however_often_the_daemon_is_killed(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path, client: str
) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    print(f"\nseed {seed}, {KILLS} kills under {CONNECTIONS} connections")
    topic_id = topic_id_of(kafka, new_topic(CONNECTIONS))
    journal_file = tmp_path / "journal"
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**{"log.client": client})
        await node.start()
        async with connect(node.address, PATIENT_CLIENT) as caller:
            for partition in range(CONNECTIONS):
                await caller.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
        with writer_process(node.address, topic_id, journal_file) as writer:
            journal = Journal(journal_file)
            for kill in range(1, KILLS + 1):
                before = journal.answered.total()
                goal = before + moments.randint(*ANSWERS_BEFORE_KILL)
                await wait_until(lambda goal=goal: journal.read_on().answered.total() >= goal, f"{goal} answers")  # type: ignore[misc]
                journal.read_on().events.clear()
                node.kill()
                restart_s = await node.start()
                await wait_until(lambda: journal.read_on().events[b"o"], "a writer notes that it got no answer")
                # What was answered before the kill must be there, and what was answered since as well.
                answered = journal.read_on().answered.copy()
                outstanding = journal.events[b"o"]
                assert await find_lost(node, topic_id, answered) == []
                assert 0 < outstanding <= CONNECTIONS
                loaded = await node.ask("partitions")
                print(
                    f"kill {kill} of {KILLS}: {answered.total() - before} writes answered since the last, "
                    f"{outstanding} outstanding; back after {restart_s:.1f} s, "
                    f"{sum(each['records_loaded'] for each in loaded)} records loaded in "
                    f"{max(each['load_ms'] for each in loaded)} ms at most; all {answered.total()} answered writes found"
                )
            await wait_until(lambda: len(journal.read_on().answered) == CONNECTIONS, "an answer on each connection")
            writer.send_signal(signal.SIGTERM)
            assert writer.wait(PATIENCE_S) == 0
        answered = journal.read_on().answered
        assert sorted(answered) == list(range(CONNECTIONS))
        assert await find_lost(node, topic_id, answered) == []
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0
