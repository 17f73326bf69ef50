"""How many writes a node loses to readers of its page: `python -m benchmarks.node.page_readers`.

One broker, one node, and beside them a process that writes over 64 connections in a closed loop, and one that has `--pages` open pages
and `--streams` event streams. A page asks for itself as its script does in a browser: when it has its answer it pauses for a second,
or four times as long as the answer took. Windows without and with readers take turns.
The node saves time for readers while nobody looks, so they look for `--spend` seconds first, until that is spent.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlencode

from benchmarks.attacks.caller import Healthy
from benchmarks.cluster import TOPIC, create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.generator import Measurement, Workload, measure
from benchmarks.machine import cpu_seconds, describe
from benchmarks.node.ratios import ratio_text
from benchmarks.share_state import check_all, find_keys
from holdfast.runtime.build import BUILD

_WARM_UP_S: Final = 8.0
_RUN_UP_S: Final = 1.0
#: As in the script of the page.
_PAUSE_S: Final = 1.0
_SLOWER: Final = 4


class Looked(NamedTuple):
    """The answers that readers had in a window."""

    statuses: Counter[int]
    events: int
    times_s: list[float]


class Readers:
    """A process with open pages and event streams."""

    def __init__(self, port: int, paths: Sequence[str], streams: int) -> None:
        self._pipe, child = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_read, args=(port, paths, streams, child), daemon=True)
        self._process.start()

    def look(self) -> None:
        """Open all pages and streams."""
        self._pipe.send("look")

    def rest(self) -> Looked:
        """Close all pages and streams."""
        self._pipe.send("rest")
        looked: Looked = self._pipe.recv()
        return looked

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.node.page_readers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--windows", type=int, default=12, help="of each sort (default: 12)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each window (default: 8)")
    parser.add_argument("--spend", type=float, default=60.0, help="seconds of readers before the first (default: 60)")
    parser.add_argument(
        "--run-up", type=float, default=_RUN_UP_S, help="with --paced: seconds of readers before a window is counted"
    )
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--streams", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument(
        "--paced", action="store_true", help="write a hundred times a second, and compare processor time"
    )
    options = parser.parse_args(arguments)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    node, workload = HoldfastNode(), Workload(api="write", keys=1, connections=options.connections)
    node.settings["http.listen"] = f"127.0.0.1:{port}"
    windows: dict[bool, list[tuple[Measurement, float]]] = {False: [], True: []}
    looks: list[Looked] = []
    with running_kafka(1) as kafka:
        topic_id = create_topic(kafka)
        readers = None
        try:
            node.start(kafka)
            keys = find_keys(node.address, topic_id, options.connections, "page", node.placement(workload.mix))
            groups = [each.group_id for each in keys]
            one = urlencode({"group": groups[0], "topic": TOPIC, "partition": keys[0].states[0].partition})
            shown = ("/", f"/group?{one}", f"/window?{one}", "/")
            readers = Readers(port, [shown[number % len(shown)] for number in range(options.pages)], options.streams)
            measure(keys, workload, _WARM_UP_S, 0)
            if options.paced:
                _compare_cores(node, topic_id, readers, options)
                return 0
            readers.look()
            measure(keys, workload, options.spend, 0)
            spent = readers.rest()
            for number in range(2 * options.windows):
                has_readers = number % 4 in (1, 2)
                if has_readers:
                    readers.look()
                before_s = cpu_seconds(node.process_ids)
                measured = measure(keys, workload, options.seconds, _RUN_UP_S)
                cores = (cpu_seconds(node.process_ids) - before_s) / (options.seconds + _RUN_UP_S)
                windows[has_readers].append((measured, cores))
                if has_readers:
                    looks.append(readers.rest())
            check_all(keys)
        finally:
            if readers is not None:
                readers.stop()
            node.stop()
    print(f"build {BUILD}; {describe('')['commit']}; {workload.name}; {len(groups)} groups")
    print(f"before the first window: {_told([spent])}")
    print(f"in the windows: {_told(looks)}")
    _show(windows)
    return 0


def _compare_cores(node: HoldfastNode, topic_id: bytes, readers: Readers, options: argparse.Namespace) -> None:
    """Print the processor time of the node in windows with and without readers, while a client writes every 10 ms."""
    writer, cores, looks = (
        Healthy(node.address, topic_id),
        dict[bool, list[float]]({False: [], True: []}),
        list[Looked](),
    )
    readers.look()
    time.sleep(options.spend)
    spent = readers.rest()
    for number in range(2 * options.windows):
        has_readers = number % 4 in (1, 2)
        if has_readers:
            readers.look()
        time.sleep(options.run_up if has_readers else _RUN_UP_S)
        before_s, began_s = cpu_seconds(node.process_ids), time.monotonic()
        time.sleep(options.seconds)
        cores[has_readers].append((cpu_seconds(node.process_ids) - before_s) / (time.monotonic() - began_s))
        if has_readers:
            looks.append(readers.rest())
    times, troubles = writer.stop()
    print(f"build {BUILD}; {describe('')['commit']}; {len(times):,} writes, troubles {troubles or 'none'}")
    print(f"before the first window: {_told([spent])}")
    print(f"in the windows: {_told(looks)}")
    for name, values in (("without readers", cores[False]), ("with readers", cores[True])):
        print(f"{name}: {median(values):.4f} cores; by window: {', '.join(f'{each:.4f}' for each in sorted(values))}")
    more = sorted(one - other for one, other in zip(cores[True], cores[False], strict=True))
    print(f"more with readers: {median(more):.4f} cores; by window: {', '.join(f'{each:.4f}' for each in more)}")


def _show(windows: dict[bool, list[tuple[Measurement, float]]]) -> None:
    print("| windows | writes/s (least, most) | p50 ms | p99 ms | µs of the node's processor a write |")
    print("| --- | --: | --: | --: | --: |")
    rates, costs = {}, {}
    for has_readers, found in windows.items():
        rates[has_readers] = [each.requests_per_s for each, _ in found]
        costs[has_readers] = [cores * 1e6 / each.requests_per_s for each, cores in found]
        rate = rates[has_readers]
        print(
            f"| {'with' if has_readers else 'without'} readers | {median(rate):,.0f} ({min(rate):,.0f}, {max(rate):,.0f}) "
            f"| {median(each.p50_ms for each, _ in found):.2f} | {median(each.p99_ms for each, _ in found):.2f} "
            f"| {median(costs[has_readers]):.2f} |"
        )
    for name, values in (("writes/s", rates), ("the node's processor a write", costs)):
        pairs = sorted(one / other for one, other in zip(values[True], values[False], strict=True))
        spread = ", ".join(f"{each:.3f}" for each in pairs)
        print(f"{name} with readers ÷ without: {ratio_text(values[True], values[False])}; by window: {spread}")


def _told(looks: Sequence[Looked]) -> str:
    statuses = sum((each.statuses for each in looks), Counter[int]())
    times = sorted(took for each in looks for took in each.times_s) or [0.0]
    p50, p99 = (times[len(times) * share // 100] for share in (50, 99))
    events = sum(each.events for each in looks)
    return (
        f"answers {dict(statuses)}, {events} events; a page took {p50 * 1_000:.0f} ms at p50, {p99 * 1_000:.0f} at p99"
    )


# ---- the process of the readers ------------------------------------------------------------------------------------------


def _read(port: int, paths: Sequence[str], streams: int, pipe: Pipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_read_when_told(port, paths, streams, pipe))


async def _read_when_told(port: int, paths: Sequence[str], streams: int, pipe: Pipe) -> None:
    while await asyncio.to_thread(pipe.recv) == "look":
        looked = Looked(Counter(), 0, [])
        events = Counter[str]()
        tasks = [asyncio.create_task(_open_page(port, path, looked)) for path in paths]
        tasks += [asyncio.create_task(_listen(port, events)) for _ in range(streams)]
        await asyncio.to_thread(pipe.recv)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pipe.send(looked._replace(events=events["changed"]))


async def _open_page(port: int, path: str, looked: Looked) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            began_s = time.perf_counter()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            took_s = time.perf_counter() - began_s
            looked.statuses[int(head.split()[1])] += 1
            looked.times_s.append(took_s)
            await asyncio.sleep(max(_PAUSE_S, _SLOWER * took_s))
    finally:
        writer.close()


async def _listen(port: int, events: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(asyncio.IncompleteReadError):
            while line := await reader.readline():
                events["changed"] += line.startswith(b"event: changed")
    finally:
        writer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
