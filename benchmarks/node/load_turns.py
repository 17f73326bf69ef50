"""How long a load holds the event loop at once: `python -m benchmarks.node.load_turns`.

One broker, and in this process a node that loads a log of `--updates`, as the benchmarks `load-1024` and `load` write it. A turn of the
loop is what its thread computes (CPU time, so what other processes take is not in it) between two looks of a task that always wants to
run. Those from the first look at the log to the end of the last load are counted, beside `slice_ms`, which bounds the folding.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Sequence
from time import perf_counter, thread_time
from typing import Final

import uvloop

from benchmarks.client import BenchmarkError
from benchmarks.cluster import create_topic, running_kafka
from benchmarks.contenders import STATE_PARTITIONS, HoldfastNode
from benchmarks.history import Appender, History, write_history
from benchmarks.share_state import TOPIC_PARTITIONS, find_keys
from holdfast.broker.properties import HOST
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.daemon.node import Node
from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import Settings
from holdfast.node_settings import load_settings
from holdfast.runtime.build import BUILD
from holdfast.runtime.kafka_log.log import SLICE_RECORDS_MAX
from holdfast.runtime.load_slices import SLICE_MS
from holdfast.tenants import TABLES

_LOOK_S: Final = 0.02


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.load_turns", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--updates", type=int, default=2_000_000, help="of one log (default: 2,000,000)")
    parser.add_argument("--share-partitions", type=int, default=20_000, help="that they are of (default: 20,000)")
    parser.add_argument("--loads", type=int, default=3, help="one after the other (default: 3)")
    options = parser.parse_args(arguments)
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        first = HoldfastNode()
        first.start(kafka)
        try:
            settings = load_settings(
                flags={
                    "kafka.bootstrap.servers": kafka.bootstrap_servers,
                    "listen": f"{HOST}:0",
                    "http.listen": "",
                    "log_level": "error",
                    "share.coordinator.state.topic.replication.factor": "1",
                    "share.coordinator.state.topic.min.isr": "1",
                    **first.settings,
                }
            ).settings
            find_keys(first.address, topic_id, 1, "first")  # The state topic is there now.
            appender = Appender(kafka.bootstrap_servers, first.state_topic, STATE_PARTITIONS, first.first_checkpoint())
        finally:
            first.stop()
        configure_logging(settings.logging)
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        history = History(keys=options.share_partitions, updates=options.updates)
        shares = history.share_partitions(topic_id, TOPIC_PARTITIONS)
        records = write_history(history, shares, first.codec, appender, STATE_PARTITIONS)
        print(
            f"build {BUILD}; {records:,} records of {options.share_partitions:,} share partitions; "
            f"slice_ms {SLICE_MS}, slice_records_max {SLICE_RECORDS_MAX}"
        )
        print("| load | seconds | turns | 99 % below ms | 99.9 % below ms | longest ms |")
        print("| --- | --: | --: | --: | --: | --: |")
        for number in range(1, 1 + options.loads):
            gc.collect()
            gc.freeze()
            began_s = perf_counter()
            turns_ms = sorted(uvloop.run(_measure(settings)))
            took_s = perf_counter() - began_s
            quantiles = " | ".join(f"{turns_ms[int(share * len(turns_ms))]:.1f}" for share in (0.99, 0.999))
            print(f"| {number} | {took_s:.2f} | {len(turns_ms):,} | {quantiles} | {turns_ms[-1]:.1f} |")
    return 0


async def _measure(settings: Settings) -> list[float]:
    """Return how long each turn of the loop was, in ms, while a node loads."""
    turns_ms: list[float] = []
    node = Node(settings, TABLES)
    running = asyncio.create_task(node.run())

    async def watch() -> None:
        while node.parts is None:  # noqa: ASYNC110 - as below, it always wants to run
            await asyncio.sleep(0)
        before_s = thread_time()
        while not node.is_ready:
            await asyncio.sleep(0)
            now_s = thread_time()
            turns_ms.append((now_s - before_s) * 1_000)
            before_s = now_s

    watching = asyncio.create_task(watch())
    while not watching.done():
        if running.done():
            raise BenchmarkError(f"The node ended: {node.why_stopped}.")
        await asyncio.sleep(_LOOK_S)
    node.stop()
    await running
    return turns_ms


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
