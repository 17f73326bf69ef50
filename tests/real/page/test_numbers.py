"""The numbers of one share group beside each other: of a stock Kafka's own, and of a node that was given the same state."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any, Final
from urllib.parse import quote, urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.page.source import to_json
from holdfast.records.share.batches import STATE_NAMES, StateBatch
from tests.real.group_numbers import assert_http_has_the_numbers_of_the_cli
from tests.real.page.opened import by_cli, by_kafkas_tool, page_of, until_shown
from tests.real.page.stuck import DELIVERIES, Stuck
from tests.real.running_node import make_settings, running
from tests.waiting import PATIENCE_S
from tests.world.http import get

pytestmark = pytest.mark.real

_STATES: Final = {name: number for number, name in STATE_NAMES.items()}
#: The numbers of a share partition, but for those that say who holds its state.
_OF_STATES: Final = (
    *("topic", "partition", "start_offset", "oldest_unfinished_offset", "end_offset", "lag", "in_flight", "finished"),
    "delivery_counts",
)


def numbers_of(described: dict[str, Any]) -> tuple[object, ...]:
    """Return the numbers of a group as `groups describe --json` has them, and as the page and the API have them alike."""
    states = [tuple(each[name] for name in _OF_STATES) for each in described["states"]]
    return described["lag"], described["in_flight"], described["delivery_count_max"], sorted(map(repr, states))


def cells_of(html: str, group: str) -> dict[str, str]:
    """Return the cells of a group's row of the first page, as they are read."""
    [row] = [row for row in re.findall(r"<tr role=\"row\".*?</tr>", html, re.DOTALL) if f"<bdi>{group}</bdi>" in row]
    cells = re.findall(r'data-label="([^"]+)">(.*?)</td>', row, re.DOTALL)
    return {name: unescape(re.sub(r"<[^>]+>", "", cell)).strip() for name, cell in cells}


async def by_prometheus(port: int, group: str) -> dict[str, float]:
    """Return the numbers of a group that a scrape gets, its delivery counts as one number, the highest."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families((await get(port, "/metrics")).body.decode()):
        for sample in family.samples:
            if sample.labels.get("group") != group:
                continue
            if "deliveries" in sample.labels:
                if sample.value:
                    found["deliveries"] = max(found.get("deliveries", 0), float(sample.labels["deliveries"]))
            else:
                found[sample.name.removeprefix("holdfast_group_")] = sample.value
    return found


async def test_all_that_tell_of_a_group_tell_the_same(kafka: str, topic: str, stuck: Stuck) -> None:
    async with page_of(kafka) as page:
        await until_shown(page, stuck.group)
        stock = to_json(await page.group(stuck.group))
        windows = [await page.window(stuck.group, stuck.topic, row["partition"]) for row in stock["states"]]
    wanted = numbers_of(await by_cli(kafka, "groups", "describe", stuck.group))
    assert numbers_of(stock) == wanted
    told = await by_kafkas_tool(kafka, stuck.group)
    assert told == {each["partition"]: (each["start_offset"], each["lag"]) for each in stock["states"]}

    settings = make_settings(kafka, topic, group_metrics_interval_ms=100)
    async with running(settings) as node:
        for window in windows:
            assert window.start_offset is not None
            place = stuck.group, parse_topic_id(window.topic_id), window.partition
            await node.client.initialize(*place, state_epoch=1, start_offset=window.start_offset)
            batches = [
                StateBatch(each.first_offset, each.last_offset, _STATES[each.state], each.delivery_count)
                for each in window.ranges
            ]
            await node.client.write(*place, 1, 0, -1, batches)
        port = node.node.http_port
        assert port is not None
        await assert_http_has_the_numbers_of_the_cli(node.address, port, {stuck.group})
        assert numbers_of((await get(port, f"/api/v1/groups/{quote(stuck.group)}")).json()) == wanted
        by_page = await get(port, f"/api/v1/group?{urlencode({'group': stuck.group})}")
        assert numbers_of(by_page.json()) == wanted

        lag, in_flight, delivery_count_max, _ = wanted
        assert delivery_count_max == DELIVERIES
        # They are renewed every tenth of a second, and the first ones may be of the time before the writes.
        scraped: dict[str, float] = {}
        async with asyncio.timeout(PATIENCE_S):
            while (scraped.get("lag_records"), scraped.get("deliveries")) != (lag, delivery_count_max):
                scraped = await by_prometheus(port, stuck.group)
        assert scraped["records_in_flight"] == in_flight
        cells = cells_of((await get(port, "/")).body.decode(), stuck.group)
        assert cells["Topic"] == stuck.topic
        assert [int(cells[name]) for name in ("Lag", "In flight", "Most deliveries")] == [*wanted[:3]]
        assert int(cells["Given up"]) == scraped["records_archived"]
