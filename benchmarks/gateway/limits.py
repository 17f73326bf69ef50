"""Bounds that a gateway keeps for itself: what it costs a writer beside it, what idle share partitions cost, and its memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.client import BenchmarkError
from benchmarks.cluster import TOPIC, broker_pids, create_topic, running_kafka, topic_id_of
from benchmarks.contenders import HoldfastNode
from benchmarks.gateway.broker import create
from benchmarks.gateway.crew import Crew, Seen
from benchmarks.gateway.idle import idle_members
from benchmarks.gateway.loads import Backlog
from benchmarks.gateway.suite import GatewayRuns, Say, Side, line_of, offer, records_of
from benchmarks.generator import Workload, measure
from benchmarks.machine import cpu_seconds, memory_mib
from benchmarks.share_state import find_keys
from holdfast.broker import EmbeddedKafka
from holdfast.client.connection import Address

#: 250 partitions of 4 groups are 1,000 share partitions.
_GROUPS: Final = 4
_IDLE: Final = Backlog(100, 4, 1_000, 250)
#: 1,000 partitions of 20 groups are as many share partitions as a gateway leads by default.
_CROWD_GROUPS: Final = 20
_CROWD: Final = Backlog(64, 1, 0, 1_000)
_CROWD_SETTLES_S: Final = 40.0
#: More than twice the bytes that a gateway holds.
_WAITING: Final = Backlog(1_024, 250, 600_000, 250)
_PASSING: Final = Backlog(1_024, 900, 1_200_000)
#: `gateway.fetch.buffer.bytes` by default.
_BUFFER_MIB: Final = 256
_MIB: Final = 1 << 20
_PASSING_BYTES_PER_S: Final = 50_000_000
_PASSING_CONSUMERS: Final = 2
_FIRST_S: Final = 60.0
_SETTLES_S: Final = 12.0
_SAMPLE_S: Final = 0.05
_WRITES: Final = Workload(api="write", keys=1, connections=1)
#: A broker that has just started answers its first Writes two to four times as slowly.
_WARM_UP_S: Final = 5.0
#: Records a second of each consumer that catches up, so that the node may read ahead as far as it will.
_SLOWLY: Final = 2_000.0


class Limit(NamedTuple):
    """A figure of the gateway alone, and the most that it may be."""

    text: str
    load: str
    column: str
    limit: float


LIMITS: Final = (
    Limit("p99 of one-key Writes beside 50 MB/s ÷ alone", "writes", "p99_ratio", 2.0),
    Limit("the same beside 50 MB/s that another server gives, for comparison", "writes", "elsewhere_ratio", 2.0),
    Limit("1,000 idle share partitions, percent of a core", "idle", "percent", 5.0),
    Limit("20,000 idle share partitions of 20 sessions, percent of a core", "crowd", "percent", 5.0),
    Limit("memory of 1,000 share partitions that catch up ÷ gateway.fetch.buffer.bytes", "memory", "buffers", 1.2),
)


def run_limits(repeats: int, seconds: float, say: Say, *, is_short: bool = False) -> list[dict[str, Any]]:
    """Measure each; returns one entry a run."""
    runs = list[dict[str, Any]]()
    backlogs = (_IDLE, _CROWD, _WAITING, _PASSING)
    with running_kafka(1) as kafka:
        create_topic(kafka)
        for backlog in backlogs:
            is_cut = is_short and backlog is _PASSING
            create(kafka, backlog, records_of(backlog, is_short=is_cut))
        for repeat in range(repeats):
            for name, load in (("writes", _writes), ("idle", _idle), ("crowd", _crowd), ("memory", _memory)):
                node = HoldfastNode()
                offer(node, backlogs)
                node.start(kafka)
                try:
                    runner = GatewayRuns(kafka, {"gateway": node}, seconds)
                    for side in runner.sides[::-1] if load is _idle else runner.sides[1:]:
                        figures = load(kafka, node, runner, side, seconds)
                        say(line_of(repeat, name, side.name, figures))
                        runs.append({"load": name, "contender": side.name, "repeat": repeat} | figures)
                finally:
                    node.stop()
    return runs


def _writes(
    kafka: EmbeddedKafka, node: HoldfastNode, runner: GatewayRuns, side: Side, seconds: float
) -> dict[str, Any]:
    """Write alone, while records pass through the node, and while another server gives as many, on the same machine."""
    keys = find_keys(node.address, topic_id_of(kafka, TOPIC), 1, f"beside-{time.monotonic_ns()}")
    figures = {"alone_p99_ms": measure(keys, _WRITES, seconds, _WARM_UP_S).p99_ms}
    for name, address in (("p99", side.address), ("elsewhere", kafka.bootstrap_servers)):
        rate = _PASSING_BYTES_PER_S / _PASSING.value_bytes / _PASSING_CONSUMERS
        settings = {"bootstrap.servers": address, "max.poll.records": "500"}
        with Crew(_PASSING_CONSUMERS, _PASSING.topic, runner.new_group(), settings, rate=rate) as crew:
            crew.begin()
            if not crew.wait_for_first(_FIRST_S):
                raise BenchmarkError("A consumer had no record.")
            beside = measure(keys, _WRITES, seconds, 1.0)
            ended_s = time.monotonic()
            seen = crew.end()
        passed = sum(count for each in seen for at_s, count in each.polls if ended_s - seconds < at_s <= ended_s)
        figures |= {
            f"{name}_p99_ms": beside.p99_ms,
            f"{name}_ratio": beside.p99_ms / figures["alone_p99_ms"],
            f"{name}_mb_per_s": passed * _PASSING.value_bytes / seconds / 1e6,
        }
    return figures


def _idle(kafka: EmbeddedKafka, node: HoldfastNode, runner: GatewayRuns, side: Side, seconds: float) -> dict[str, Any]:
    """Have a consumer of each group take the few records that there are, and wait for more."""
    with _crews(runner, side, _IDLE.topic) as crews:
        time.sleep(_SETTLES_S)
        percent = _measure_percent(side.own_ids or broker_pids(kafka), seconds)
        taken = _taken([each for crew in crews for each in crew.end()])
    return {"percent": percent, "taken": taken, "is_whole": taken == _GROUPS * _IDLE.records}


def _crowd(kafka: EmbeddedKafka, node: HoldfastNode, runner: GatewayRuns, side: Side, seconds: float) -> dict[str, Any]:
    """Have a member of each group wait for records of a topic that has none."""
    topic_id = topic_id_of(kafka, _CROWD.topic)
    address = Address(node.address.host, node.address.port)
    with idle_members(address, topic_id, _CROWD_GROUPS, 1, _CROWD.partitions):
        time.sleep(_CROWD_SETTLES_S)
        return {"percent": _measure_percent(side.own_ids, seconds)}


def _measure_percent(process_ids: Sequence[int], seconds: float) -> float:
    """Return what some processes take of a core."""
    cpu_s, began_s = cpu_seconds(process_ids), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(process_ids) - cpu_s) / (time.monotonic() - began_s) * 100


def _memory(
    kafka: EmbeddedKafka, node: HoldfastNode, runner: GatewayRuns, side: Side, seconds: float
) -> dict[str, Any]:
    """Watch the node's memory while all share partitions have records, and consumers take them slowly."""
    before_mib, most_mib, is_over = memory_mib(side.own_ids), [0.0], threading.Event()

    def watch() -> None:
        while not is_over.wait(_SAMPLE_S):
            most_mib.append(max(most_mib.pop(), memory_mib(side.own_ids)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with _crews(runner, side, _WAITING.topic, _SLOWLY) as crews:
            time.sleep(_SETTLES_S + seconds)
            taken = _taken([each for crew in crews for each in crew.end()])
    finally:
        is_over.set()
        watcher.join()
    grown_mib = most_mib[0] - before_mib
    return {"before_mib": before_mib, "grown_mib": grown_mib, "buffers": grown_mib / _BUFFER_MIB, "taken": taken}


@contextmanager
def _crews(runner: GatewayRuns, side: Side, topic: str, rate: float = 0) -> Iterator[list[Crew]]:
    """Give a consumer of each group, all of which have had records."""
    settings = {"bootstrap.servers": side.address, "max.poll.records": "500"}
    with ExitStack() as stack:
        crews = [stack.enter_context(Crew(1, topic, runner.new_group(), settings, rate=rate)) for _ in range(_GROUPS)]
        for crew in crews:
            crew.begin()
        if not all(crew.wait_for_first(_FIRST_S) for crew in crews):
            raise BenchmarkError(f"{side.name} gave a group no record.")
        yield crews


def _taken(seen: Sequence[Seen]) -> int:
    return sum(count for each in seen for _, count in each.polls)


def limit_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return which limits are kept."""
    lines = ["| figure of the gateway | most | found | kept |", "|---|--:|--:|---|"]
    for limit in LIMITS:
        found = [
            run[limit.column]
            for run in runs
            if run["load"] == limit.load and run["contender"] == "gateway" and limit.column in run
        ]
        if found:
            kept = "yes" if median(found) <= limit.limit else "no"
            lines.append(
                f"| {limit.text} | {limit.limit} | {median(found):.2f} ({min(found):.2f}–{max(found):.2f}) | {kept} |"
            )
    return "\n".join(lines) + "\n"
