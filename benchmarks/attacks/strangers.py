"""Attacks by who has no password, on a node with TLS and logins; each says how many got further than they may, which is to be 0."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.attacks.attacks import LOST, Attack, Target
from benchmarks.attacks.caller import MECHANISM, Caller, share_body
from holdfast.api.results import ReadPartition
from holdfast.api.share_state import READ
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.scram import ClientSide, ScramRefused

_TLS_BEGINNING: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_AT_ONCE: Final = 50
_FRAME_SIZES: Final = (-(1 << 31), -1, 0, 1, 9, 64 * 1024 + 1, 8 << 20, (1 << 31) - 1)


class Effort:
    """How many connections an attack has, and how long it lasts; a test has smaller ones."""

    crowd = 400
    seconds = 6.0


async def silent_sockets(target: Target) -> str:
    """S1: as many connections as may be that never begin with TLS, and as many that stop within its first message."""
    opened = [await asyncio.to_thread(target.connect_deaf, (b"", _TLS_BEGINNING)[n % 2]) for n in range(Effort.crowd)]
    await asyncio.sleep(Effort.seconds)
    for one in opened:
        one.close()
    return f"{len(opened)} connections"


async def garbage(target: Target) -> str:
    """S2: connections with 64 KiB of random bytes in place of TLS, and of frames within it."""
    answered: Counter[str] = Counter()

    async def throw(number: int) -> None:
        caller = await Caller.connect(target.address, _context_of(target) if number % 2 else None)
        caller.writer.write(os.urandom(65_536))
        target.count(65_536)
        answered[await _outcome(caller.reader.read())] += 1
        caller.close()

    await _all(throw, Effort.crowd)
    return _told(answered)


async def without_login(target: Target) -> str:
    """S3: connections with TLS that do not log in: silent ones, and ones that ask for what only a login gives."""
    context, answered, silent = _context_of(target), Counter[str](), []
    for number in range(Effort.crowd // 2):
        with suppress(*LOST):
            caller = await Caller.connect(target.address, context)
            silent.append(caller)
            if number % 2:
                body = share_body(READ, "secret", [(target.topic_id, [ReadPartition(0, 0)])])
                target.count(caller.call_share(READ, body))
                answered[await _outcome(caller.receive())] += 1
    await asyncio.sleep(Effort.seconds / 2)
    for caller in silent:
        caller.close()
    return _told(answered)


async def oversized(target: Target) -> str:
    """S4: frames that say every size that none may have before a login, with 100 kB behind it."""
    context, answered = _context_of(target), Counter[str]()

    async def throw(number: int) -> None:
        caller = await Caller.connect(target.address, context)
        size = _FRAME_SIZES[number % len(_FRAME_SIZES)]
        caller.writer.write(struct.pack(">ihhih", size, 18, 0, 1, -1) + bytes(100_000))
        target.count(100_014)
        answered[await _outcome(caller.receive())] += 1
        caller.close()

    await _all(throw, Effort.crowd // 4)
    return _told(answered)


async def handshakes(target: Target) -> str:
    """S5: TLS from the beginning again and again over four connections at a time, each dropped when it stands."""
    ends_s = time.monotonic() + Effort.seconds
    context = _context_of(target)

    def storm() -> int:
        count = 0
        while time.monotonic() < ends_s:
            with (
                suppress(OSError),
                socket.create_connection(target.address, timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=target.address.host),
            ):
                count += 1
        return count

    counts = await asyncio.gather(*(asyncio.to_thread(storm) for _ in range(4)))
    return f"{sum(counts):,} handshakes"


async def unknown_authorities(target: Target) -> str:
    """S6: clients that show certificates of an authority that the node does not know."""
    context = _context_of(target)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "own.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=admin", "-keyout", str(file.with_suffix(".key")), "-out", str(file)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        context.load_cert_chain(file, file.with_suffix(".key"))
    answered: Counter[str] = Counter()

    async def show(_: int) -> None:
        try:
            caller = await Caller.connect(target.address, context)
            target.count(caller.send(API_VERSIONS, 0, b"", has_tags=False))
            answered[await _outcome(caller.receive())] += 1
            caller.close()
        except LOST:
            answered["refused"] += 1

    await _all(show, Effort.crowd // 2)
    return _told(answered)


async def wrong_passwords(target: Target) -> str:
    """S7: wrong passwords of a user who is there and of ones who are not, over as many connections as may be."""
    assert target.way is not None
    way, context, ends_s = target.way, target.way.context(), time.monotonic() + Effort.seconds
    answered: Counter[str] = Counter()

    async def guess(number: int) -> None:
        while time.monotonic() < ends_s:
            with suppress(*LOST):
                caller = await Caller.connect(target.address, context)
                name = way.user if number % 2 else f"user-{os.urandom(8).hex()}"
                side = ClientSide(MECHANISM, name, "guess")
                await caller.choose(MECHANISM)
                challenge = await caller.say(side.begin())
                answer = await caller.say(side.prove(challenge.message))
                answered["let in" if not answer.error_code else "refused"] += 1
                caller.close()

    await asyncio.gather(*(guess(number) for number in range(Effort.crowd // 8)))
    return _told(answered)


async def replayed_logins(target: Target) -> str:
    """S8: what a client said in a login that succeeded, said again over new connections, and its proof over its own."""
    assert target.way is not None
    way, context = target.way, target.way.context()
    caller = await Caller.connect(target.address, context)
    side = ClientSide(MECHANISM, way.user, way.password)
    first = side.begin()
    await caller.choose(MECHANISM)
    proof = side.prove((await caller.say(first)).message)
    side.check((await caller.say(proof)).message)
    answered: Counter[str] = Counter()

    async def replay(number: int) -> None:
        thief = await Caller.connect(target.address, context)
        with suppress(*LOST, ScramRefused, MalformedBody):
            await thief.choose(MECHANISM)
            if number % 3:
                await thief.say(first)
            answer = await thief.say(proof)
            answered["refused" if answer.error_code else "let in"] += 1
        thief.close()

    await _all(replay, Effort.crowd // 4)
    with suppress(*LOST, MalformedBody):
        answered["again refused" if (await caller.say(proof)).error_code else "again let in"] += 1
    caller.close()
    return _told(answered)


async def long_messages(target: Target) -> str:
    """S9: messages of a login of every size up to that of a frame: names of 60 kB, nonces, attributes without end, no UTF-8."""
    context, answered = _context_of(target), Counter[str]()
    messages = (
        b"n,,n=" + b"a" * 60_000 + b",r=x",
        b"n,,n=a,r=" + b"x" * 60_000,
        b"n,,n=a,r=x" + b",e=1" * 15_000,
        b"n,," + b"," * 60_000,
        b"n,,n=" + "\ufdfa".encode() * 200 + b",r=x",  # of which preparation makes eighteen characters each
        b"p=tls-unique,,n=a,r=x",
        b"y,a=admin,n=a,r=x",
        b"\xff" * 4_096,
        b"",
    )

    async def say(number: int) -> None:
        caller = await Caller.connect(target.address, context)
        with suppress(*LOST, MalformedBody):
            await caller.choose(MECHANISM)
            message = messages[number % len(messages)]
            target.count(len(message))
            answer = await caller.say(message)
            answered["refused" if answer.error_code else "challenged"] += 1
        caller.close()

    await _all(say, Effort.crowd)
    return _told(answered)


def _context_of(target: Target) -> ssl.SSLContext:
    assert target.way is not None
    return target.way.context()


async def _all(attack: Callable[[int], Awaitable[None]], count: int) -> None:
    """Do it at least so often and so long, fifty at a time; a connection that the node drops is no failure of the attack."""
    ends_s = time.monotonic() + Effort.seconds

    async def go_on(first: int) -> None:
        number = first
        while number < count or time.monotonic() < ends_s:
            with suppress(*LOST):
                await attack(number)
            number += _AT_ONCE

    await asyncio.gather(*(go_on(first) for first in range(_AT_ONCE)))


async def _outcome(answer: Awaitable[bytes]) -> str:
    """Say what became of something that must not be answered."""
    try:
        async with asyncio.timeout(20):
            return "ANSWERED" if await answer else "closed"
    except LOST:
        return "closed"


def _told(answered: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(answered.items())) or "nothing"


STRANGERS: Final[tuple[Attack, ...]] = (
    silent_sockets,
    garbage,
    without_login,
    oversized,
    handshakes,
    unknown_authorities,
    wrong_passwords,
    replayed_logins,
    long_messages,
)
