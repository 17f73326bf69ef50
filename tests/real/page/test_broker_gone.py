"""A cluster without share groups, with one, without its broker, and with it again: one page that says which."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.client import connect
from holdfast.page.source import GroupsPage
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
            assert "is not read on" in found.unknown[0]
            assert lags(found) == {"workers": None}
            assert "Kafka cannot be reached" in next(iter(found.rows[0].lag_unknown))
            assert (await page.cluster()).problems[0] == found.unknown[0]

            kafka.restart()
            await groups_when(page, lambda found: not found.unknown)
            await write(bootstrap, "others", topic_id, 1)
            found = await groups_when(page, lambda found: len(found.rows) == 2)
            assert {row.group for row in found.rows} == {"workers", "others"}
