"""Two workers of one `holdfast serve`: one address to begin with, one log, one place for their metrics and lines."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from holdfast.client import Client, ClientError, connect
from holdfast.kafka.addresses import Address, parse_address
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from tests.processes import is_alive
from tests.real.group_numbers import assert_http_has_the_numbers_of_the_cli
from tests.real.nodes import PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, look_until, wait_until
from tests.world.http import get

pytestmark = pytest.mark.real

LOG_PARTITIONS: Final = 4
#: Users' partitions, spread over the log partitions by Kafka's hash.
PARTITIONS: Final = 12
GROUP: Final = "shop"
#: A worker that its machine stalls for 5 s has not left the group by that.
SETTINGS: Final[dict[str, object]] = {
    "workers": 2,
    "membership": "group",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 500,
    "rebalance.timeout.ms": 20_000,
    "drain_timeout_ms": 10_000,
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
    # Ports after a chosen one may be another test's.
    "listen": "127.0.0.1:0",
    "http.listen": "127.0.0.1:0",
}


class Host:
    """A supervisor and its workers, as their log shows them."""

    def __init__(self, supervisor: NodeProcess) -> None:
        self.supervisor = supervisor

    def lines_of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.supervisor.events() if line["event"] == event]

    def pids(self) -> dict[int, int]:
        """Return the newest process of each worker, by node id."""
        return {line["node_id"]: line["pid"] for line in self.lines_of("worker_started")}

    def addresses(self) -> set[Address]:
        return {parse_address(line["address"]) for line in self.lines_of("worker_started")}

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, unless the supervisor ends before."""
        await wait_until(lambda: condition() or self.supervisor.exit_code() is not None, what)
        assert self.supervisor.exit_code() is None, self.supervisor.last_words()

    async def divided(self) -> None:
        """Wait until each worker serves its half of the log."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                metrics = await self.supervisor.ask("metrics")
            except ClientError:
                metrics = {}
            held = [metrics.get(f"holdfast_log_partitions{{node={node_id},state=active}}") for node_id in (1, 2)]
            if held == [LOG_PARTITIONS // 2] * 2:
                return
            assert time.monotonic() < deadline_s, f"{held}\n{self.supervisor.last_words()}"
            await asyncio.sleep(0.1)


async def write_all(client: Client, topic_id: bytes, turn: int) -> None:
    """Write a batch to every partition, again and again until it is answered."""
    deadline_s = time.monotonic() + PATIENCE_S
    for partition in range(PARTITIONS):
        while True:
            try:
                await client.write(GROUP, topic_id, partition, 1, 0, 0, [StateBatch(turn * 10, turn * 10 + 9, 2, 1)])
                break
            except ClientError:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.05)


async def owners(client: Client, topic_id: bytes) -> set[object]:
    """Return the addresses that are named for all partitions."""
    return set(await client.find([SharePartitionKey(GROUP, topic_id, partition) for partition in range(PARTITIONS)]))


async def test_two_workers_serve_behind_one_address_and_one_that_is_killed_comes_back(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    with node_processes(kafka, topic, tmp_path) as make_process:
        host = Host(make_process(**SETTINGS))
        host.supervisor.launch()
        await host.until(lambda: host.lines_of("workers_starting"), "an address to begin with")
        [line] = host.lines_of("workers_starting")
        host.supervisor.address = f"127.0.0.1:{line['port']}"
        await host.divided()
        try:
            async with connect(host.supervisor.address, PATIENT_CLIENT) as client:
                for partition in range(PARTITIONS):
                    await client.initialize(GROUP, topic_id, partition, 1, 0)
                assert await owners(client, topic_id) == host.addresses(), "each is found at a port of its own"
            [port] = [line["port"] for line in host.lines_of("http_listening") if "node_id" not in line]
            await assert_http_has_the_numbers_of_the_cli(host.supervisor.address, port, {GROUP})
            await follow_to_the_page(port)
            await kill_one(host, topic_id)
            await stop(host)
        finally:
            for pid in host.pids().values():
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


async def follow_to_the_page(port: int) -> None:
    """Look at the page where the address of all leads: a worker shows the groups of all of them."""
    # A worker's own port is asked now and then whether it is ready.
    led = await look_until(lambda: get(port, "/"), lambda answer: answer.status != 503)
    assert led.status == 307
    address = urlsplit(led.headers["location"])
    assert address.port not in (None, port)
    page = await get(address.port or 0, address.path)
    assert page.status == 200
    assert f"<bdi>{GROUP}</bdi>" in page.body.decode()


async def kill_one(host: Host, topic_id: bytes) -> None:
    killed = host.pids()[2]
    os.kill(killed, signal.SIGKILL)
    async with connect(host.supervisor.address, PATIENT_CLIENT) as client:
        # One that starts may have answered.
        await look_until(
            lambda: owners(client, topic_id), lambda found: found <= host.addresses(), "who answers for all"
        )
        await host.until(lambda: host.pids()[2] != killed, "a new process of the worker")
        await write_all(client, topic_id, 0)
    await host.divided()
    metrics = await host.supervisor.ask("metrics")
    assert [metrics[f"holdfast_worker_restarts_total{{node={node_id}}}"] for node_id in (1, 2)] == [0, 1]
    [ended] = host.lines_of("worker_ended")
    assert (ended["node_id"], ended["exit_code"]) == (2, -signal.SIGKILL)


async def stop(host: Host) -> None:
    pids = [host.supervisor.pid(), *host.pids().values()]
    host.supervisor.signal(signal.SIGTERM)
    # Who stops a group of processes signals the workers, too; they go on to stop in good order.
    await wait_until(lambda: len(host.lines_of("node_stopping")) == 2, "workers that stop")
    for pid in pids[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert await host.supervisor.wait_exit() == 0, host.supervisor.last_words()
    assert not any(is_alive(pid) for pid in pids)
    lines = host.supervisor.events()
    assert len(lines) == len(host.supervisor.lines()), "no line is cut or mixed with another"
    assert {line.get("node_id") for line in lines if line["event"] == "node_stopped"} == {1, 2}
    own = ("workers_", "http_", "access_")  # the supervisor says where it listens for HTTP, and by which rules it shows
    assert all("node_id" in line for line in lines if not line["event"].startswith(own))


async def test_workers_end_with_a_supervisor_that_is_killed_also_one_that_hangs_and_the_next_one_listens_at_once(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    with node_processes(kafka, topic, tmp_path) as make_process:
        killed = Host(make_process(**SETTINGS))
        killed.supervisor.launch()
        await killed.until(lambda: len(killed.pids()) == 2, "two workers")
        [line] = killed.lines_of("workers_starting")
        pids = killed.pids()
        await killed.until(lambda: killed.lines_of("node_listening"), "a worker that listens")
        os.kill(pids[killed.lines_of("node_listening")[0]["node_id"]], signal.SIGSTOP)
        next_one = Host(make_process(**{**SETTINGS, "listen": f"127.0.0.1:{line['port']}"}))
        try:
            killed.supervisor.kill()
            next_one.supervisor.launch()
            await next_one.until(lambda: next_one.lines_of("workers_starting"), "the address of all")
            # The system ends them soon, but who has closed the address may not be gone yet.
            await next_one.until(lambda: not any(is_alive(pid) for pid in pids.values()), "the end of the workers")
        finally:
            next_one.supervisor.kill()
            for pid in [*pids.values(), *next_one.pids().values()]:
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
