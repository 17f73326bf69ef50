"""What a greedy client does to a polite one: the latency of one Write at a time, alone and beside 64 connections that pipeline.

    python -m benchmarks.micro.greedy

Sockets, connections and shards are the real thing; the log is the list of `hot_path`, committed every millisecond. The greedy client
comes from 127.0.0.1 and keeps `PIPELINE` Writes on the way on each of its connections; the polite one comes from 127.0.0.2 and sends
one every few milliseconds. Server and greedy client are processes of their own.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe

import uvloop

from benchmarks.micro.hot_path import BEHIND, SETTINGS, STATE_EPOCH, STEP, World
from benchmarks.micro.wire import TOPIC_ID, VERSION
from holdfast.api import share_state, state_requests
from holdfast.api.results import InitializePartition, StateRequest, WritePartition
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.wire.connections import Connections
from holdfast.kafka.protocol import frames
from holdfast.metrics.instruments import Counter
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.tenants import TABLES

CONNECTIONS, PIPELINE, FRAMES = 64, 64, 200
ROUNDS, SAMPLES, PAUSE_S, COMMIT_S = 3, 200, 0.005, 0.001
#: Answers of the greedy client before it counts as begun.
WARM_UP = 3_000


def _initialize(partition: int) -> bytes:
    request = StateRequest("group", [(TOPIC_ID, [InitializePartition(partition, STATE_EPOCH, 0)])])
    body = state_requests.encode_request(share_state.INITIALIZE, 0, request)
    return frames.encode_request(share_state.INITIALIZE, 0, 1, b"client", body)


def _write(partition: int, number: int) -> bytes:
    first = number * STEP
    batches = (StateBatch(first, first + STEP - 1, ACKNOWLEDGED, 1),)
    wanted = WritePartition(partition, STATE_EPOCH, 0, max(0, first - BEHIND), STEP, batches)
    body = state_requests.encode_request(share_state.WRITE, VERSION, StateRequest("group", [(TOPIC_ID, [wanted])]))
    return frames.encode_request(share_state.WRITE, VERSION, 1, b"client", body)


def _serve(pipe: Pipe) -> None:
    async def run() -> None:
        world = World(CONNECTIONS + 1)
        server = Server(
            Connections(world.handle, TABLES.apis, SETTINGS.limits, lambda *_: None, InternalErrors(Counter()))
        )
        await server.start("0.0.0.0", 0)
        pipe.send(server.port)
        # As `holdfast serve` does.
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        gc.freeze()
        while True:
            await asyncio.sleep(COMMIT_S)
            world.log.commit(world.runtime)
            while world._tasks:
                world._tasks.popleft()()

    uvloop.run(run())


def _be_greedy(port: int, pipe: Pipe) -> None:
    async def pipeline(partition: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writes = [_write(partition, number) for number in range(FRAMES)]
        writer.write(_initialize(partition) + b"".join(writes[number % FRAMES] for number in range(PIPELINE - 1)))
        number = PIPELINE
        while True:
            await _read_answer(reader)
            answered[0] += 1
            if answered[0] == WARM_UP:
                begun.set()
            writer.write(writes[number % FRAMES])
            number += 1

    async def run() -> None:
        tasks = [asyncio.ensure_future(pipeline(number)) for number in range(CONNECTIONS)]
        await begun.wait()
        pipe.send(None)
        answered[0] = 0
        await asyncio.to_thread(pipe.recv)
        for task in tasks:
            task.cancel()
        pipe.send(answered[0])

    answered, begun = [0], asyncio.Event()
    uvloop.run(run())


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def _latencies_ms(port: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    writer.write(_initialize(CONNECTIONS))
    await _read_answer(reader)
    found = []
    for number in range(SAMPLES):
        await asyncio.sleep(PAUSE_S)
        frame = _write(CONNECTIONS, number % FRAMES)
        began_s = time.perf_counter()
        writer.write(frame)
        await _read_answer(reader)
        found.append((time.perf_counter() - began_s) * 1_000)
    writer.close()
    return sorted(found)


def _show(what: str, sorted_ms: list[float]) -> float:
    p50, p99 = sorted_ms[len(sorted_ms) // 2], sorted_ms[len(sorted_ms) * 99 // 100]
    print(f"{what:8} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms", end="  ")
    return p99


def main() -> None:
    """Measure alone and beside the greedy client, in turns, and print each round and the ratio of its p99."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    for _ in range(ROUNDS):
        alone = _show("alone", uvloop.run(_latencies_ms(port)))
        to_greedy, of_greedy = context.Pipe()
        greedy = context.Process(target=_be_greedy, args=(port, of_greedy), daemon=True)
        greedy.start()
        to_greedy.recv()
        began_s = time.perf_counter()
        beside = _show("beside", uvloop.run(_latencies_ms(port)))
        to_greedy.send(None)
        rate = to_greedy.recv() / (time.perf_counter() - began_s)
        greedy.join()
        print(f"ratio of p99 {beside / alone:5.2f}  greedy {rate:7.0f} Writes/s")
    server.terminate()


if __name__ == "__main__":
    main()
