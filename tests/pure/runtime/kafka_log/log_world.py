"""A log over a fake cluster, and its listener."""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.runtime.kafka_log.log import KafkaLog
from tests.configs import kafka_log_config
from tests.pure.runtime.kafka_log.fake_cluster import FakeCluster
from tests.pure.runtime.kafka_log.fetcher_world import Reports, make_metrics


class Listener(Reports):
    """A listener that keeps all reports except records."""

    def __init__(self) -> None:
        super().__init__()
        self.at_caught_up: Callable[[], object] = lambda: None

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        self.lines.append(f"{partition} instance {instance}: from {start_offset} to {end_offset}")

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        self.lines.append(f"{partition} instance {instance}: caught up at {next_offset}")
        self.at_caught_up()

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        self.lines.append(f"{partition}: append failed, {text}")

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        self.lines.append(f"round {round_number}: {offsets}")

    def records_deleted(self, partition: int, log_start_offset: int | None, why: str) -> None:
        self.lines.append(f"{partition}: log starts at {log_start_offset}, {why or 'as asked'}")

    def log_start_found(self, partition: int, instance: int, log_start_offset: int | None) -> None:
        self.lines.append(f"{partition} instance {instance}: log start {log_start_offset}")


def make_log(cluster: FakeCluster, **settings: Any) -> KafkaLog:
    config = kafka_log_config(
        topic="topic",
        connection=cluster.options,
        fetch_wait_ms=10,
        **settings,
    )
    return KafkaLog(config, lambda: 1_000, make_metrics())


def in_epoch(leader_epoch: int, data: bytes) -> bytes:
    """Return a batch as it is in the log of a leader; the checksum does not cover the leader epoch."""
    return data[:12] + leader_epoch.to_bytes(4, "big") + data[16:]


async def turns(count: int = 50) -> None:
    """Run everything that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)
