"""What one connection waits for where a node computes nothing: `python -m benchmarks.node.relay`.

A relay stands where the node stands: for each request it sends the broker a Produce request that was made beforehand, and when that
is answered an answer that was made beforehand. Its Produce requests are for one log partition after the other, as many as a connection
has share partitions (a node has some of them in the same one), because a broker takes longer where it has not just written.
It blocks in four system calls a request and does nothing else but, where it is told so, be busy for some time on each way, or look for
what comes for some time before it sleeps, as a node does (`busy_poll_us`). No coordinator that keeps its log in the broker, in whatever
language, is quicker than the relay that polls as long.
Kafka's own coordinator, the relays and a node take turns in a random order; each writes over one connection.
"""

from __future__ import annotations

import argparse
import math
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle, product
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from os import sched_yield
from statistics import median
from time import perf_counter
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.client import CLIENT_ID, Address, BenchmarkError, open_socket
from benchmarks.cluster import create_topic, first_address, running_kafka
from benchmarks.contenders import HoldfastNode, KafkaCoordinator
from benchmarks.generator import Measurement, Workload, measure
from benchmarks.node.ratios import INTERVAL_ROUNDS_MIN, ratio_text
from benchmarks.share_state import KEYS_PER_CONNECTION, MIXES, ConnectionKeys, find_keys
from benchmarks.suites import in_random_order, say_progress
from holdfast.api.results import WriteResult
from holdfast.api.share_state import VERSIONS, WRITE
from holdfast.api.state_responses import encode_response
from holdfast.kafka.aiokafka_parts import make_batch_builder
from holdfast.kafka.protocol.frames import encode_request
from holdfast.kafka.protocol.frames import encode_response as frame_response
from holdfast.kafka.protocol.requests import PRODUCE, encode_produce
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.runtime.build import BUILD

_TOPIC: Final = "relay"
_WARM_UP_S: Final = 20.0
_TIMEOUT_S: Final = 30.0
_RECEIVE_SIZE: Final = 64 * 1024
#: About what a record of the node has.
_KEY: Final = bytes(50)
_VALUE: Final = bytes(80)
_HEADERS: Final = [(HEADER_NAME, encode_header(1, 1))]


def table(found: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """Return the lines of the table: medians, their ratios to the first contender's, the intervals of these, and all errors."""
    lines = [
        "| one connection | p50 µs | of Kafka's | p99 µs | of Kafka's | errors |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    first = next(iter(found.values()))
    for name, runs in found.items():
        cells = []
        for what in ("p50_ms", "p99_ms"):
            values, kafkas = ([getattr(run, what) for run in each] for each in (runs, first))
            cells.append(f"{median(values) * 1_000:.0f} | {ratio_text(values, kafkas)}")
        lines.append(f"| {name} | {' | '.join(cells)} | {sum(run.errors for run in runs)} |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.relay", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--work-us",
        type=int,
        nargs="+",
        default=[0, 20, 40],
        help="times that relays are busy on each of the two ways (default: 0 20 40)",
    )
    parser.add_argument(
        "--poll-us",
        type=int,
        nargs="+",
        default=[0, 1_000],
        help="for how long a relay looks for what comes before it sleeps; one relay for each of these and each time of work (default: "
        "0 1000)",
    )
    parser.add_argument("--repeats", type=int, default=7, help="(default: 7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (default: 2)")
    parser.add_argument("--mix", choices=list(MIXES), default="steady", help="(default: steady)")
    options = parser.parse_args(arguments)
    if min(*options.work_us, *options.poll_us, 0) < 0:
        parser.error("--work-us and --poll-us are at least 0")
    if options.repeats < 1 or not 0 < options.seconds < math.inf:
        parser.error("--repeats is at least 1, and --seconds more than 0")
    workload = Workload(api="write", keys=1, connections=1, mix=options.mix)
    coordinator, node = KafkaCoordinator(), HoldfastNode()
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(_TOPIC, KEYS_PER_CONNECTION, 1)])[_TOPIC].result(_TIMEOUT_S)
        keys_of: dict[str, ConnectionKeys] = {}
        relays = []
        try:
            for contender in (coordinator, node):
                contender.start(kafka)
                placement = contender.placement(options.mix)
                [keys_of[contender.name]] = find_keys(
                    contender.address, topic_id, 1, contender.name, placement, options.mix
                )
            for poll_us, work_us in product(options.poll_us, options.work_us):
                near, far = get_context("spawn").Pipe()
                arguments_of_relay = (far, first_address(kafka), topic_id, work_us, poll_us)
                relay = get_context("spawn").Process(target=_relay, args=arguments_of_relay, daemon=True)
                relay.start()
                relays.append(relay)
                address = Address("127.0.0.1", near.recv())
                name = f"relay, busy for {work_us} µs twice, polls for {poll_us} µs"
                keys_of[name] = ConnectionKeys(address, "relay", topic_id, [0], options.mix)
            found: dict[str, list[Measurement]] = {name: [] for name in keys_of}
            say_progress(f"{len(keys_of)} contenders; {_WARM_UP_S:g} s of warm-up for each")
            for keys in keys_of.values():
                measure([keys], workload, 1.0, _WARM_UP_S)
            for repeat in range(options.repeats):
                say_progress(f"repeat {repeat + 1} of {options.repeats}")
                for name in in_random_order(list(keys_of), workload, repeat):
                    found[name].append(measure([keys_of[name]], workload, options.seconds, 0.5))
        finally:
            for relay in relays:
                relay.kill()
            node.stop()
            coordinator.stop()
    print(
        f"build {BUILD}; medians of {options.repeats} runs of {options.seconds:g} s, mix {options.mix}; behind each ratio, of "
        f"{INTERVAL_ROUNDS_MIN} runs or more, its 95 % confidence interval"
    )
    print("\n".join(table(found)))
    return 0


def _relay(pipe: Pipe, broker: Address, topic_id: bytes, work_us: int, poll_us: int) -> None:
    """Serve one connection after the other; says its port first."""
    builder = make_batch_builder(0, 1_000_000)
    builder.append(0, None, _KEY, _VALUE, _HEADERS)
    batch = bytes(builder.build())
    bodies = [encode_produce(_TOPIC, 30_000, [(partition, batch)]) for partition in range(KEYS_PER_CONNECTION)]
    produces = cycle([encode_request(*PRODUCE, 1, CLIENT_ID, body, has_tags=False) for body in bodies])
    answer_body = encode_response(WRITE, VERSIONS[WRITE][1], [(topic_id, [(0, WriteResult())])])
    answer = bytearray(frame_response(0, answer_body, has_tags=True))
    log = open_socket(broker, _TIMEOUT_S)
    log.settimeout(None)  # with a time-out each answer takes a system call more
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := _receive(client, poll_us):
                _work(work_us)
                log.sendall(next(produces))
                if not _is_success(_receive(log, poll_us)):
                    raise BenchmarkError("The broker refused a batch of the relay.")
                _work(work_us)
                answer[4:8] = request[8:12]
                client.sendall(answer)


def _receive(connection: socket.socket, poll_us: int) -> bytes:
    """Wait for what comes; looks for it for some time before it sleeps."""
    sleeps_s = perf_counter() + poll_us / 1e6
    while perf_counter() < sleeps_s:
        try:
            return connection.recv(_RECEIVE_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sched_yield()
    return connection.recv(_RECEIVE_SIZE)


def _is_success(answer: bytes) -> bool:
    """Tell whether the error code of the only partition is 0: behind lengths, correlation id, name and number."""
    at = 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4
    return len(answer) > at + 2 and answer[at : at + 2] == b"\x00\x00"


def _work(us: int) -> None:
    ends_s = perf_counter() + us / 1e6
    while us and perf_counter() < ends_s:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchmarkError as error:
        sys.exit(f"Error: {error}")
