"""The page's numbers on a stock Kafka with a real share group, beside those of the command line and of Kafka's own tool."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.page.source import to_json
from tests.real.page.opened import by_cli, by_kafkas_tool, page_of, until_shown
from tests.real.page.stuck import DELIVERIES, PRODUCED, Stuck, produce
from tests.waiting import PATIENCE_S, look_until

pytestmark = pytest.mark.real


async def test_page_and_tools_agree_on_a_group_with_a_stuck_record(kafka: str, stuck: Stuck) -> None:
    async with page_of(kafka) as page:
        await until_shown(page, stuck.group)
        view = to_json(await page.group(stuck.group))
        groups = await page.groups()
        window = await page.window(stuck.group, stuck.topic, stuck.record.partition)

        async def has_no_members() -> bool:
            [group] = await by_cli(kafka, "groups", "kafka", "describe", stuck.group)
            return not group["members"]

        # The consumer may leave a moment after its end; the page, had it joined, would stay.
        await look_until(has_no_members, bool, "nobody has joined, the page neither")

    described = await by_cli(kafka, "groups", "describe", stuck.group)
    assert described["states"], "Kafka keeps a state"
    assert {name: view[name] for name in described} == described

    [listed] = [row for row in await by_cli(kafka, "groups", "list") if row["group"] == stuck.group]
    assert {name: view[name] for name in listed} == listed
    [row] = [row for row in groups.rows if row.group == stuck.group]
    assert (row.topic, row.lag, row.in_flight) == (stuck.topic, listed["lag"], listed["in_flight"])
    assert row.delivery_count_max == listed["delivery_count_max"] == DELIVERIES

    told = await by_kafkas_tool(kafka, stuck.group)
    assert told == {each["partition"]: (each["start_offset"], each["lag"]) for each in described["states"]}

    [found] = [each for each in window.ranges if each.delivery_count == DELIVERIES]
    assert found.first_offset <= stuck.record.offset <= found.last_offset
    assert (found.state, window.log_end) == ("available", window.row["end_offset"])
    assert row.oldest is not None
    assert row.oldest.written_ms is not None
    assert sum(count or 0 for count in row.finished_by_minute) > 0


async def test_the_timeline_of_a_stuck_record_has_all_its_deliveries(kafka: str, stuck: Stuck) -> None:
    place = stuck.topic, stuck.record.partition, stuck.record.offset
    async with page_of(kafka) as page:
        await until_shown(page, stuck.group)
        timeline = await page.timeline(stuck.group, *place)
        record = await page.record(*place)

        async def is_whole() -> bool:
            view = await page.cluster()
            logs = view.log_partitions
            return not view.problems and all(log.read_to == log.end_offset and not log.problem for log in logs)

        # Others write to the topic all the time.
        await look_until(is_whole, bool, "all of the state topic is read, and nothing is wrong")
        view = await page.cluster()
    assert [(each.state, each.delivery_count) for each in timeline.changes] == [
        ("available", count) for count in range(1, DELIVERIES + 1)
    ]
    assert timeline.now == timeline.changes[-1]
    times = [each.at_ms for each in timeline.changes]
    assert times == sorted(times)
    assert record.value is not None
    assert record.value.data.decode() == stuck.record.value
    assert [name for name, _ in record.headers] == ["source"]
    dumped = await by_cli(kafka, "dump", "__share_group_state", "--partition", str(timeline.log_partition))
    times_by_offset = {each["offset"]: each["timestamp_ms"] for each in dumped if each["group_id"] == stuck.group}
    assert {each.log_offset: each.at_ms for each in timeline.changes}.items() <= times_by_offset.items()
    assert view.state_topic == "__share_group_state"


async def test_new_records_are_shown_while_it_is_looked_at(kafka: str, stuck: Stuck) -> None:
    async with page_of(kafka) as page:
        await until_shown(page, stuck.group)

        async def lag() -> int | None:
            return next(row.lag for row in (await page.groups()).rows if row.group == stuck.group)

        before, as_of_ms = await lag(), (await page.groups()).as_of_ms
        assert before is not None
        produce(kafka, stuck.topic)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in page.changed():
                if await lag() == before + PRODUCED:
                    break
        assert (await page.groups()).as_of_ms > as_of_ms
