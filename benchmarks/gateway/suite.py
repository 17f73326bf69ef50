"""The runs: each load at the broker and at the gateway in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from benchmarks.client import BenchmarkError
from benchmarks.cluster import broker_pids, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.gateway.broker import START_CONFIG, begin_at_earliest, create, produce_at_tail
from benchmarks.gateway.crew import Crew, Seen
from benchmarks.gateway.loads import LOADS, Load
from benchmarks.machine import cpu_seconds
from holdfast.broker import EmbeddedKafka

#: A group of a broker takes two heartbeats, five seconds apart, until it has records.
_FIRST_RECORD_S: Final = 30.0
#: From the first record of the last consumer on, before the tail is measured.
_TAIL_SETTLES_S: Final = 1.0
#: Records that come late at the tail.
_TAIL_ENDS_S: Final = 0.5
#: Rounds of all loads before those that count, in which Java compiles what it runs.
_WARM_UPS: Final = 2
_SHORTENED: Final = 4

Say = Callable[[str], None]


class Side(NamedTuple):
    """A server that consumers go to."""

    #: `gateway` or `kafka`.
    name: str
    address: str
    #: The processes that serve there, the broker among them.
    process_ids: list[int]
    #: The node among them.
    own_ids: list[int]


class GatewayRuns:
    """The runs over one broker with a node before it.

    Args:
        kafka: the broker.
        node: the gateway.
        seconds: how long a run is, unless the backlog ends before.
    """

    def __init__(self, kafka: EmbeddedKafka, node: HoldfastNode, seconds: float) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._groups = 0
        brokers = broker_pids(kafka)
        self.sides: Final = (
            Side("kafka", kafka.bootstrap_servers, brokers, []),
            Side("gateway", f"{node.address.host}:{node.address.port}", brokers + node.process_ids, node.process_ids),
        )

    def run(self, load: Load, side: Side) -> dict[str, Any]:
        """Run a load once; returns its figures."""
        group = self._new_group()
        if load.kind == "first":
            return {"new_ms": self._first_ms(load, side, group), "known_ms": self._first_ms(load, side, group)}
        with self._crew(load, side, group) as crew:
            cpu_s, own_s = cpu_seconds(side.process_ids), cpu_seconds(side.own_ids)
            crew.begin()
            if load.kind == "tail":
                # The members have their partitions when these have come.
                produce_at_tail(self._kafka, load.backlog.topic, _TAIL_SETTLES_S)
            is_whole = crew.wait_for_first(_FIRST_RECORD_S)
            if load.kind == "tail":
                time.sleep(_TAIL_SETTLES_S)
                cpu_s, own_s, began_s = cpu_seconds(side.process_ids), cpu_seconds(side.own_ids), time.monotonic()
                count = produce_at_tail(self._kafka, load.backlog.topic, self._seconds)
                time.sleep(_TAIL_ENDS_S)
            else:
                time.sleep(self._seconds)
            cpu_s, own_s = cpu_seconds(side.process_ids) - cpu_s, cpu_seconds(side.own_ids) - own_s
            seen = crew.end()
        problems = [problem for each in seen for problem in each.problems]
        taken = sum(count for each in seen for _, count in each.polls)
        figures: dict[str, Any] = {
            "problems": problems[:3],
            "errors": len(problems),
            "taken": taken,
            "is_whole": is_whole,
        }
        if load.kind == "tail":
            late = [ms for each in seen for ms in each.latencies_ms][-count:]
            figures |= {"p50_ms": median(late), "p99_ms": quantiles(late, n=100)[98], "cpu_us": cpu_s / count * 1e6}
            figures |= {"node_us": own_s / count * 1e6}
            return figures | {"seconds": time.monotonic() - began_s}
        if taken > load.backlog.records:
            raise BenchmarkError(f"{side.name} gave {taken} records of {load.backlog.records}.")
        costs = {"cpu_us": cpu_s / max(1, taken) * 1e6, "node_us": own_s / max(1, taken) * 1e6}
        return figures | _rate(seen) | costs

    def _first_ms(self, load: Load, side: Side, group: str) -> float:
        with self._crew(load, side, group) as crew:
            crew.begin()
            if not crew.wait_for_first(_FIRST_RECORD_S):
                raise BenchmarkError(f"{side.name} gave no record.")
            [seen] = crew.end()
        return (seen.polls[0][0] - seen.began_s) * 1_000

    def _crew(self, load: Load, side: Side, group: str) -> Crew:
        settings = {"bootstrap.servers": side.address} | load.settings
        return Crew(load.consumers, load.backlog.topic, group, settings, is_stamped=load.kind == "tail")

    def _new_group(self) -> str:
        self._groups += 1
        group = f"benchmark-{self._groups}"
        begin_at_earliest(self._kafka, group)
        return group


def _rate(seen: Sequence[Seen]) -> dict[str, Any]:
    """Return the rate from when all had records until one of them saw its last."""
    busy = [each for each in seen if each.polls]
    if not busy:
        raise BenchmarkError("No consumer had a record.")
    began_s, ended_s = max(each.polls[0][0] for each in busy), min(each.polls[-1][0] for each in busy)
    count = sum(count for each in busy for at_s, count in each.polls if began_s < at_s <= ended_s)
    if count == 0:
        raise BenchmarkError("The backlog is too short for this machine.")
    return {
        "records_per_s": count / (ended_s - began_s),
        "seconds": ended_s - began_s,
        "consumers": len(busy),
        "records_per_poll": median(count for each in busy for _, count in each.polls),
        "consumers_cpu_s": sum(each.cpu_s for each in seen),
    }


def run_gateway(
    repeats: int, seconds: float, say: Say, names: Sequence[str] = (), *, is_short: bool = False
) -> list[dict[str, Any]]:
    """Measure all loads; the broker and the gateway take turns, in another order each time.

    Args:
        repeats: of each load on each side.
        seconds: of a run.
        say: takes a line on each run.
        names: of the loads; empty: all.
        is_short: backlogs are a quarter, and the broker is hardly warm.

    Returns: one entry a run.
    """
    loads = [load for load in LOADS if not names or load.name in names]
    warm_ups = 1 if is_short else _WARM_UPS
    node, runs = HoldfastNode(), list[dict[str, Any]]()
    backlogs = list(dict.fromkeys(load.backlog for load in loads))
    node.settings |= {
        "gateway.topics": ",".join(backlog.topic for backlog in backlogs),
        f"gateway.groups.default.{START_CONFIG}": "earliest",
    }
    with running_kafka(1) as kafka:
        for backlog in backlogs:
            create(kafka, backlog, backlog.records // _SHORTENED if is_short else backlog.records)
        try:
            node.start(kafka)
            runner = GatewayRuns(kafka, node, seconds)
            for repeat in range(-warm_ups, repeats):
                for load in loads:
                    for side in Random(f"{repeat} {load.name}").sample(runner.sides, 2):
                        figures = runner.run(load, side)
                        say(_line(repeat, load, side, figures))
                        if repeat >= 0:
                            runs.append({"load": load.name, "contender": side.name, "repeat": repeat} | figures)
        finally:
            node.stop()
    return runs


def _line(repeat: int, load: Load, side: Side, figures: dict[str, Any]) -> str:
    shown = ", ".join(
        f"{name} {value:,.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
        if value != []
    )
    number = f"{repeat + 1}" if repeat >= 0 else "warm-up"
    return f"{number} {load.name:32} {side.name:8} {shown}"
