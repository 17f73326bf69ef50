"""What a request costs the thread of a node, all of it but the broker: microseconds of the processor, kernel included.

    python -m benchmarks.micro.node

Sockets, event loop, calls, runtime, producer and fetcher are the real thing. The broker is a transport in this process that
acknowledges what it is sent after `BROKER_S`, and costs a few microseconds a request; the generator is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections import Counter as Tally
from dataclasses import asdict
from struct import Struct
from typing import Any, Final, cast

import uvloop

from benchmarks.client import Address, Client
from benchmarks.generator import Workload, measure
from benchmarks.micro.hot_path import LOG_PARTITIONS, SETTINGS, World
from benchmarks.micro.wire import TOPIC_ID
from benchmarks.share_state import KEYS_PER_CONNECTION, ConnectionKeys, check_all
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.daemon.components import partition_config, state_log_config
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.server.wire.requests import WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.aiokafka_parts import Opened
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.metadata import Leader
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.primitives import encode_string, encode_varint, read_string, read_varint
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log import log as kafka_log
from holdfast.runtime.kafka_log.shell import CoordinatorShell
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.state_bounds import StateTotals
from holdfast.tenants import TABLES

#: How long the broker takes for any answer; a broker with 64 callers takes one to three times as long.
BROKER_S: Final = 0.001
#: How long it holds a fetch that brings nothing.
_IDLE_FETCH_S: Final = 0.05
#: How its brokers are reached.
_OPTIONS: Final = connection_options({"bootstrap.servers": "broker:1", "client.id": "node"})
WORKLOADS: Final = tuple(
    Workload(api=api, keys=keys, connections=64, mix=mix)
    for api, keys, mix in (
        ("write", 1, "steady"),
        ("write", 1, "spread"),
        ("write", 16, "steady"),
        ("write", 16, "spread"),
        ("read", 1, "steady"),
    )
)

_HEAD: Final = Struct(">ihhih")
_INT32: Final = Struct(">i")
_PRODUCED: Final = Struct(">ihqqqih")
_OFFSET: Final = Struct(">ihqqi")
_TARGET: Final = Struct(">iiq")
_FETCHED: Final = Struct(">ihqqqBi")
#: The number of records in a batch, and where a target of a fetch is.
_COUNT_OFFSET: Final = 57
_FETCH_HEAD_SIZE: Final = 25
_TARGET_SIZE: Final = 33


class FakeBroker:
    """A transport to a broker that leads all log partitions."""

    #: Of the logs, and what lies at their start.
    ends: Final[Tally[int]] = Tally()
    first_batches: Final[dict[int, bytes]] = {}

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self.connection: BrokerConnection | None = None
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        """Take whole requests."""
        api_key, correlation_id, name_size = (_HEAD.unpack_from(data)[n] for n in (1, 3, 4))
        body = data[_HEAD.size + name_size :]
        answer = {
            requests.PRODUCE[0]: self._produce,
            requests.LIST_OFFSETS[0]: self._list_offsets,
            requests.FETCH[0]: self._fetch,
        }[api_key]
        delay_s, answered = answer(body)
        frame = _INT32.pack(len(answered) + 4) + _INT32.pack(correlation_id) + answered
        assert self.connection is not None
        self._loop.call_later(delay_s, self.connection.data_received, frame)

    def close(self) -> None:
        """Do nothing."""

    def _produce(self, body: bytes) -> tuple[float, bytes]:
        size = int.from_bytes(body[12:14], "big")
        at = 14 + size
        (count,) = _INT32.unpack_from(body, at)
        answers = [_INT32.pack(1), body[12:at], _INT32.pack(count)]
        at += 4
        for _ in range(count):
            partition, batch_size = _INT32.unpack_from(body, at)[0], _INT32.unpack_from(body, at + 4)[0]
            answers.append(_PRODUCED.pack(partition, 0, self.ends[partition], -1, 0, 0, -1))
            self.first_batches.setdefault(partition, body[at + 8 : at + 8 + batch_size])
            self.ends[partition] += _INT32.unpack_from(body, at + 8 + _COUNT_OFFSET)[0]
            at += 8 + batch_size
        answers.append(_INT32.pack(0))
        return BROKER_S, b"".join(answers)

    def _list_offsets(self, body: bytes) -> tuple[float, bytes]:
        at = 11 + int.from_bytes(body[9:11], "big")
        (count,) = _INT32.unpack_from(body, at)
        answers = [_INT32.pack(0), _INT32.pack(1), body[9:at], _INT32.pack(count)]
        for each in range(count):
            partition, _, which = _TARGET.unpack_from(body, at + 4 + 16 * each)
            offset = self.ends[partition] if which == requests.LATEST else 0
            answers.append(_OFFSET.pack(partition, 0, -1, offset, 0))
        return BROKER_S, b"".join(answers)

    def _fetch(self, body: bytes) -> tuple[float, bytes]:
        """Answer with what was requested for the first time, and with the first batch of a log that is read from its start."""
        topic, answered = "state", set()
        if body[1 + _FETCH_HEAD_SIZE] != 1:
            topic, at = read_string(body, 2 + _FETCH_HEAD_SIZE, "topic")
            count, at = read_varint(body, at, "partitions")
            for number in range(count - 1):
                partition, _, offset = _TARGET.unpack_from(body, at + number * _TARGET_SIZE)
                self._positions[partition] = offset
                answered.add(partition)
        new = {each for each, offset in self._positions.items() if not offset and each in self.first_batches}
        found = [self._fetched(each, self.first_batches[each] if each in new else b"") for each in answered | new]
        topics = (
            (b"\x02", encode_string(topic), encode_varint(len(found) + 1), *found, b"\x00") if found else (b"\x01",)
        )
        # No tags, throttle time and error; session 1.
        return BROKER_S if found else _IDLE_FETCH_S, b"".join((b"\x00" * 10, b"\x01", *topics, b"\x00"))

    def _fetched(self, partition: int, records: bytes) -> bytes:
        end = self.ends[partition]
        return _FETCHED.pack(partition, 0, end, end, 0, 0, -1) + encode_varint(len(records) + 1) + records + b"\x00"


class FakeBrokers(Brokers):
    """The one broker, over as many connections as there are purposes."""

    async def refresh(self) -> None:
        """Name the leader of every log partition."""
        self.leaders = dict.fromkeys(range(LOG_PARTITIONS), Leader(1, 0))
        self._confirmed_s[1] = float("inf")
        for listener in self._listeners:
            listener()

    async def connection(self, broker_id: int, purpose: str) -> BrokerConnection:
        """Return a connection, which is open at once."""
        connection = self._connections.get((broker_id, purpose))
        if connection is None:
            broker = FakeBroker()
            transport = cast("asyncio.Transport", broker)
            connection = BrokerConnection(Opened(transport, {}, broker.close), ("broker", 1), _OPTIONS, 30_000)
            broker.connection = self._connections[broker_id, purpose] = connection
        return connection


class Observer:
    """Learns when all log partitions serve."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.all_active = asyncio.Event()

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `shell.Observer`; a trouble spoils the measurement."""
        assert level in ("debug", "info"), (event, fields)

    def partition_changed(self, partition: Any) -> None:  # noqa: ANN401 - a runtime's partition
        """See `shell.Observer`."""
        self.states[partition.index] = partition.state
        if list(self.states.values()).count(State.ACTIVE) == LOG_PARTITIONS:
            self.all_active.set()

    def superseded(self, *_: object) -> None:
        """See `shell.Observer`."""

    def ticked(self, late_ms: float) -> bool:
        """See `shell.Observer`."""
        return False


def make_log_reach_fake_brokers() -> None:
    """Let the next log find its brokers in this process; it makes what knows them itself."""
    module: Any = kafka_log
    module.Brokers = FakeBrokers


def _answer_nothing(*_: object) -> None:
    """Stand where the handler will, until there is one."""


async def serve(workloads: list[Workload], seconds: float) -> None:
    """Serve a generator, and print what each workload cost."""
    observer = Observer()
    identity = LogIdentity("cluster", bytes(16), LOG_PARTITIONS)
    topic = StateTopic("state", identity.topic_id, LOG_PARTITIONS, 1, 1_048_588)
    share = shard_config(SETTINGS, topic, StateTotals(state_bounds(SETTINGS)))
    shell = CoordinatorShell(
        partition_config(SETTINGS, identity, "127.0.0.1:9095", 5_000),
        state_log_config(SETTINGS, topic, connection_options({"bootstrap.servers": "127.0.0.1:1"})),
        lambda _: ShareShard(share),
        observer,
        metrics=RuntimeMetrics(Registry()),
        tick_ms=50,
    )
    connections = Connections(
        _answer_nothing, TABLES.apis, LimitSettings(), lambda *_: None, InternalErrors(Counter()), bounds=WireBounds()
    )
    world = World(KEYS_PER_CONNECTION, shell.runtime, end_with=connections.batch.end_with)
    await shell.start()
    for index in range(LOG_PARTITIONS):
        shell.runtime.load(index, None)
    await observer.all_active.wait()
    server = Server(connections)
    server.hand_over(world.handle)
    await server.start("127.0.0.1", 0)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    for workload in workloads:
        generator = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.micro.node", "--generate", json.dumps(asdict(workload))),
            *("--port", str(server.port), "--seconds", str(seconds)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert generator.stdout is not None
        await generator.stdout.readline()
        began_s, began = time.thread_time(), time.perf_counter()
        result = json.loads(await generator.stdout.readline())
        cost_s, took_s = time.thread_time() - began_s, time.perf_counter() - began
        await generator.wait()
        each_us = cost_s / result["requests"] * 1e6
        print(
            f"{workload.name:34} {each_us:7.1f} µs a request {each_us / workload.keys:6.1f} µs a key  "
            f"{result['requests_per_s']:8,.0f} requests/s  busy {cost_s / took_s:.2f}",
            flush=True,
        )
    await shell.stop(1)


def generate(workload: Workload, address: Address, seconds: float) -> None:
    """Run a workload, and say when it begins and what came of it."""
    prefix = f"group-{workload.api}-{workload.keys}-{workload.mix}"
    all_keys = [
        ConnectionKeys(address, f"{prefix}-{n}", TOPIC_ID, range(KEYS_PER_CONNECTION), workload.mix)
        for n in range(workload.connections)
    ]
    for keys in all_keys:
        with Client(address) as client:
            assert keys.initialise(client)
    measure(all_keys, workload, 0.5, 0)
    print("begin", flush=True)
    print(json.dumps(asdict(measure(all_keys, workload, seconds, 0))), flush=True)
    check_all(all_keys)


def main() -> None:
    """Measure and print every workload, or be the generator of one."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.node", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each workload")
    parser.add_argument("--only", type=int, action="append", help="workloads by their number, from 0")
    options = parser.parse_args()
    if options.generate:
        generate(Workload(**json.loads(options.generate)), Address("127.0.0.1", options.port), options.seconds)
        return
    chosen = [WORKLOADS[number] for number in options.only or range(len(WORKLOADS))]
    make_log_reach_fake_brokers()
    uvloop.run(serve(chosen, options.seconds))


if __name__ == "__main__":
    main()
