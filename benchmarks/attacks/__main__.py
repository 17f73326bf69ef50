"""Attack a node in every known way, and print what each way cost it and a healthy client beside it.

    python -m benchmarks.attacks [NAME …]

It starts a broker and a node of its own, and attacks when that is ready. Memory is the node's peak above what it held
when the attack began; times are those of a Write of one share partition, every 10 ms, by a process of its own. The
ratio is that of the 99th percentiles during and before the attack.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.attacks.attacks import ATTACKS, LAST, Attack, Target
from benchmarks.attacks.caller import Caller, Healthy
from benchmarks.attacks.crowds import CROWDS
from benchmarks.cluster import create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.machine import memory_mib

_HEAD = (
    "| attack | sent | above idle, MiB | before, p50 / p99 ms | during, p50 / p99 / max ms | ratio | troubles | answer |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
#: Healthy times before an attack: at least so many, taken in at most so long.
_SAMPLES_BEFORE = 200
_BEFORE_MAX_S = 20.0
_ATTACK_MAX_S = 25.0
_SAMPLE_S = 0.05
_READY_MAX_S = 120.0


def main(names: Sequence[str]) -> int:
    """Run the attacks of these names, all without any; returns the exit code."""
    known = {attack.__name__: attack for attack in (*ATTACKS, *CROWDS, LAST)}
    if unknown := set(names) - set(known):
        print(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
        return 2
    for row in _HEAD:
        print(row, flush=True)
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        node = HoldfastNode()
        node.start(kafka)
        try:
            asyncio.run(_until_ready(node))
            target = Target(node.address, topic_id, node.process_ids[0])
            for name, attack in known.items():
                if not names or name in names:
                    print(asyncio.run(_measure(attack, target, node)), flush=True)
        finally:
            node.stop()
    return 0


async def _until_ready(node: HoldfastNode) -> None:
    """Wait until every log partition serves."""
    async with asyncio.timeout(_READY_MAX_S):
        caller = await Caller.open(node.address)
        while not (await caller.admin("status"))["is_ready"]:  # noqa: ASYNC110  # the node has no event
            await asyncio.sleep(_SAMPLE_S)
        caller.close()


async def _measure(attack: Attack, target: Target, node: HoldfastNode) -> str:
    target.sent_bytes = 0
    healthy = Healthy(target.address, target.topic_id)
    waited_until_s = time.monotonic() + _BEFORE_MAX_S
    while healthy.written < _SAMPLES_BEFORE and time.monotonic() < waited_until_s:  # noqa: ASYNC110  # a process has no event
        await asyncio.sleep(_SAMPLE_S)
    idle_mib = peak_mib = memory_mib(node.process_ids)
    began_s = time.monotonic()
    running = asyncio.ensure_future(attack(target))
    while not running.done() and time.monotonic() < began_s + _ATTACK_MAX_S:
        await asyncio.wait([running], timeout=_SAMPLE_S)
        peak_mib = max(peak_mib, _memory_of(node))
    ended_s = time.monotonic()
    if running.done():
        answer = running.result() if running.exception() is None else f"the attack failed: {running.exception()!r}"
    else:
        running.cancel()
        answer = f"not done in {_ATTACK_MAX_S:.0f} s"
    times, troubles = await asyncio.to_thread(healthy.stop)
    before = [took for at, took in times if at + took / 1_000 < began_s]
    during = [took for at, took in times if began_s <= at < ended_s]
    counted = ", ".join(f"{count} × {what}" for what, count in Counter(troubles).items())
    label = " ".join((attack.__doc__ or attack.__name__).split()).rstrip(".")
    peaks = f"{_at(during, 0.5):.1f} / {_at(during, 0.99):.1f} / {max(during, default=0):.0f}"
    ratio = _at(during, 0.99) / _at(before, 0.99) if before and during else 0.0
    return (
        f"| {label} (`{attack.__name__}`) | {target.sent_bytes:,} B | {peak_mib - idle_mib:.0f} "
        f"| {_at(before, 0.5):.1f} / {_at(before, 0.99):.1f} | {peaks} | {ratio:.1f} | {counted or 'none'} | {answer} |"
    )


def _memory_of(node: HoldfastNode) -> float:
    """Return the memory of the node; 0 when it is gone."""
    try:
        return float(memory_mib(node.process_ids))
    except (OSError, IndexError, ValueError):
        return 0.0


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
