"""The runs over a cluster of one broker and of three: both contenders in turn, workload by workload."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from time import monotonic
from typing import Any, Final, TypeVar

from benchmarks.cluster import broker_pids, create_topic, running_kafka
from benchmarks.contenders import Contender
from benchmarks.generator import Workload, measure
from benchmarks.machine import compiler_seconds, cpu_seconds, memory_mib
from benchmarks.share_state import MIXES, ConnectionKeys, check_all, find_keys

CONNECTIONS: Final = (1, 16, 64)
WORKLOADS: Final = (
    *(
        Workload(api="write", keys=keys, connections=count, mix=mix)
        for keys in (1, 16)
        for count in CONNECTIONS
        for mix in MIXES
    ),
    *(Workload(api="read", keys=1, connections=count) for count in CONNECTIONS),
)
_WARM_UP: Final = (
    Workload(api="write", keys=16, connections=16),
    Workload(api="write", keys=1, connections=64, mix="spread"),
    Workload(api="read", keys=1, connections=16),
    # Many connections share requests to brokers; one has each for itself, so only here does Java meet what runs for them often enough.
    *(Workload(api="write", keys=1, connections=1, mix=mix) for mix in MIXES),
)
#: Cores that Java's compilers may still take when the brokers count as warm.
_COMPILING_CORES_MAX: Final = 0.05

Say = Callable[[str], None]
T = TypeVar("T")
KeysByMix = dict[str, list[ConnectionKeys]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how often to measure."""

    repeats: int = 5
    seconds: float = 5.0
    warm_up_s: float = (
        3.0  #: of the same load before each measurement; behind another contender one is slower for two seconds
    )
    warm_up_rounds_max: int = 12  #: before all, until the brokers are warm
    warm_up_round_s: float = 5.0  #: of each contender and each kind of request in such a round


FULL: Final = Effort()
QUICK: Final = Effort(repeats=1, seconds=2.0, warm_up_s=0.5, warm_up_rounds_max=1, warm_up_round_s=4.0)


def run_requests(brokers: int, contenders: Sequence[Contender], effort: Effort, say: Say) -> list[dict[str, Any]]:
    """Measure all workloads over a cluster of so many brokers; the contenders take turns.

    Returns: one entry a run, with the contender, the workload, the measurement, and what the processes cost.

    Raises:
        BenchmarkError: a wrong answer, or a state that is not what was written.
    """
    runs: list[dict[str, Any]] = []
    with running_kafka(brokers) as kafka:
        topic_id = create_topic(kafka)
        broker_ids = broker_pids(kafka)
        try:
            entrants: list[tuple[Contender, KeysByMix]] = []
            for contender in contenders:
                contender.start(kafka)
                entrants.append((contender, find_keys_by_mix(contender, topic_id)))
            warmth = warm_up(broker_ids, {contender.name: keys for contender, keys in entrants}, effort, say)
            for repeat in range(effort.repeats):
                for workload in WORKLOADS:
                    for contender, keys_of in in_random_order(entrants, workload, repeat):
                        name, keys = contender.name, keys_of[workload.mix]
                        servers = broker_ids + contender.process_ids
                        cpu_before = cpu_seconds(servers)
                        result = measure(keys, workload, effort.seconds, effort.warm_up_s)
                        cost = {
                            "servers_cpu": (cpu_seconds(servers) - cpu_before) / (effort.seconds + effort.warm_up_s),
                            "contender_memory_mib": memory_mib(contender.process_ids or broker_ids),
                        }
                        checked = check_all(keys[: workload.connections])
                        runs.append(
                            {"brokers": brokers, "contender": name, "repeat": repeat, "read_back": checked}
                            | asdict(workload)
                            | asdict(result)
                            | cost
                            | {"compiling_cores": warmth[name]}
                        )
                        say(_line(runs[-1], workload))
        finally:
            for contender in contenders:
                contender.stop()
    return runs


def say_progress(line: str) -> None:
    """Print a line to standard error, beside the tables."""
    print(line, file=sys.stderr, flush=True)


def in_random_order(entrants: Sequence[T], workload: Workload, repeat: int) -> list[T]:
    """Return the order in which they take turns: whoever always comes behind Kafka's coordinator is measured too low.

    It is the same in every run of a program, and another one for each workload and each repeat.
    """
    return Random(f"{repeat} {workload.name}").sample(entrants, len(entrants))


def find_keys_by_mix(contender: Contender, topic_id: bytes) -> KeysByMix:
    """Choose share partitions for as many callers as any workload has, for each mix.

    Raises:
        BenchmarkError: it takes too long.
    """
    return {
        mix: find_keys(
            contender.address,
            topic_id,
            max(CONNECTIONS),
            f"{contender.name}-{mix}",
            contender.placement(mix),
            mix,
            contender.coordinators(mix),
        )
        for mix in MIXES
    }


def warm_up(broker_ids: list[int], entrants: dict[str, KeysByMix], effort: Effort, say: Say) -> dict[str, float]:
    """Load every contender in turn until Java has compiled what the brokers run for it, or the rounds are used up.

    Returns: the cores that Java's compilers took under each in the last round.
    """
    warmth: dict[str, float] = {}
    for number in range(effort.warm_up_rounds_max):
        for name, keys_of in entrants.items():
            before, began_s = compiler_seconds(broker_ids), monotonic()
            for workload in _WARM_UP:
                measure(keys_of[workload.mix], workload, effort.warm_up_round_s, 0)
            spent_s = sum(total - before.get(thread, 0) for thread, total in compiler_seconds(broker_ids).items())
            warmth[name] = spent_s / (monotonic() - began_s)
        taken = ", ".join(f"{cores:.2f} cores under {name}" for name, cores in warmth.items())
        say(f"warm-up {number + 1}: Java's compilers take {taken}")
        if max(warmth.values()) <= _COMPILING_CORES_MAX:
            break
    return warmth


def _line(run: dict[str, Any], workload: Workload) -> str:
    return (
        f"rf{run['brokers']} {run['repeat'] + 1} {workload.name:33} {run['contender']:9} "
        f"{run['requests_per_s']:8,.0f} requests/s {run['keys_per_s']:9,.0f} keys/s "
        f"p50 {run['p50_ms']:7.2f} ms p99 {run['p99_ms']:7.2f} ms  errors {run['errors']}  "
        f"CPU: generator {run['generator_cpu']:.2f}, servers {run['servers_cpu']:.2f}"
    )
