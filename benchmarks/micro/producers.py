"""Milliseconds from the first append to the last acknowledgement of one record for each log partition, ours beside librdkafka's.

    python -m benchmarks.micro.producers                  one broker
    python -m benchmarks.micro.producers --brokers 3      three, with a copy on each

A node has such a turn whenever requests came for many log partitions. Both producers wait for nothing (linger 0), ask for `acks=all`, and
take turns in one process. *Requests* is how many Produce requests a round was, as each producer counts them itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final, Protocol

import uvloop
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.client import BenchmarkError
from benchmarks.cluster import leaders_of, running_kafka
from holdfast.clock import make_wall_clock_ms
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.metrics.registry import Registry
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.sending.accumulator import AccumulatorConfig
from holdfast.runtime.kafka_log.sending.pace import PaceConfig
from holdfast.runtime.kafka_log.sending.sender import Sender, SenderConfig
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.metrics import RuntimeMetrics

TOPIC: Final = "holdfast-producers"
LOG_PARTITIONS: Final = 50
SHAPES: Final = (1, LOG_PARTITIONS)
#: Rounds that are not counted: connections open, and the brokers' Java compiles.
WARM_UP: Final = 200
KEY, VALUE, HEADER = bytes(40), bytes(60), encode_header(1, 1)

_TIMEOUT_MS: Final = 30_000


class Contender(Protocol):
    """A producer."""

    name: str

    async def round(self, partitions: int) -> None:
        """Append one record to each of so many log partitions, and wait until all are acknowledged."""

    async def requests(self) -> int:
        """Return how many Produce requests it has sent."""


class Librdkafka:
    """The producer of confluent-kafka."""

    name = "librdkafka"

    def __init__(self, bootstrap_servers: str) -> None:
        self._requests: int | None = None
        self._waiting = 0
        self._error: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "linger.ms": 0,
                "socket.nagle.disable": True,
                "message.timeout.ms": _TIMEOUT_MS,
                "log_level": 0,
                "statistics.interval.ms": 100,
                "stats_cb": self._count,
            }
        )

    async def round(self, partitions: int) -> None:
        """See `Contender.round`; the loop is blocked meanwhile."""
        self._waiting = partitions
        for partition in range(partitions):
            self._producer.produce(
                TOPIC, VALUE, KEY, partition, headers={HEADER_NAME: HEADER}, on_delivery=self._delivered
            )
        while self._waiting:
            self._producer.poll(1)
        if self._error is not None:
            raise BenchmarkError(f"librdkafka: {self._error.str()}")

    async def requests(self) -> int:
        """See `Contender.requests`."""
        self._producer.poll(0)
        self._requests = None
        while self._requests is None:
            self._producer.poll(1)
        return self._requests

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._waiting -= 1
        self._error = error or self._error

    def _count(self, statistics: str) -> None:
        self._requests = sum(broker["req"]["Produce"] for broker in json.loads(statistics)["brokers"].values())


class Ours:
    """The producer of a node."""

    name = "holdfast"

    def __init__(self, bootstrap_servers: str) -> None:
        clock_ms = make_wall_clock_ms()
        addresses = [address.rsplit(":", 1) for address in bootstrap_servers.split(",")]
        self._metrics = RuntimeMetrics(Registry())
        options = ConnectionOptions(bootstrap=tuple((host, int(port)) for host, port in addresses))
        self._brokers = Brokers(options, TOPIC, _TIMEOUT_MS)
        log = configure(KafkaLogConfig, LogSettings(), topic=TOPIC, connection=options, message_bytes_max=1_048_576)
        config = SenderConfig(
            accumulator=AccumulatorConfig(
                batch_bytes_max=1_048_576,
                state_topic_compression_codec=log.state_topic_compression_codec,
                producer_queue_records_max=log.producer_queue_records_max,
                producer_queue_bytes_max=log.producer_queue_bytes_max,
            ),
            pace=PaceConfig(
                append_linger_ms=log.append_linger_ms,
                append_linger_max_ms=log.append_linger_max_ms,
                produce_requests_in_flight_max=log.produce_requests_in_flight_max,
            ),
            message_timeout_ms=_TIMEOUT_MS,
            throttle_max_ms=log.throttle_max_ms,
        )
        self._sent = SentBatches()
        self._sender = Sender(
            config, self._brokers, self._sent, self._on_acknowledged, self._on_failed, clock_ms, self._metrics
        )
        self._waiting = 0
        self._done = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Find the brokers."""
        await self._brokers.refresh()

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close(_TIMEOUT_MS / 1_000)
        self._brokers.close()

    async def round(self, partitions: int) -> None:
        """See `Contender.round`."""
        self._waiting = partitions
        self._done = asyncio.get_running_loop().create_future()
        for partition in range(partitions):
            self._sender.append(partition, KEY, VALUE, HEADER)
        await self._done

    async def requests(self) -> int:
        """See `Contender.requests`."""
        return self._metrics.batch_flush_time.count

    def _on_acknowledged(self, partition: int, sent: SentBatch, base_offset: int) -> None:
        self._sent.remove(partition, sent)
        self._waiting -= 1
        if not self._waiting:
            self._done.set_result(None)

    def _on_failed(self, partition: int, header: bytes, why: str) -> None:
        self._done.set_exception(BenchmarkError(f"holdfast: {why}"))


async def measure(bootstrap_servers: str, rounds: int) -> None:
    """Let both take turns in each shape, and print a row for each."""
    ours = Ours(bootstrap_servers)
    await ours.start()
    contenders: Sequence[Contender] = (Librdkafka(bootstrap_servers), ours)
    print("| log partitions | who | requests | p50 ms | p99 ms |\n|--:|---|--:|--:|--:|")
    for partitions in SHAPES:
        for _ in range(WARM_UP):
            for contender in contenders:
                await contender.round(partitions)
        sent = [await contender.requests() for contender in contenders]
        times_ms: list[list[float]] = [[] for _ in contenders]
        for number in range(rounds):
            turns = list(zip(contenders, times_ms, strict=True))
            for contender, times in turns if number % 2 else reversed(turns):
                began_s = time.perf_counter()
                await contender.round(partitions)
                times.append((time.perf_counter() - began_s) * 1_000)
        for contender, times, before in zip(contenders, times_ms, sent, strict=True):
            requests = (await contender.requests() - before) / rounds
            p99 = quantiles(times, n=100)[-1]
            print(f"| {partitions} | {contender.name} | {requests:.1f} | {median(times):.2f} | {p99:.2f} |", flush=True)
    await ours.close()


def main() -> None:
    """Run brokers and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.producers")
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--rounds", type=int, default=1_000)
    options = parser.parse_args()
    with running_kafka(options.brokers) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, LOG_PARTITIONS, options.brokers)])[TOPIC].result(_TIMEOUT_MS / 1_000)
        leaders_of(kafka, TOPIC)
        uvloop.run(measure(kafka.bootstrap_servers, options.rounds))


if __name__ == "__main__":
    main()
