"""Attack a node in every known way, and print what each way cost it and a healthy client beside it.

    python -m benchmarks.attacks [NAME …]

It starts a broker, a node with TLS, logins and access rules for who may not come in, and one at its defaults for all others, and
attacks when they are ready. Memory is the node's peak above what it held
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
from benchmarks.attacks.caller import Caller, Healthy, Way
from benchmarks.attacks.crowds import CROWDS
from benchmarks.attacks.probes import PROBES
from benchmarks.attacks.strangers import STRANGERS
from benchmarks.cluster import create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.machine import memory_mib
from benchmarks.node.secured_node import ADMIN, NOBODY, PASSWORD, USER, SecuredNode
from holdfast.broker import EmbeddedKafka
from holdfast.runtime.build import BUILD

_HEAD = (
    "| attack | sent | above idle, MiB | before, p50 / p99 ms | during, p50 / p99 / max ms | ratio | troubles | answer |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
#: Healthy times before an attack: at least so many, taken in at most so long.
_SAMPLES_BEFORE = 200
_BEFORE_MAX_S = 20.0
_ATTACK_MAX_S = 25.0
_SAMPLE_S = 0.05
#: The sum of the table in `docs/secure.md`, connections excepted.
_BOUND_MIB = 3 * 256 + 100 + 32
_READY_MAX_S = 120.0


def main(names: Sequence[str]) -> int:
    """Run the attacks of these names, all without any; returns the exit code."""
    by_anybody, by_strangers = (*ATTACKS, *CROWDS, LAST), (*STRANGERS, *PROBES)
    known = {attack.__name__: attack for attack in (*by_strangers, *by_anybody)}
    if unknown := set(names) - set(known):
        print(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
        return 2
    wanted = set(names) or set(known)
    print(f"build {BUILD}")
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        secured = SecuredNode("SASL_SSL")
        # Clients may show a certificate, so that those of unknown authorities are looked at.
        secured.settings |= {"ssl.client.auth": "requested", "listener.ssl.ca.location": str(secured.authority)}
        for node, attacks in ((secured, by_strangers), (HoldfastNode(), by_anybody)):
            if chosen := [attack for attack in attacks if attack.__name__ in wanted]:
                _attack(node, kafka, topic_id, chosen)
    return 0


def _attack(node: HoldfastNode, kafka: EmbeddedKafka, topic_id: bytes, attacks: Sequence[Attack]) -> None:
    """Start a node and run some attacks on it, one after the other."""
    node.start(kafka)
    try:
        owner = probing = None
        if isinstance(node, SecuredNode):
            owner, probing = (Way(str(node.authority), user, PASSWORD) for user in (USER, NOBODY))
            admin = Way(str(node.authority), ADMIN, PASSWORD)
        asyncio.run(_until_ready(node, admin if owner else None))
        print(*_HEAD, sep="\n", flush=True)
        begun_mib = memory_mib(node.process_ids)
        peak_mib = begun_mib
        for attack in attacks:
            target = Target(node.address, topic_id, node.process_ids[0], probing if attack in PROBES else owner)
            line, most_mib = asyncio.run(_measure(attack, target, node, owner))
            peak_mib = max(peak_mib, most_mib)
            print(line, flush=True)
        errors = Counter(entry["event"] for entry in node.log_entries() if entry.get("level") in ("error", "critical"))
        print(
            f"\nThe node took {begun_mib:.0f} MiB before, {peak_mib:.0f} at most and {_memory_of(node):.0f} behind it; its bound is "
            f"{_BOUND_MIB} MiB above idle and what connections take. Error lines: {dict(errors) or 'none'}\n",
            flush=True,
        )
    finally:
        node.stop()


async def _until_ready(node: HoldfastNode, way: Way | None) -> None:
    """Wait until every log partition serves."""
    async with asyncio.timeout(_READY_MAX_S):
        caller = await Caller.open(node.address, way)
        while not (await caller.admin("status"))["is_ready"]:  # noqa: ASYNC110  # the node has no event
            await asyncio.sleep(_SAMPLE_S)
        caller.close()


async def _measure(attack: Attack, target: Target, node: HoldfastNode, way: Way | None) -> tuple[str, float]:
    """Return the row of an attack, and the most memory that the node took; the healthy client comes in by `way`."""
    healthy = Healthy(target.address, target.topic_id, way)
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
    ), peak_mib


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
