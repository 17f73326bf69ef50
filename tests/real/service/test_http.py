"""The HTTP port of a node on a real broker: every path, an outage, and what a scrape costs the writes beside it."""

from __future__ import annotations

import asyncio
import os
from time import perf_counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.daemon.http.openapi import FIXED_PATHS
from holdfast.daemon.http.queries import PREFIX
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from tests.real.group_numbers import assert_http_has_the_numbers_of_the_cli
from tests.real.nodes import topic_id_of
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.world.http import get

pytestmark = pytest.mark.real

GROUP = "group"
#: For the figures of docs/watch.md: `HOLDFAST_HTTP_WRITES=3000 HOLDFAST_HTTP_SERIES=5000`.
WRITES = int(os.environ.get("HOLDFAST_HTTP_WRITES", "50"))
SERIES = int(os.environ.get("HOLDFAST_HTTP_SERIES", "100"))


async def test_a_node_shows_over_http_what_its_commands_show(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    topic_id = topic_id_of(kafka, new_topic(1))
    async with running(make_settings(kafka, topic)) as node:
        port = node.node.http_port
        assert port is not None
        await node.client.initialize(GROUP, topic_id, 0, state_epoch=1, start_offset=3)
        for page in FIXED_PATHS:
            assert (await get(port, page.path)).status == 200, page.path
        ready = (await get(port, "/ready")).json()
        assert (ready["is_ready"], [row["state"] for row in ready["log_partitions"]]) == (True, ["serving"] * 2)
        for name in ("members", "settings", "config", "share-partitions"):
            assert (await get(port, PREFIX + name)).json() == await node.client.admin(name), name
        for name in ("status", "metrics"):  # their numbers change from one moment to the next
            assert (await get(port, PREFIX + name)).json().keys() == (await node.client.admin(name)).keys()
        for name in ("partitions", "readers"):
            shown, answer = (await get(port, PREFIX + name)).json(), await node.client.admin(name)
            assert [row.keys() for row in shown] == [row.keys() for row in answer] != []
        await node.client.initialize("other", topic_id, 0, state_epoch=1, start_offset=0)
        await node.client.write("other", topic_id, 0, 1, 0, 0, [StateBatch(0, 4, AVAILABLE, 2)])
        await assert_http_has_the_numbers_of_the_cli(node.address, port, {GROUP, "other"})
        page = (await get(port, f"{PREFIX}share-partitions?group={GROUP}")).json()
        assert [row["start_offset"] for row in page["share_partitions"]] == [3]
        found = text_string_to_metric_families((await get(port, "/metrics")).body.decode())
        values = {sample.name: sample.value for metric in found for sample in metric.samples if not sample.labels}
        answer = await node.client.admin("metrics")
        for name in (
            "holdfast_records_committed_total",
            "holdfast_checkpoints_appended_total",
            "holdfast_parked_writes",
        ):
            assert values[name] == answer[name]
        await measure(node, topic_id, port)


async def measure(node: RunningNode, topic_id: bytes, port: int) -> None:
    """Write alone, and beside scrapes and health calls without a pause; print the times of both."""
    for number in range(SERIES):
        node.node.context.registry.gauge("scraped", "Scraped.", number=number)
    alone, _ = await write_beside(node, topic_id, None)
    beside, took = await write_beside(node, topic_id, port)
    assert took["/metrics"], "it was scraped meanwhile"
    assert took["/ready"]
    for name, times_ms in {"writes alone": alone, "writes beside scrapes": beside, **took}.items():
        ranked = sorted(times_ms)
        quantiles = (ranked[len(ranked) // 2], ranked[len(ranked) * 99 // 100])
        print(f"{name}: {len(ranked)}, p50 {quantiles[0]:.2f} ms, p99 {quantiles[1]:.2f} ms")


async def write_beside(
    node: RunningNode, topic_id: bytes, port: int | None
) -> tuple[list[float], dict[str, list[float]]]:
    """Return the times of writes, and by path those of requests that ran beside them."""
    took: dict[str, list[float]] = {"/metrics": [], "/ready": []}

    async def ask(path: str) -> None:
        assert port is not None
        while True:
            began_s = perf_counter()
            assert (await get(port, path)).status == 200
            took[path].append((perf_counter() - began_s) * 1_000)

    asking = [asyncio.create_task(ask(path)) for path in took] if port is not None else []
    times_ms = []
    try:
        number = 0
        while number < WRITES or (not all(took.values()) and asking):
            began_s = perf_counter()
            batch = StateBatch(3 + number, 3 + number, ACKNOWLEDGED, 1)
            await node.client.write(GROUP, topic_id, 0, 1, 0, -1, [batch])
            times_ms.append((perf_counter() - began_s) * 1_000)
            number += 1
            for task in asking:
                if task.done():
                    task.result()
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return times_ms, took
