"""The times of the oldest records: each is looked up in its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from holdfast.kafka.topics.record_times import RecordTimes
from holdfast.page.ages import Ages, Wanted


class Times:
    """Brokers that know the times of some records, and let nobody read the others."""

    def __init__(self, known: Mapping[Wanted, int]) -> None:
        self.known = known
        self.asked: list[dict[tuple[bytes, int], int]] = []

    async def look_up(self, offsets: Mapping[tuple[bytes, int], int]) -> dict[tuple[bytes, int], int]:
        self.asked.append(dict(offsets))
        return {
            place: self.known[*place, offset] for place, offset in offsets.items() if (*place, offset) in self.known
        }


def looking(known: Mapping[Wanted, int]) -> tuple[Ages, Times]:
    times = Times(known)
    return Ages(cast("RecordTimes", times)), times


async def test_records_whose_times_nobody_knows_keep_no_other_from_its_turn() -> None:
    wanted = [(b"topic", partition, 7) for partition in range(250)]
    ages, times = looking(dict.fromkeys(wanted[200:], 1000))
    for _ in range(3):
        await ages.look_up(wanted)
    assert ages.written == dict.fromkeys(wanted[200:], 1000)
    assert max(map(len, times.asked)) == 100
    for _ in range(2):
        await ages.look_up(wanted)
    assert {place for asked in times.asked[3:] for place in asked} == {each[:2] for each in wanted[:200]}


async def test_two_records_of_one_partition_have_their_turns() -> None:
    wanted = [(b"topic", 0, 3), (b"topic", 0, 9)]
    ages, times = looking({each: each[2] for each in wanted})
    await ages.look_up(wanted)
    await ages.look_up(wanted)
    assert ages.written == {(b"topic", 0, 3): 3, (b"topic", 0, 9): 9}
    await ages.look_up(wanted)
    assert len(times.asked) == 2
