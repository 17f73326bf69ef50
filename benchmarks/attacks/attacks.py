"""Each attack sends what it wants for a bounded time and says in a few words what it was answered."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.attacks.caller import Caller, Way, share_body, write_one
from benchmarks.client import Address
from holdfast.api.admin import ADMIN, AdminRequest, encode_admin_request
from holdfast.api.results import DeletePartition, InitializePartition, ReadPartition
from holdfast.api.share_state import DELETE, INITIALIZE, READ, WRITE
from holdfast.api.state_responses import decode_response
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.primitives import encode_string, encode_varint

Attack = Callable[["Target"], Awaitable[str]]

LOST: Final = (OSError, TimeoutError, asyncio.IncompleteReadError, ConnectionError)
BIG_BATCHES: Final = 20_000
#: So many are taken in one Write of a share partition.
MOST_BATCHES: Final = 10_000
BIG_PARTITIONS: Final = 50
FRAME_BYTES: Final = 8 * 1024 * 1024


class Target:
    """A node under attack, and how much was sent to it."""

    def __init__(self, address: Address, topic_id: bytes, process_id: int, way: Way | None = None) -> None:
        """Attack a node, which lets nobody in but by a way where there is one."""
        self.address, self.topic_id, self.process_id, self.way = address, topic_id, process_id, way
        self.sent_bytes = 0

    async def open(self) -> Caller:
        """Connect to it."""
        return await Caller.open(self.address, self.way)

    def count(self, size: int) -> None:
        """Count bytes that were sent."""
        self.sent_bytes += size

    async def send(self, caller: Caller, api_key: int, version: int, body: bytes) -> str:
        """Send one request; returns what became of it."""
        self.count(caller.send(api_key, version, body))
        try:
            answer = await caller.receive()
        except LOST as error:
            return type(error).__name__
        return f"{len(answer):,} B"

    async def send_alone(self, api_key: int, version: int, body: bytes) -> str:
        """Send one request over a connection of its own."""
        caller = await self.open()
        try:
            return await self.send(caller, api_key, version, body)
        finally:
            caller.close()

    async def send_on(
        self,
        api_key: int,
        version: int,
        bodies: bytes | Sequence[bytes],
        *,
        seconds: float = 6.0,
        connections: int = 1,
        depth: int = 64,
        from_host: str | None = None,
    ) -> str:
        """Keep `depth` requests on their way over each of some connections; of several bodies each connection has one."""
        bodies = [bodies] if isinstance(bodies, bytes) else bodies
        ends_s = time.monotonic() + seconds
        answered = 0

        async def keep_sending(body: bytes) -> None:
            nonlocal answered
            caller = await (Caller.connect(self.address, None, from_host) if from_host else self.open())
            with suppress(*LOST):
                for _ in range(depth):
                    self.count(caller.send(api_key, version, body))
                while time.monotonic() < ends_s:
                    await caller.receive()
                    answered += 1
                    self.count(caller.send(api_key, version, body))
            caller.close()

        await asyncio.gather(*(keep_sending(bodies[number % len(bodies)]) for number in range(connections)))
        return f"{answered:,} answers"

    def connect_deaf(self, data: bytes) -> socket.socket:
        """Send something over a connection whose answers are never read."""
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(2)
        deaf.connect(self.address)
        with suppress(OSError):
            deaf.sendall(data)
        self.count(len(data))
        return deaf

    def big_read(self, number: int = 1) -> bytes:
        """Return the frame of a Read of all big states."""
        body = share_body(READ, "big", [(self.topic_id, [ReadPartition(n, 0) for n in range(BIG_PARTITIONS)])])
        return frames.encode_request(READ, 0, number, b"attack", body)


def _keys(texts: Iterable[str]) -> bytes:
    encoded = [encode_string(text) for text in texts]
    return b"\x02" + encode_varint(len(encoded) + 1) + b"".join(encoded) + b"\x00"


def admin_body(command: str, **arguments: object) -> bytes:
    """Return the body of an admin command."""
    return encode_admin_request(AdminRequest(command, dict(arguments)))


async def long_group(target: Target) -> str:
    """A1: a Read of 20,000 share partitions of unknown topics, with a group id of 32 kB."""
    asked = [ReadPartition(number, 0) for number in range(20_000)]
    return await target.send_alone(READ, 0, share_body(READ, "g" * 32_000, [(os.urandom(16), asked)]))


async def big_states(target: Target) -> str:
    """Preparation of A2: fifty share partitions of twenty thousand state batches, kept by the node."""
    caller, refused = await target.open(), 0
    batches = [(2 * n, 2 * n, (0, 2)[n % 2], 1 + n % 2) for n in range(BIG_BATCHES)]
    for number in range(BIG_PARTITIONS):
        body = share_body(INITIALIZE, "big", [(target.topic_id, [InitializePartition(number, 0, 0)])])
        await target.send(caller, INITIALIZE, 0, body)
        for part in (batches[:MOST_BATCHES], batches[MOST_BATCHES:]):
            body = share_body(WRITE, "big", [(target.topic_id, [write_one(number, part)])])
            target.count(caller.call_share(WRITE, body))
            [(_, [(_, result)])] = decode_response(WRITE, 1, await caller.receive(), 5)
            refused += result.error_code != 0
    caller.close()
    return f"{refused} refused"


async def big_read(target: Target) -> str:
    """A2: one Read of all of them."""
    return await target.send_alone(READ, 0, target.big_read()[21:])


async def deaf_reads(target: Target) -> str:
    """A2: 64 pipelined Reads of all of them by a client that never reads, six times."""
    data = b"".join(target.big_read(number) for number in range(64))
    deaf = [await asyncio.to_thread(target.connect_deaf, data) for _ in range(6)]
    await asyncio.sleep(8)
    for one in deaf:
        one.close()
    return "never read"


async def reads_left_behind(target: Target) -> str:
    """A2: 64 such Reads, and the socket is closed at once, again and again."""
    data = b"".join(target.big_read(number) for number in range(64))
    for _ in range(20):
        (await asyncio.to_thread(target.connect_deaf, data)).close()
        await asyncio.sleep(0.2)
    return "closed at once"


async def leaking_connections(target: Target) -> str:
    """A3: many queries for topics by name at once, some of which cannot be sent."""
    callers = [await target.open() for _ in range(8)]
    before = len(os.listdir(f"/proc/{target.process_id}/fd"))
    answered: Counter[str] = Counter()
    bad = encode_string("resolve-topic") + encode_string('{"name":"\\ud800"}') + b"\x00"
    for _ in range(3):
        answered[await target.send(callers[0], ADMIN, 0, bad)] += 1
        for caller in callers:
            for _ in range(30):
                target.count(caller.send(ADMIN, 0, admin_body("resolve-topic", name="x")))
        with suppress(*LOST):
            for caller in callers:
                for _ in range(30):
                    await caller.receive()
    after = len(os.listdir(f"/proc/{target.process_id}/fd"))
    for caller in callers:
        caller.close()
    return f"{after - before} more files open"


async def unknown_topics(target: Target) -> str:
    """A4: Deletes of 20,000 unknown topics each, over six connections."""
    ends_s = time.monotonic() + 8
    answers: Counter[str] = Counter()

    async def flood() -> None:
        while time.monotonic() < ends_s:
            asked = [(os.urandom(16), [DeletePartition(0)]) for _ in range(20_000)]
            answers[await target.send_alone(DELETE, 0, share_body(DELETE, "u", asked))] += 1

    await asyncio.gather(*(flood() for _ in range(6)))
    return ", ".join(f"{count} × {what}" for what, count in answers.items())


async def stairs(target: Target) -> str:
    """A5: a Write of 370,000 state batches that overlap like stairs, and one of as many as are taken."""
    answers = []
    await target.send_alone(
        INITIALIZE, 0, share_body(INITIALIZE, "cpu", [(target.topic_id, [InitializePartition(1, 0, 0)])])
    )
    for count in (370_000, MOST_BATCHES, MOST_BATCHES, MOST_BATCHES):
        batches = [(2 * n, 2 * n + 5_000, (0, 2, 4)[n % 3], n * 7_919 % 32_000) for n in range(count)]
        body = share_body(WRITE, "cpu", [(target.topic_id, [write_one(1, batches)])])
        answers.append(await target.send_alone(WRITE, 1, body))
    return ", ".join(answers)


async def nested(target: Target) -> str:
    """A5: Writes of state batches one inside the other, without end."""
    batches = [(n, 10**9 - n, 0, n * 7_919 % 32_000) for n in range(MOST_BATCHES)]
    body = share_body(WRITE, "cpu", [(target.topic_id, [write_one(1, batches)])])
    return await target.send_on(WRITE, 1, body, depth=4)


async def tiny_writes(target: Target) -> str:
    """A5: tiny Writes into the middle of a large state."""
    bodies = [
        share_body(WRITE, "big", [(target.topic_id, [write_one(0, [(4 * n + 1, 4 * n + 1, 2, 3)])])]) for n in range(2)
    ]
    return await target.send_on(WRITE, 1, bodies[0])


async def long_keys(target: Target) -> str:
    """A5: FindCoordinator of 250 keys of 32 kB."""
    return await target.send_alone(10, 6, _keys(f"{'g' * 32_000}:AAAAAAAAAAAAAAAAAAAAAA:{n}" for n in range(250)))


async def many_keys(target: Target) -> str:
    """A5: FindCoordinator of 20,000 keys, without end."""
    return await target.send_on(10, 6, _keys(f"g:AAAAAAAAAAAAAAAAAAAAAA:{n}" for n in range(20_000)), depth=4)


async def metadata(target: Target) -> str:
    """A5: Metadata of all topics, without end, over fifty connections."""
    return await target.send_on(3, 12, b"\x00\x00\x00\x00", connections=50)


async def many_topics(target: Target) -> str:
    """A5: Metadata of 1,000 unknown topics, without end."""
    body = encode_varint(1_001) + b"".join(os.urandom(16) + b"\x00\x00" for _ in range(1_000)) + bytes(3)
    return await target.send_on(3, 12, body)


async def admin_metrics(target: Target) -> str:
    """A5: the admin command `metrics`, without end, over four connections."""
    return await target.send_on(ADMIN, 0, admin_body("metrics"), connections=4)


async def admin_partitions(target: Target) -> str:
    """A5: the admin command `partitions`, without end, over four connections."""
    return await target.send_on(ADMIN, 0, admin_body("partitions"), connections=4)


async def large_json(target: Target) -> str:
    """A5: an admin command with 8 MB of JSON."""
    return await target.send_alone(ADMIN, 0, admin_body("status", a=[0] * 2_600_000))


async def header_tags(target: Target) -> str:
    """A5: a request header with four million tagged fields."""
    caller = await target.open()
    tags = encode_varint(4_000_000) + b"\x01\x00" * 4_000_000
    head = struct.pack(">hhih", 18, 3, 1, -1)
    caller.writer.write(struct.pack(">i", len(head) + len(tags)) + head + tags)
    target.count(len(tags))
    try:
        return f"{len(await caller.receive()):,} B"
    except LOST as error:
        return type(error).__name__
    finally:
        caller.close()


async def unknown_reads(target: Target) -> str:
    """A5: Reads of 20,000 unknown topics, and of 20,000 negative partitions."""
    unknown = share_body(READ, "u", [(os.urandom(16), [ReadPartition(0, 0)]) for _ in range(20_000)])
    negative = share_body(READ, "u", [(os.urandom(16), [ReadPartition(-1, 0)]) for _ in range(20_000)])
    return f"{await target.send_alone(READ, 0, unknown)}, {await target.send_alone(READ, 0, negative)}"


async def many_digits(target: Target) -> str:
    """A6: FindCoordinator of a key whose partition has 5,000 digits."""
    body = _keys(["g:AAAAAAAAAAAAAAAAAAAAAA:" + "1" * 5_000])
    return str(dict(Counter([await target.send_alone(10, 6, body) for _ in range(300)])))


async def many_groups(target: Target) -> str:
    """A7: share partitions of groups with names of 32 kB; what they leave is kept by the node."""
    answers: Counter[str] = Counter()
    for number in range(20):
        asked = [InitializePartition(n, 0, 0) for n in range(50)]
        body = share_body(INITIALIZE, f"{number:06d}" + "x" * 31_994, [(target.topic_id, asked)])
        answers[await target.send_alone(INITIALIZE, 0, body)] += 1
    return str(dict(answers))


async def huge_keys(target: Target) -> str:
    """A8: FindCoordinator of one key of 8 MB, sixty times."""
    answers: Counter[str] = Counter()
    for number in range(60):
        answers[await target.send_alone(10, 6, _keys([f"{'A' * 8_380_000}{number:04d}:AAAAAAAAAAAAAAAAAAAAAA:0"]))] += 1
    return str(dict(answers))


async def many_connections(target: Target) -> str:
    """A9: 2,000 silent connections; then a new client and the admin tool."""
    silent = []
    for _ in range(2_000):
        with suppress(OSError):
            one = socket.socket()
            one.settimeout(5)
            one.connect(target.address)
            silent.append(one)
    await asyncio.sleep(2)
    new = await target.send_alone(18, 0, b"")
    try:
        caller = await target.open()
        await caller.admin("status")
        caller.close()
        status = "served"
    except LOST as error:
        status = type(error).__name__
    for one in silent:
        one.close()
    return f"new client {new}, admin tool {status}"


async def unfinished_frames(target: Target) -> str:
    """A10: 40 connections with almost a whole frame of 8 MiB each; then a large Write in two parts."""
    beginning = struct.pack(">ihhih", FRAME_BYTES, 18, 0, 1, -1) + bytes(FRAME_BYTES - 11)
    holders = []
    for _ in range(40):
        holders.append(await target.open())
        holders[-1].writer.write(beginning)
        target.count(len(beginning))
    await asyncio.sleep(4)
    batches = [(2 * n, 2 * n, 2, 1) for n in range(10_000)]
    body = share_body(WRITE, "cpu", [(target.topic_id, [write_one(1, batches, 0)])])
    answers = [await target.send_alone(WRITE, 1, body) for _ in range(3)]
    for holder in holders:
        holder.close()
    return ", ".join(answers)


async def slow_frames(target: Target) -> str:
    """A12 and others: 300 connections that drip a byte a second."""
    callers = [await target.open() for _ in range(300)]
    for _ in range(6):
        for caller in callers:
            caller.writer.write(b"\x00")
        await asyncio.sleep(1)
    for caller in callers:
        caller.close()
    return "dripped"


async def unread_stop(target: Target) -> str:
    """A11: clients that do not read their answers, and then SIGTERM; the node is gone after it."""
    deaf = [await asyncio.to_thread(target.connect_deaf, target.big_read() * 2) for _ in range(3)]
    await asyncio.sleep(3)
    began_s = time.monotonic()
    os.kill(target.process_id, signal.SIGTERM)
    while _runs(target.process_id) and time.monotonic() < began_s + 15:  # noqa: ASYNC110  # a process has no event
        await asyncio.sleep(0.05)
    for one in deaf:
        one.close()
    return f"stopped after {time.monotonic() - began_s:.1f} s"


def _runs(process_id: int) -> bool:
    """Tell whether a process has not ended; its parent may not have looked yet."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


#: In the order in which they are run, `LAST` after all others.
ATTACKS: Final[tuple[Attack, ...]] = (
    long_group,
    big_states,
    big_read,
    deaf_reads,
    reads_left_behind,
    leaking_connections,
    unknown_topics,
    stairs,
    nested,
    tiny_writes,
    long_keys,
    many_keys,
    metadata,
    many_topics,
    admin_metrics,
    admin_partitions,
    large_json,
    header_tags,
    unknown_reads,
    many_digits,
    many_groups,
    huge_keys,
    many_connections,
    unfinished_frames,
    slow_frames,
)
#: It ends the node.
LAST: Final = unread_stop
