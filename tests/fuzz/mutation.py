"""Inputs made from others without a word about what a decoder does with them: bits, lengths, cuts, repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

#: Numbers at which lengths, counts and offsets change their meaning.
_EDGES = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", bytes(8), b"\x80" * 12)


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _cut(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data))]


def _leave_out(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start + random.randint(1, 8) :]


def _put_edge(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at, edge = random.randrange(len(data)), random.choice(_EDGES)
    return data[:at] + edge + data[at + random.choice((0, len(edge))) :]


def _repeat(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start : start + random.randint(1, 16)] * random.randint(2, 20) + data[start:]


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return data[: random.randrange(len(data))] + other[random.randrange(len(other) or 1) :]


_MUTATIONS: Sequence[Callable[[Random, bytes, Sequence[bytes]], bytes]] = (
    _flip,
    _cut,
    _leave_out,
    _put_edge,
    _repeat,
    _splice,
)


def mutate(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Return an input that is like one of the seeds."""
    data = random.choice(seeds)
    for _ in range(random.randint(1, 4)):
        if data:
            data = random.choice(_MUTATIONS)(random, data, seeds)
    return data
