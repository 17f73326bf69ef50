"""Histories of one share partition, as clients saw them, and whether they are linearizable: as if each operation took effect at one moment.

Two parts of a state are looked at, because each has a rule that is exact and needs no search.
A start offset is a register: the last write holds. State batches of offsets that are written once are a set that only grows.
No value is written twice, so a read says which write it saw.

A write without an answer, or with an error, may have taken effect, or may still do so at any later moment: its end is `NEVER`.
A read without an answer says nothing, and is left out.

Source: Herlihy and Wing, "Linearizability" (1990); Gibbons and Korach, "Testing shared memories" (1997), for the register.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

#: The end of a write of which nobody knows whether it took effect.
NEVER: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A value that a client wrote, from when it was sent until it was answered, by one clock."""

    began_s: float
    ended_s: float
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a client found, and from when to when it looked, by the clock of the writes."""

    began_s: float
    ended_s: float
    #: The value of a register; of a set, the number whose bits of the set's values are 1 (`bits`), for a long history has many such.
    found: int


@dataclass(frozen=True, slots=True)
class _Zone:
    """A value of a register and the moments at which it must have held: between the first end and the last beginning of what knew it.

    Where these are in this order, it held all the time between them; else it held for a moment at least, somewhere between.
    """

    value: int
    first_end_s: float
    last_began_s: float

    @property
    def is_forward(self) -> bool:
        return self.first_end_s < self.last_began_s


def register_problem(initial: int, writes: Iterable[Write], reads: Iterable[Read]) -> str | None:
    """Return why the history of a register is not linearizable, None if it is.

    Args:
        initial: what it held before all operations.
    """
    written = {write.value: write for write in writes}
    written[initial] = Write(began_s=-math.inf, ended_s=-math.inf, value=initial)
    saw: dict[int, list[Read]] = {}
    for read in reads:
        value = read.found
        if value not in written:
            return f"a read from {read.began_s} found {value}, which nobody wrote"
        if read.ended_s < written[value].began_s:
            return f"a read until {read.ended_s} found {value}, whose write began at {written[value].began_s}"
        saw.setdefault(value, []).append(read)
    zones = []
    for value, write in written.items():
        known: list[Write | Read] = [write, *saw.get(value, [])]
        if write.ended_s == NEVER and len(known) == 1:
            continue  # It may have had no effect.
        zones.append(_Zone(value, min(each.ended_s for each in known), max(each.began_s for each in known)))
    forward = sorted((zone for zone in zones if zone.is_forward), key=lambda zone: zone.first_end_s)
    for one, other in pairwise(forward):
        if other.first_end_s < one.last_began_s:
            return f"{one.value} was held until {one.last_began_s}, and {other.value} from {other.first_end_s} on"
    return _moment_problem(forward, [zone for zone in zones if not zone.is_forward])


def _moment_problem(forward: Sequence[_Zone], moments: Iterable[_Zone]) -> str | None:
    """Return which value would have had its moment while another one was held all the time; `forward` is disjoint and in order."""
    holding = iter(forward)
    held = next(holding, None)
    for zone in sorted(moments, key=lambda zone: zone.last_began_s):
        while held is not None and held.last_began_s < zone.last_began_s:
            held = next(holding, None)
        if held is not None and held.first_end_s < zone.last_began_s and zone.first_end_s < held.last_began_s:
            return (
                f"{zone.value} had its moment between {zone.last_began_s} and {zone.first_end_s}, "
                f"and {held.value} was held from {held.first_end_s} until {held.last_began_s}"
            )
    return None


def set_problem(writes: Iterable[Write], reads: Iterable[Read]) -> str | None:
    """Return why the history of a set that only grows is not linearizable, None if it is; it is empty before all operations.

    Each read is given the earliest moment that it can have had: what is missing in it was written later than that.
    """
    by_value = {write.value: write for write in writes}
    ends = deque(sorted((write.ended_s, write.value) for write in by_value.values()))
    written, before, moment_s = bits(by_value), 0, -math.inf
    for read in sorted(reads, key=lambda read: (read.found.bit_count(), read.began_s)):
        if gone := before & ~read.found:
            return f"a read from {read.began_s} lacks {_some(gone)}, which one that found less had"
        if unknown := read.found & ~written:
            return f"a read from {read.began_s} found {_some(unknown)}, which nobody wrote"
        moment_s = max([moment_s, read.began_s, *(by_value[value].began_s for value in values(read.found & ~before))])
        if moment_s > read.ended_s:
            return f"a read until {read.ended_s} found what was there from {moment_s} on"
        while ends and read.found >> ends[0][1] & 1:
            ends.popleft()
        if ends and ends[0][0] < moment_s:
            return f"a read from {read.began_s} until {read.ended_s} lacks {ends[0][1]}, answered at {ends[0][0]}"
        before = read.found
    return None


def bits(some: Iterable[int]) -> int:
    """Return the number whose bits of these values, none of them negative, are 1."""
    found = 0
    for value in some:
        found |= 1 << value
    return found


def bits_between(first: int, last: int) -> int:
    """Return the number whose bits from one value to another, both inclusive, are 1."""
    return ((1 << last - first + 1) - 1) << first


def values(found: int) -> Iterator[int]:
    """Yield the values whose bits are 1, ascending."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def _some(found: int) -> str:
    return ", ".join(map(str, islice(values(found), 5)))
