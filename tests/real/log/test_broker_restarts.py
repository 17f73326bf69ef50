"""Brokers are restarted, frozen and taken away under a node that serves, again and again: the same process serves at the end.

Short by default. `make outages` runs the long form: the only broker restarted 20 times, each of three 10 times, away for 8 minutes,
frozen for 2, and half an hour in which nothing happens. `RESTARTS`, `ROUNDS`, `OUTAGE_S`, `FREEZE_S` and `IDLE_S` set each by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.broker import EmbeddedKafka
from holdfast.broker.properties import HOST
from holdfast.client import connect
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from tests.real.node.journal_writer import GROUP, Journal
from tests.real.node.test_kill import find_lost, writer_process
from tests.real.nodes import DEFAULT_TIMES, PATIENT_CLIENT, NodeProcess, make_topic, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS, PATIENCE_S, poll_pause_s, wait_until
from tests.world.http import get

pytestmark = pytest.mark.real

RESTARTS: Final = int(os.environ.get("RESTARTS", "3"))
ROUNDS: Final = int(os.environ.get("ROUNDS", "1"))
OUTAGE_S: Final = float(os.environ.get("OUTAGE_S", "10"))
FREEZE_S: Final = float(os.environ.get("FREEZE_S", "5"))
IDLE_S: Final = float(os.environ.get("IDLE_S", "3"))

QUEUE: Final = "queue"
WRITERS: Final = 8
#: As nodes of tests have them.
LOG_PARTITIONS: Final = 4
#: Answers between two restarts; a broker's end comes in the midst of writes.
ANSWERS: Final = 50
#: Of each writer, after an answer; brokers have to start on the same processors.
PAUSE_MS: Final = int(os.environ.get("PAUSE_MS", "50"))
#: Bounds that a test waits for, and no machine is too slow for.
COME_BACK_S: Final = PATIENCE_S
#: Within an outage, so that batches are given up.
MESSAGE_TIMEOUT_MS: Final = 3_000
SILENCE_MAX_MS: Final = 2_000
SETTINGS: Final = {
    **DEFAULT_TIMES,
    "broker_silence_max_ms": SILENCE_MAX_MS,
    # Readers are looked up all the time, for that is what a restart once ended the process with.
    "pruning_check_interval_ms": 200,
}
SILENCES: Final = ("brokers_lost", "broker_lost", "leaders_lost")


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line tool."""
    return subprocess.run([sys.executable, "-m", "holdfast", *arguments], capture_output=True, text=True)


def threads_of_librdkafka(process: int) -> list[str]:
    """Return the names of the threads that librdkafka has in a process; none where the system does not tell."""
    names = []
    for task in Path(f"/proc/{process}/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            names.append(task.read_text().strip())
    return [name for name in names if name.startswith("rdk:")]


async def wait_not_ready(node: NodeProcess) -> None:
    """Wait until a node says that it is not ready because no broker answers."""
    status: dict[str, Any] = {}
    began_s = time.monotonic()
    while not str(status.get("why_not_ready")).startswith("no broker answers, for "):
        assert time.monotonic() < began_s + COME_BACK_S, f"{status} {node.last_words()}"
        await asyncio.sleep(poll_pause_s(began_s))
        status = await node.status()
    assert not status["is_ready"]


class Scene:
    """A node that serves, the brokers under it, and a process that writes all the time."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        node: NodeProcess,
        topic_id: bytes,
        journal: Journal,
        writer: subprocess.Popen[bytes],
    ) -> None:
        self.kafka = kafka
        self.node = node
        self.writer = writer
        self._topic_id = topic_id
        self._journal = journal
        self._process = node.pid()
        self._lines_seen = 0
        self.recoveries_s: list[float] = []

    async def wait_answers(self) -> None:
        """Wait until every writer has been answered some more."""
        before = self._journal.read_on().answered.copy()

        def has_more() -> bool:
            assert self.node.exit_code() is None, f"the node ended: {self.node.last_words()}"
            answered = self._journal.read_on().answered
            return all(answered[place] >= before[place] + ANSWERS // WRITERS for place in range(WRITERS))

        await wait_until(has_more, "more answers for each writer", COME_BACK_S)

    async def serves_again(self) -> None:
        """Wait until the node is ready and every writer is answered."""
        began_s = time.monotonic()
        while not (await self.node.status()).get("is_ready"):
            assert self.node.exit_code() is None, f"the node ended: {self.node.last_words()}"
            assert time.monotonic() < began_s + COME_BACK_S, f"{await self.node.status()} {self.node.last_words()}"
            await asyncio.sleep(poll_pause_s(began_s))
        await self.wait_answers()
        self.recoveries_s.append(time.monotonic() - began_s)

    def new_lines(self) -> list[dict[str, Any]]:
        """Return what the node wrote since the last call; each line is one of ours."""
        lines = self.node.lines()[self._lines_seen :]
        self._lines_seen += len(lines)
        foreign = [line for line in lines if not line.startswith("{")]
        assert foreign == [], "every line is JSON"
        return [json.loads(line) for line in lines]

    async def check(self, title: str) -> None:
        """See that it is the same process and that nothing that was answered is lost, and print the figures."""
        assert self.node.exit_code() is None
        assert self.node.pid() == self._process
        answered = self._journal.read_on().answered.copy()
        assert await find_lost(self.node, self._topic_id, answered) == []
        lines = self.node.lines()
        print(
            f"\n{title}: process {self._process} serves; {answered.total()} writes answered, all found; "
            f"{len(lines)} lines ({len(''.join(lines)):,} characters); seconds until it served again: "
            f"{', '.join(f'{seconds:.1f}' for seconds in self.recoveries_s) or '-'}"
        )


@contextmanager
def cluster(brokers: int) -> Iterator[EmbeddedKafka]:
    """Give brokers that the tests may stop, kill and freeze, with a topic to write about."""
    with EmbeddedKafka(brokers=brokers, jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        make_topic(kafka.bootstrap_servers, QUEUE, WRITERS, min(3, brokers))
        yield kafka


@pytest.fixture(scope="module")
def broker_of_the_module() -> Iterator[EmbeddedKafka]:
    with cluster(1) as kafka:
        yield kafka


@pytest.fixture
def one_broker(broker_of_the_module: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """Give the broker, and start it again where a test failed in an outage of its own."""
    yield broker_of_the_module
    (broker,) = broker_of_the_module.nodes
    if broker.pid() is None:
        broker_of_the_module.restart()
    else:
        broker_of_the_module.thaw()


def make_log(kafka: EmbeddedKafka, state_topic: str) -> None:
    """Make a state topic: a node takes it for a decision that too few brokers are up."""
    copies = min(3, len(kafka.nodes))
    config = {**FIXED_CONFIG, "min.insync.replicas": str(min(2, copies))}
    make_topic(kafka.bootstrap_servers, state_topic, LOG_PARTITIONS, copies, config)


@asynccontextmanager
async def scene(kafka: EmbeddedKafka, state_topic: str, directory: Path, **settings: object) -> AsyncIterator[Scene]:
    """Give a node over these brokers, under load; in the end it stops in good order."""
    servers, copies = kafka.bootstrap_servers, min(3, len(kafka.nodes))
    topic_id = topic_id_of(servers, QUEUE)
    await asyncio.to_thread(make_log, kafka, state_topic)
    durable = {
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": min(2, copies),
    }
    with node_processes(servers, state_topic, directory) as make_node:
        node = make_node(**SETTINGS | durable | settings)
        await node.start()
        async with connect(node.address, PATIENT_CLIENT) as client:
            for partition in range(WRITERS):
                await client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
        journal_file = directory / "journal"
        with writer_process(node.address, topic_id, journal_file, WRITERS, PAUSE_MS) as writer:
            playing = Scene(kafka, node, topic_id, Journal(journal_file), writer)
            await playing.wait_answers()
            yield playing
            writer.send_signal(signal.SIGTERM)
            assert writer.wait(PATIENCE_S) == 0
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0


@pytest.mark.parametrize("log_client", ["native", "librdkafka"])
async def test_the_only_broker_is_restarted_again_and_again_under_the_same_node(
    one_broker: EmbeddedKafka, topic: str, tmp_path: Path, log_client: str
) -> None:
    async with scene(one_broker, topic, tmp_path, **{"log.client": log_client}) as playing:
        for restart in range(RESTARTS):
            # In good order and as a crash, in turn.
            await asyncio.to_thread(playing.kafka.kill if restart % 2 else playing.kafka.stop)
            await wait_not_ready(playing.node)
            await asyncio.to_thread(playing.kafka.restart)
            await playing.serves_again()
            playing.new_lines()
        await playing.check(f"{RESTARTS} restarts of the only broker")


async def test_each_of_three_brokers_is_restarted_in_turn_under_the_same_node(topic: str, tmp_path: Path) -> None:
    with cluster(3) as kafka:
        async with scene(kafka, topic, tmp_path) as playing:
            for number in range(3 * ROUNDS):
                broker = 1 + number % 3
                await asyncio.to_thread(playing.kafka.kill if number % 2 else playing.kafka.stop, broker)
                await playing.wait_answers()
                await asyncio.to_thread(playing.kafka.restart, broker)
                await playing.serves_again()
                playing.new_lines()
            await playing.check(f"{ROUNDS} restarts of each of three brokers")


@pytest.mark.parametrize(
    ("sort", "log_client"), [("gone", "native"), ("frozen", "native"), ("gone", "librdkafka"), ("frozen", "librdkafka")]
)
async def test_in_an_outage_the_node_says_so_in_few_lines_and_serves_when_it_is_over(
    sort: str, log_client: str, one_broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    # Batches are given up within the outage, so log partitions fail and load again, and fail.
    settings = {"message_timeout_ms": MESSAGE_TIMEOUT_MS, "log.client": log_client}
    async with scene(one_broker, topic, tmp_path, **settings) as playing:
        playing.new_lines()
        seconds = OUTAGE_S if sort == "gone" else FREEZE_S
        began_s = time.monotonic()
        await asyncio.to_thread(playing.kafka.stop) if sort == "gone" else playing.kafka.freeze()
        await wait_not_ready(playing.node)
        port = (await playing.node.status())["http_port"]
        ready = await get(port, "/ready")
        asked_s = time.monotonic() - began_s
        assert (ready.status, ready.json()["is_ready"]) == (503, False)
        states = {row["state"] for row in ready.json()["log_partitions"]}
        # On a busy machine the batches may be given up by then.
        given_up = {"failed", "loading"} if asked_s * 1_000 > MESSAGE_TIMEOUT_MS else set()
        assert states
        assert states <= {"cut off"} | given_up
        assert ready.json()["why_not_ready"].startswith("no broker answers")
        assert (await get(port, "/live")).status == 200
        status = await asyncio.to_thread(holdfast, "status", "--address", playing.node.address)
        assert status.returncode == 1
        assert "Error: The node is not ready: no broker answers" in status.stderr
        silence = (await playing.node.ask("metrics"))["holdfast_broker_silence_seconds{broker=1}"]
        assert silence * 1_000 > SILENCE_MAX_MS
        await asyncio.sleep(max(0.0, began_s + seconds - time.monotonic()))  # how long the outage lasts, no more
        lasted_s = time.monotonic() - began_s
        during = playing.new_lines()
        if sort == "gone":
            await asyncio.to_thread(playing.kafka.restart)
        else:
            playing.kafka.thaw()
        await playing.serves_again()
        reports = Counter(line["event"] for line in during)
        print(f"\nlines in {lasted_s:.0f} s of outage: {dict(reports)}")
        # A broker that is stopped may say just before its end that nobody leads, which is then the one line.
        assert 1 <= reports["brokers_lost"] + reports["leaders_lost"] <= 1 + lasted_s / 60
        assert sum(line["level"] != "info" for line in during) <= 1 + lasted_s / 60, during
        assert len({line["since"] for line in during if "since" in line}) == 1
        after = Counter(line["event"] for line in playing.new_lines())
        assert after["brokers_recovered"] >= 1
        await playing.check(f"{lasted_s:.0f} s without a broker ({sort})")


async def test_a_node_that_nothing_happens_to_serves_afterwards(
    one_broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    async with scene(one_broker, topic, tmp_path, broker_silence_max_ms=60_000) as playing:
        playing.new_lines()
        playing.writer.send_signal(signal.SIGSTOP)
        await asyncio.sleep(IDLE_S)  # what is tried here is time itself
        assert (await playing.node.status())["is_ready"]
        # A client that nobody uses talks in outages; those of the start are on their way out.
        await wait_until(lambda: not threads_of_librdkafka(playing.node.pid()), "no thread of librdkafka")
        playing.writer.send_signal(signal.SIGCONT)
        await playing.serves_again()
        assert {line["event"] for line in playing.new_lines()}.isdisjoint(SILENCES)
        await playing.check(f"{IDLE_S:.0f} s without an event")


@pytest.mark.parametrize(("sort", "log_client"), [("gone", "native"), ("frozen", "native"), ("frozen", "librdkafka")])
async def test_a_node_told_to_stop_in_an_outage_stops_within_its_bounds(
    sort: str, log_client: str, one_broker: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(make_log, one_broker, topic)
    with node_processes(one_broker.bootstrap_servers, topic, tmp_path) as make_node:
        node = make_node(**SETTINGS | {"log.client": log_client})
        await node.start()
        await asyncio.to_thread(one_broker.kill if sort == "gone" else one_broker.freeze)
        try:
            await wait_not_ready(node)
            node.signal(signal.SIGTERM)
            assert await node.wait_exit() in (0, 1)
            assert [line for line in node.lines() if not line.startswith("{")] == []
        finally:
            await asyncio.to_thread(one_broker.restart) if sort == "gone" else one_broker.thaw()


@pytest.mark.parametrize("sort", ["gone", "frozen"])
async def test_a_node_that_starts_without_kafka_says_so_once_and_waits(sort: str, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        if sort == "frozen":  # connections come about, and nobody looks at them
            silent.listen()
        nowhere = f"{HOST}:{silent.getsockname()[1]}"
        with node_processes(nowhere, "state", tmp_path) as make_node:
            # An address that refuses does so at once.
            node = make_node(request_timeout_ms=1_000 if sort == "frozen" else PATIENCE_MS)
            node.launch()
            await wait_until(
                lambda: any(event["event"] == "brokers_awaited" for event in node.events()), "it waits for brokers"
            )
            node.signal(signal.SIGTERM)
            assert await node.wait_exit() == 0
            assert [line for line in node.lines() if not line.startswith("{")] == []
            events = node.events()
            (awaited,) = (event for event in events if event["event"] == "brokers_awaited")
            why = "no broker was reached within 1000 ms" if sort == "frozen" else f"{nowhere} cannot be reached: "
            assert awaited["why"].startswith(why)
            assert (events[-1]["event"], events[-1]["exit_code"]) == ("node_stopped", 0)
            assert len(events) <= 8, events
