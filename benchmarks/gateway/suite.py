"""The runs: each load at the broker and at the gateway in turn."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from benchmarks.client import BenchmarkError
from benchmarks.cluster import broker_pids, running_kafka
from benchmarks.contenders import HoldfastNode, TwoWorkers
from benchmarks.gateway.broker import START_CONFIG, begin_at_earliest, create, produce_at_tail
from benchmarks.gateway.crew import Crew, Seen
from benchmarks.gateway.loads import Backlog, Load
from benchmarks.gateway.tool import run_tool
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
    """The runs over one cluster with nodes before it.

    Args:
        kafka: the cluster.
        nodes: gateways, by the names that they have in results.
        seconds: how long a run is, unless the backlog ends before.
    """

    def __init__(self, kafka: EmbeddedKafka, nodes: Mapping[str, HoldfastNode], seconds: float) -> None:
        self._kafka = kafka
        self._seconds = seconds
        brokers = broker_pids(kafka)
        self.sides: Final = (
            Side("kafka", kafka.bootstrap_servers, brokers, []),
            *(
                Side(name, address_of(node), brokers + node.process_ids, node.process_ids)
                for name, node in nodes.items()
            ),
        )

    def run(self, load: Load, side: Side) -> dict[str, Any]:
        """Run a load once; returns its figures."""
        group = self.new_group()
        if load.kind == "tool":
            return self._run_tool(load, side, group)
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

    def _run_tool(self, load: Load, side: Side, group: str) -> dict[str, Any]:
        cpu_s, own_s = cpu_seconds(side.process_ids), cpu_seconds(side.own_ids)
        figures = run_tool(side.address, load.backlog, group, self._seconds)
        costs = {"cpu_us": cpu_seconds(side.process_ids) - cpu_s, "node_us": cpu_seconds(side.own_ids) - own_s}
        return figures | {name: cost / figures["taken"] * 1e6 for name, cost in costs.items()}

    def _first_ms(self, load: Load, side: Side, group: str) -> float:
        with self._crew(load, side, group) as crew:
            crew.begin()
            if not crew.wait_for_first(_FIRST_RECORD_S):
                raise BenchmarkError(f"{side.name} gave no record.")
            [seen] = crew.end()
        return (seen.polls[0][0] - seen.began_s) * 1_000

    def _crew(self, load: Load, side: Side, group: str) -> Crew:
        settings = {"bootstrap.servers": side.address} | load.settings
        is_stamped = load.kind == "tail"
        return Crew(load.consumers, load.backlog.topic, group, settings, is_stamped=is_stamped, is_java=load.is_java)

    def new_group(self) -> str:
        """Return the name of a group that begins at the earliest offset at either server; no run of a cluster has it twice."""
        group = f"benchmark-{uuid.uuid4().hex[:8]}"
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
    loads: Sequence[Load],
    repeats: int,
    seconds: float,
    say: Say,
    *,
    brokers: int = 1,
    is_divided: bool = False,
    is_short: bool = False,
) -> list[dict[str, Any]]:
    """Measure loads; the cluster and the gateways take turns, in another order each time.

    Args:
        loads: to be measured.
        repeats: of each load on each side.
        seconds: of a run.
        say: takes a line on each run.
        brokers: of the cluster, 1 or 3.
        is_divided: beside the gateway there is one of two workers.
        is_short: backlogs are a quarter, and the broker is hardly warm.

    Returns: one entry a run.
    """
    warm_ups = 1 if is_short else _WARM_UPS
    runs = list[dict[str, Any]]()
    backlogs = list(dict.fromkeys(load.backlog for load in loads))
    nodes: dict[str, HoldfastNode] = {"gateway": HoldfastNode()} | ({"gateway-2": TwoWorkers()} if is_divided else {})
    with running_kafka(brokers) as kafka:
        for backlog in backlogs:
            create(kafka, backlog, records_of(backlog, is_short=is_short))
        try:
            for node in nodes.values():
                offer(node, backlogs)
                node.start(kafka)
            runner = GatewayRuns(kafka, nodes, seconds)
            for repeat in range(-warm_ups, repeats):
                for load in loads:
                    for side in Random(f"{repeat} {load.name}").sample(runner.sides, len(runner.sides)):
                        figures = runner.run(load, side)
                        say(line_of(repeat, load.name, side.name, figures))
                        if repeat >= 0:
                            runs.append({"load": load.name, "contender": side.name, "repeat": repeat} | figures)
        finally:
            for node in nodes.values():
                node.stop()
    return runs


def records_of(backlog: Backlog, *, is_short: bool) -> int:
    """Return how many records a backlog has in a run."""
    return backlog.records // _SHORTENED if is_short else backlog.records


def offer(node: HoldfastNode, backlogs: Sequence[Backlog]) -> None:
    """Have a node that will be started offer topics."""
    node.settings |= {
        "gateway.topics": ",".join(backlog.topic for backlog in backlogs),
        f"gateway.groups.default.{START_CONFIG}": "earliest",
    }


def address_of(node: HoldfastNode) -> str:
    """Return where consumers find a node."""
    return f"{node.address.host}:{node.address.port}"


def line_of(repeat: int, load: str, who: str, figures: dict[str, Any]) -> str:
    """Return a line about a run."""
    shown = ", ".join(
        f"{name} {value:,.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
        if value != []
    )
    number = f"{repeat + 1}" if repeat >= 0 else "warm-up"
    return f"{number} {load:38} {who:9} {shown}"
