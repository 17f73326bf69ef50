"""A cluster without share groups, with one, without its broker, and with it again: one page that says which."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.client import connect
from holdfast.page.source import GroupsPage, PageRefused
from holdfast.records.share.batches import AVAILABLE, StateBatch
from tests.real.nodes import topic_id_of
from tests.real.page.opened import groups_when, page_of, refusal_when
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real


async def write(kafka: str, group: str, topic_id: bytes, partition: int) -> None:
    """Write a state by Kafka's own share coordinator, with a record that was tried twice."""
    async with connect(kafka) as client:
        await client.initialize(group, topic_id, partition, state_epoch=1, start_offset=0)
        await client.write(group, topic_id, partition, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 2)])


def lags(found: GroupsPage) -> dict[str, int | None]:
    return {row.group: row.lag for row in found.rows}


async def test_a_page_says_what_it_knows_while_brokers_come_and_go(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(PATIENCE_S)
        topic_id = topic_id_of(bootstrap, "orders")
        async with page_of(bootstrap) as page:
            refusal = await refusal_when(page, "no share groups yet")
            assert refusal.status == 404

            # An offset that the topic does not have yet makes the lag unknown, and is no reason for zero.
            await write(bootstrap, "workers", topic_id, 0)
            found = await groups_when(page, lambda found: found.rows)
            assert lags(found) == {"workers": None}
            assert "beyond the end" in next(iter(found.rows[0].lag_unknown))
            assert (found.unknown, found.rows[0].topic) == ((), "orders")

            kafka.kill()
            found = await groups_when(page, lambda found: found.unknown)
            assert "not read on: Kafka cannot be reached" in found.unknown[0]
            assert "or are as they were at " in found.unknown[0]
            assert lags(found) == {"workers": None}
            assert "Kafka cannot be reached" in next(iter(found.rows[0].lag_unknown))
            assert (await page.cluster()).problems[0] == found.unknown[0]

            kafka.restart()
            await groups_when(page, lambda found: not found.unknown)
            await write(bootstrap, "others", topic_id, 1)
            found = await groups_when(page, lambda found: len(found.rows) == 2)
            assert {row.group for row in found.rows} == {"workers", "others"}


#: A broker that writes snapshots soon, and prunes what they make redundant.
PRUNES: Final = {
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
    "share.coordinator.state.topic.prune.interval.ms": "100",
}


async def test_a_page_lives_through_a_pruned_log_and_a_frozen_broker(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA, properties=PRUNES) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
        topic_id = topic_id_of(bootstrap, "orders")
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", "one")
        assert producer.flush(PATIENCE_S) == 0
        async with page_of(bootstrap) as page:
            await write(bootstrap, "workers", topic_id, 0)
            await groups_when(page, lambda found: lags(found).keys() == {"workers"})
            number = (await page.window("workers", "orders", 0)).row["log_partition"]

            # Pruned while it is followed.
            seen = set[str]()
            async with connect(bootstrap) as client, asyncio.timeout(PATIENCE_S):
                count = 2
                while not (log := (await page.cluster()).log_partitions[number]).start_offset:
                    assert (log.partition, log.problem) == (number, "")
                    count = count % 100 + 1
                    await client.write("workers", topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, count)])
                    seen |= {row.group for row in (await page.groups()).rows}
                    timeline = await page.timeline("workers", "orders", 0, 0)
                    assert timeline.changes
            assert seen == {"workers"}
            async with page_of(bootstrap) as later:
                await groups_when(later, lambda found: lags(found).keys() == {"workers"})
                later_timeline = await later.timeline("workers", "orders", 0, 0)
                assert later_timeline.reaches_to_offset > 0
                assert any("pruned" in each for each in later_timeline.unknown)

            # A broker that is frozen closes no connection.
            kafka.freeze()
            found = await groups_when(page, lambda found: found.unknown)
            assert "or are as they were at " in found.unknown[0]
            assert lags(found).keys() == {"workers"}
            frozen = await page.window("workers", "orders", 0)
            assert "This is how it was at " in frozen.unknown[0]
            again = await page.window("workers", "orders", 0)
            assert again.as_of_ms == frozen.as_of_ms
            kafka.thaw()
            await groups_when(page, lambda found: not found.unknown)

            admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
            # Brokers delete the state of a topic with it, sooner or later; until then its lag is unknown.
            found = await groups_when(page, lambda found: set(lags(found).values()) <= {None})
            assert all(row.topic is None for row in found.rows)
            with pytest.raises(PageRefused) as refusal:
                await page.record("orders", 0, 0)
            assert refusal.value.status in (404, 410, 502)
