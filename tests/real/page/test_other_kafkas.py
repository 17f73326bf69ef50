"""`holdfast page` on other releases of Apache Kafka: those with share groups, also as a preview, and one without.

By default the newest release is tried, which other tests have fetched; PAGE_KAFKAS=all tries the newest of each.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka, find_java
from holdfast.jars.cache import KAFKA_VERSION, KAFKA_VERSION_WITHOUT_SHARE_GROUPS, kafka_home
from tests.interop.gateway.clients import OTHER_JAVA_RELEASES, PYTHON, Client
from tests.interop.newest_kafka import NEWEST_VERSION, newest_kafka
from tests.real.page.opened import answer_when, by_cli, page_command
from tests.real.page.stuck import DELIVERIES, PARTITIONS, make_stuck
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

#: The release in which share groups are a preview, which an admin turns on.
_PREVIEW: Final = "4.1.2"
_PREVIEW_PROPERTIES: Final = {
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "group.share.enable": "true",
}
_ALL: Final = (_PREVIEW, "4.2.2", KAFKA_VERSION, NEWEST_VERSION)
RELEASES: Final = _ALL if os.environ.get("PAGE_KAFKAS") == "all" else (NEWEST_VERSION,)


@contextmanager
def kafka_of(version: str, data_dir: Path) -> Iterator[str]:
    """Give a Kafka of a release, with two share groups' state in any of 50 log partitions."""
    unpacked = newest_kafka() if version == NEWEST_VERSION else None
    properties = _PREVIEW_PROPERTIES if version == _PREVIEW else {}
    with EmbeddedKafka(
        version=version, unpacked_kafka=unpacked, data_dir=data_dir, properties=properties, jvm_options=QUICK_KAFKA
    ) as kafka:
        if version == _PREVIEW:
            turn_on(kafka.bootstrap_servers)
        yield kafka.bootstrap_servers


def turn_on(kafka: str) -> None:
    """Turn the preview on, as an admin does."""
    command = [find_java(), *QUICK_KAFKA, "-cp", f"{kafka_home(version=_PREVIEW)}/*"]
    tool = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", kafka)
    upgrade = ("upgrade", "--feature", "share.version=1")
    told = subprocess.run([*command, *tool, *upgrade], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


async def ask(port: int, query: str, holds: Callable[[Any], object] = lambda _: True, /, **parameters: object) -> Any:
    """Return an answer of the page, when it has read the state topic and a condition holds of what it shows."""
    path = f"/api/v1/{query}?{urlencode(parameters)}"
    return (await answer_when(port, path, lambda answer: answer.status == 200 and holds(answer.json()))).json()


@pytest.mark.parametrize("version", RELEASES)
async def test_a_stuck_record_and_its_timeline_are_found(version: str, tmp_path: Path) -> None:
    with kafka_of(version, tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(PATIENCE_S)
        # Librdkafka's share consumer is given nothing by the preview.
        client = Client("java", OTHER_JAVA_RELEASES[0]) if version == _PREVIEW else PYTHON
        groups = [await asyncio.to_thread(make_stuck, kafka, "orders", client) for _ in range(2)]
        with page_command(kafka) as (port, _):
            found = await ask(port, "group-topics")
            assert {row["group"]: row["delivery_count_max"] for row in found["rows"]} == {
                each.group: DELIVERIES for each in groups
            }
            for each in groups:
                where = {"group": each.group, "topic": "orders", "partition": each.record.partition}
                described = await by_cli(kafka, "groups", "describe", each.group)
                view = await ask(port, "group", lambda view: view["lag"] is not None, group=each.group)
                assert {name: view[name] for name in described} == described
                window = await ask(port, "window", **where)
                [tried] = [span for span in window["ranges"] if span["delivery_count"] == DELIVERIES]
                assert tried["first_offset"] <= each.record.offset <= tried["last_offset"]
                timeline = await ask(port, "timeline", **where, offset=each.record.offset)
                assert [change["delivery_count"] for change in timeline["changes"]] == [*range(1, DELIVERIES + 1)]
                record = await ask(
                    port, "record", topic="orders", partition=where["partition"], offset=each.record.offset
                )
                assert record["value"]["is_whole"]
            cluster = await ask(port, "cluster", lambda view: not view["problems"])
            assert (cluster["state_topic"], len(cluster["log_partitions"])) == ("__share_group_state", 50)


async def test_a_kafka_without_share_groups_is_said_to_be_too_old(tmp_path: Path) -> None:
    version = KAFKA_VERSION_WITHOUT_SHARE_GROUPS
    with (
        EmbeddedKafka(version=version, data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka,
        page_command(kafka.bootstrap_servers) as (port, _),
    ):
        answer = await answer_when(port, "/api/v1/group-topics", lambda answer: answer.status == 404)
        told = "This Kafka is too old for share groups: brokers of Apache Kafka 4.1 and newer have them."
        assert answer.json()["error"] == told
