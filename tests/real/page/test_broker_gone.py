"""A cluster without share groups, with one, without its broker, and with it again: one page that says which."""

from __future__ import annotations

import asyncio
import re
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
from tests.real.nodes import FIRST_CLIENT, topic_id_of
from tests.real.page.opened import groups_when, page_of, refusal_when
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, look_until

pytestmark = pytest.mark.real

#: All log partitions are old, or some are, if others are told of later.
AS_IT_WAS: Final = re.compile("Everything is shown as it was at |or are as they were at ")


async def write(kafka: str, group: str, topic_id: bytes, partition: int) -> None:
    """Write a state by Kafka's own share coordinator, with a record that was tried twice."""
    async with connect(kafka.split(","), FIRST_CLIENT) as client:
        await client.initialize(group, topic_id, partition, state_epoch=1, start_offset=0)
        await client.write(group, topic_id, partition, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 2)])


def why_unknown(found: GroupsPage) -> str:
    """Return why lags are not known."""
    return "; ".join(why for row in found.rows for why in row.lag_unknown)


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
            found = await groups_when(page, lambda found: "beyond the end" in why_unknown(found) and not found.unknown)
            assert (lags(found), found.rows[0].topic) == ({"workers": None}, "orders")

            kafka.kill()
            gone = "Kafka cannot be reached"
            found = await groups_when(
                page, lambda found: f"not read on: {gone}" in "".join(found.unknown) and gone in why_unknown(found)
            )
            assert AS_IT_WAS.search(found.unknown[0])
            assert lags(found) == {"workers": None}

            async def cluster_says_so() -> bool:
                return (await page.groups()).unknown[0] in (await page.cluster()).problems[:1]

            await look_until(cluster_says_so, bool, "the page of the cluster says first what that of the groups does")

            kafka.restart()
            await groups_when(page, lambda found: not found.unknown)
            await write(bootstrap, "others", topic_id, 1)
            found = await groups_when(page, lambda found: len(found.rows) == 2)
            assert {row.group for row in found.rows} == {"workers", "others"}


async def test_three_share_coordinators_are_read_and_one_of_them_may_go(tmp_path: Path) -> None:
    with EmbeddedKafka(brokers=3, data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        async with page_of(bootstrap) as page:
            await refusal_when(page, "no share groups yet")
            assert admin.list_topics(timeout=PATIENCE_S).topics == {}, "to look for the state topic makes none"
            admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(PATIENCE_S)
            topic_id, groups = topic_id_of(bootstrap, "orders"), {f"workers-{number}" for number in range(12)}
            for group in groups:
                await write(bootstrap, group, topic_id, 0)
            await groups_when(page, lambda found: lags(found).keys() == groups)
            logs = (await page.cluster()).log_partitions
            assert {log.leader for log in logs if log.states} == {1, 2, 3}

            kafka.kill(2)
            # Two of them are read on.
            found = await groups_when(page, lambda found: {row.is_old for row in found.rows} == {True, False})
            assert lags(found).keys() == groups
            await groups_when(page, lambda found: not found.unknown)
            await write(bootstrap, "later", topic_id, 0)
            found = await groups_when(page, lambda found: "later" in lags(found))
            assert lags(found).keys() == groups | {"later"}
            assert {log.leader for log in (await page.cluster()).log_partitions} == {1, 3}


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
            async with connect(bootstrap, FIRST_CLIENT) as client, asyncio.timeout(PATIENCE_S):
                count = 2
                while not (log := (await page.cluster()).log_partitions[number]).start_offset or log.problem:
                    assert log.partition == number
                    # The broker may have been late, which passes.
                    assert "not within the log" not in log.problem
                    count = count % 100 + 1
                    await client.write("workers", topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, count)])
                    seen |= {row.group for row in (await page.groups()).rows}
                    timeline = await page.timeline("workers", "orders", 0, 0)
                    # All that this moment knows of may be pruned by now, or the broker is late.
                    told = "".join(timeline.unknown)
                    assert timeline.changes or "pruned" in told or "was read up to offset" in told
            assert seen == {"workers"}
            async with page_of(bootstrap) as later:
                await groups_when(later, lambda found: lags(found).keys() == {"workers"})
                later_timeline = await later.timeline("workers", "orders", 0, 0)
                assert later_timeline.reaches_to_offset > 0
                assert any("pruned" in each for each in later_timeline.unknown)

            # A broker that is frozen closes no connection.
            kafka.freeze()
            found = await groups_when(page, lambda found: AS_IT_WAS.search("".join(found.unknown)))
            assert lags(found).keys() == {"workers"}
            frozen = await page.window("workers", "orders", 0)
            assert "This is how it was at " in frozen.unknown[0]
            again = await page.window("workers", "orders", 0)
            assert again.as_of_ms == frozen.as_of_ms
            kafka.thaw()
            await groups_when(page, lambda found: not found.unknown)

            admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
            # Brokers delete the state of a topic with it, sooner or later; until then its lag is unknown.
            found = await groups_when(page, lambda found: all(row.topic is None for row in found.rows))
            assert set(lags(found).values()) <= {None}
            with pytest.raises(PageRefused) as refusal:
                await page.record("orders", 0, 0)
            assert refusal.value.status in (404, 410, 502)
