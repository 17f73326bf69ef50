"""Attacks by many connections at once, and requests that ask for the same again and again."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import time
from contextlib import suppress
from typing import Final

from benchmarks.attacks.attacks import BIG_PARTITIONS, FRAME_BYTES, LOST, Attack, Target, admin_body
from benchmarks.attacks.caller import Caller, share_body, write_one
from holdfast.api.admin import ADMIN
from holdfast.api.results import DeletePartition, InitializePartition, ReadPartition, SummaryPartition
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.kafka.protocol import frames

#: As many as one address may have (connections_per_address_max), all but a few for the healthy client.
_CROWD: Final = 480
#: Connections of a greedy client, and requests on the way on each.
_GREEDY: Final = 64
#: Share partitions that one request may name.
_MANY: Final = 20_000


async def _open_crowd(target: Target, count: int) -> list[Caller]:
    callers = []
    for _ in range(count):
        with suppress(*LOST):
            callers.append(await target.open())
    return callers


async def mixed_frames(target: Target) -> str:
    """50 connections, each with pipelined Reads of all big states and then almost a whole frame of 8 MiB."""
    reads = b"".join(target.big_read(number) for number in range(64))
    data = reads + struct.pack(">ihhih", FRAME_BYTES, 18, 0, 1, -1) + bytes(FRAME_BYTES - 11)
    deaf = await asyncio.gather(*(asyncio.to_thread(target.connect_deaf, data) for _ in range(50)))
    await asyncio.sleep(4)
    for one in deaf:
        one.close()
    return "never read"


async def many_initializes(target: Target) -> str:
    """Initializes of fifty share partitions of ever new groups with names of 1,024 bytes, over four connections."""
    ends_s = time.monotonic() + 6
    answered = 0

    async def go_on(prefix: int) -> None:
        nonlocal answered
        caller = await target.open()
        number = 0
        while time.monotonic() < ends_s:
            number += 1
            group = f"{prefix}-{number:08d}-" + "x" * 1_012
            asked = [InitializePartition(n, 0, 0) for n in range(50)]
            await target.send(caller, INITIALIZE, 0, share_body(INITIALIZE, group, [(target.topic_id, asked)]))
            answered += 1
        caller.close()

    await asyncio.gather(*(go_on(prefix) for prefix in range(4)))
    return f"{answered:,} answers"


async def dripping_crowd(target: Target) -> str:
    """As many connections as one address has, each with a byte at a time."""
    callers = await _open_crowd(target, _CROWD)
    frame = target.big_read()
    for position in range(40):
        for caller in callers:
            caller.writer.write(frame[position : position + 1])
        target.count(len(callers))
        await asyncio.sleep(0.1)
    for caller in callers:
        caller.close()
    return f"{len(callers)} connections"


async def half_closed(target: Target) -> str:
    """300 connections that pipeline Reads of all big states, end their side at once, and never read."""
    data = target.big_read() * 8
    deaf = []
    for _ in range(300):
        with suppress(OSError):
            one = await asyncio.to_thread(target.connect_deaf, data)
            deaf.append(one)
            one.shutdown(socket.SHUT_WR)
    await asyncio.sleep(3)
    for one in deaf:
        one.close()
    return f"{len(deaf)} connections"


async def crowd_of_versions(target: Target) -> str:
    """ApiVersions without end, over as many connections as one address has."""
    return await target.send_on(18, 0, b"", connections=_CROWD, depth=16)


async def greedy_writes(target: Target) -> str:
    """Writes as a client may make them, 64 on the way on each of 64 connections, from another address than the healthy client."""
    for number in range(_GREEDY):
        asked = [InitializePartition(number % 50, 0, 0)]
        await target.send_alone(
            INITIALIZE, 0, share_body(INITIALIZE, f"greedy-{number}", [(target.topic_id, [*asked])])
        )
    bodies = [
        share_body(WRITE, f"greedy-{number}", [(target.topic_id, [write_one(number % 50, [(5, 9, 2, 1)], 5)])])
        for number in range(_GREEDY)
    ]
    return await target.send_on(WRITE, 1, bodies, connections=_GREEDY, from_host="127.0.0.2")


async def pipelined_admin(target: Target) -> str:
    """Admin commands of all kinds, pipelined without end over fifty connections."""
    commands = ("status", "settings", "metrics", "partitions", "readers")
    answers = await asyncio.gather(
        *(target.send_on(ADMIN, 0, admin_body(command), connections=10) for command in commands)
    )
    return ", ".join(f"{command} {answer}" for command, answer in zip(commands, answers, strict=True))


async def same_read(target: Target) -> str:
    """A Read that names one big share partition 20,000 times."""
    asked = [ReadPartition(0, 0)] * _MANY
    return await target.send_alone(READ, 0, share_body(READ, "big", [(target.topic_id, asked)]))


async def same_topics(target: Target) -> str:
    """A Read that names the topic 20,000 times, with a big share partition each."""
    topics = [(target.topic_id, [ReadPartition(n % BIG_PARTITIONS, 0)]) for n in range(_MANY)]
    return await target.send_alone(READ, 0, share_body(READ, "big", topics))


async def many_summaries(target: Target) -> str:
    """ReadSummaries of 20,000 share partitions, without end."""
    asked = [SummaryPartition(n, 0) for n in range(_MANY)]
    body = share_body(SUMMARY, "big", [(target.topic_id, asked)])
    return await target.send_on(SUMMARY, 1, body, depth=4)


async def random_deletes(target: Target) -> str:
    """Deletes of 20,000 share partitions that are not there, in one topic and in as many."""
    known = share_body(
        DELETE, "u", [(target.topic_id, [DeletePartition(random.randrange(1 << 30)) for _ in range(_MANY)])]
    )
    unknown = share_body(DELETE, "u", [(os.urandom(16), [DeletePartition(0)]) for _ in range(_MANY)])
    return f"{await target.send_alone(DELETE, 0, known)}, {await target.send_alone(DELETE, 0, unknown)}"


async def open_and_close(target: Target) -> str:
    """Connections that ask for the versions and are closed at once, without end."""
    ends_s = time.monotonic() + 6
    frame = frames.encode_request(18, 0, 1, b"attack", b"")

    def storm() -> int:
        count = 0
        while time.monotonic() < ends_s:
            with suppress(OSError), socket.create_connection(target.address, timeout=2) as one:
                one.sendall(frame)
                count += 1
        return count

    counts = await asyncio.gather(*(asyncio.to_thread(storm) for _ in range(4)))
    return f"{sum(counts):,} connections"


CROWDS: Final[tuple[Attack, ...]] = (
    mixed_frames,
    many_initializes,
    dripping_crowd,
    half_closed,
    crowd_of_versions,
    greedy_writes,
    pipelined_admin,
    same_read,
    same_topics,
    many_summaries,
    random_deletes,
    open_and_close,
)
