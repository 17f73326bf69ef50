"""The suites at the gateway, by name: what each measures, and the tables of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks.gateway.limits import limit_table, run_limits
from benchmarks.gateway.loads import COPIED, COPIED_MARKS, DIVIDED, GROWTH, LOADS, MARKS, Mark
from benchmarks.gateway.report import mark_table, run_table
from benchmarks.gateway.suite import run_gateway

Runs = Sequence[dict[str, Any]]


class GatewaySuite(NamedTuple):
    """Runs, and how they are shown."""

    #: Takes repeats, seconds of a run, what takes a line, and `is_short`.
    run: Callable[..., list[dict[str, Any]]]
    table: Callable[[Runs], str]


def _compared(marks: Sequence[Mark], runs: Runs) -> str:
    return f"{mark_table(runs, marks)}\n{run_table(runs)}"


#: In the order in which they run.
GATEWAY: Final = {
    "gateway": GatewaySuite(partial(run_gateway, LOADS), partial(_compared, MARKS)),
    "gateway-rf3": GatewaySuite(partial(run_gateway, COPIED, brokers=3), partial(_compared, COPIED_MARKS)),
    "gateway-workers": GatewaySuite(partial(run_gateway, DIVIDED, is_divided=True), run_table),
    "gateway-growth": GatewaySuite(partial(run_gateway, GROWTH), run_table),
    "gateway-limits": GatewaySuite(run_limits, limit_table),
}
