"""The holes that freed buffers leave in the heap, and when they are given back."""

import subprocess
import sys
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.records import heap
from holdfast.kafka.records.heap import Heap

MAX = 256


class Allocator:
    """A worst case: nothing that was freed is taken again before it is given back."""

    def __init__(self) -> None:
        self.heap = Heap(MAX, self.trim)
        self.held = self.holes = self.trims = 0

    def trim(self) -> None:
        self.trims, self.holes = self.trims + 1, 0

    def change(self, size: int) -> None:
        self.held += size
        if size < 0:
            self.holes -= size
            self.heap.shrink(self.held)
        else:
            self.heap.grow(self.held)


def test_holes_are_given_back_when_they_would_not_fit_beside_what_comes() -> None:
    allocator = Allocator()
    for size in (240, -100):
        allocator.change(size)
    for _ in range(16):
        allocator.change(1)
    assert allocator.trims == 0
    allocator.change(1)
    assert (allocator.trims, allocator.holes, allocator.held) == (1, 0, 157)


def test_holes_of_a_room_that_is_far_from_full_are_left_alone() -> None:
    allocator = Allocator()
    for _ in range(1_000):
        for size in (100, -90, 20, -30):
            allocator.change(size)
    assert allocator.trims == 0


def test_small_holes_of_a_full_room_are_left_alone() -> None:
    allocator = Allocator()
    allocator.change(MAX)
    for _ in range(1_000):
        for size in (-31, 31):
            allocator.change(size)
    assert allocator.trims == 0


@given(st.lists(st.integers(min_value=0, max_value=MAX), max_size=60))
def test_after_much_was_freed_it_and_what_came_since_fit_the_room(levels: list[int]) -> None:
    allocator, most, least = Allocator(), 0, 0
    for level in levels:
        trims = allocator.trims
        allocator.change(level - allocator.held)
        if allocator.trims > trims or (level > most and most - least < MAX // 8):
            most = least = level
        least = min(least, level)
        assert most - least < MAX // 8 or most - least + level <= MAX or level == least


@pytest.mark.skipif(heap._TRIM is None, reason="the C library has no malloc_trim")
def test_memory_of_a_process_stays_within_the_room() -> None:
    # A process of its own, for its heap has no holes of others. The first buffer tells the library to keep what is freed.
    code = """
        import asyncio, os
        from holdfast.kafka.records.room import RecordRoom

        def resident_mib():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

        async def main():
            room = RecordRoom(64 << 20)
            room.make_buffer(8 << 20)
            before, kept, buffers = resident_mib(), [], []
            for _ in range(240):
                buffers.append(room.make_buffer(256 << 10))
                kept.append(bytearray(1_000))
            buffers.clear()
            for _ in range(15):
                buffers.append(room.make_buffer(4 << 20))
                if room._heap._trimming:
                    room._heap._trimming.join()
            print(resident_mib() - before)

        asyncio.run(main())
    """
    grown_mib = float(subprocess.run([sys.executable, "-c", dedent(code)], check=True, capture_output=True).stdout)
    assert 60 <= grown_mib < 75
