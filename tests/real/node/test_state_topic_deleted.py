"""A state topic that somebody deletes: the running node says so, and no start makes it again before an admin says so."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from holdfast.console.doctor.findings import Level, Subject
from holdfast.console.doctor.topics import check_log
from holdfast.kafka.librdkafka import create_topic
from holdfast.kafka.librdkafka_types import NewTopic
from tests.real.nodes import DEFAULT_TIMES, NodeProcess, node_processes
from tests.real.running_node import make_settings
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.real

#: A refusal at once must not be taken for one that this time brings.
SETTINGS: Final[dict[str, object]] = {
    **DEFAULT_TIMES,
    "broker_silence_max_ms": 1_000,
    "state_topic_create_timeout_ms": PATIENCE_MS,
}


async def until_deleted(node: NodeProcess, topic: str) -> dict[str, Any]:
    """Wait until a node says that its topic was deleted; returns its status."""
    wanted = f"there is no topic {topic} any more: it was deleted: no broker has led log partitions 0, 1, 2, 3 for"
    deadline_s = time.monotonic() + PATIENCE_S
    while not str((status := await node.status()).get("why_not_ready")).startswith(wanted):
        assert time.monotonic() < deadline_s, f"{status}\n{node.last_words()}"
        await asyncio.sleep(0.1)
    return status


def readiness(port: int) -> tuple[int, dict[str, Any]]:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE_S)
    except urllib.error.HTTPError as answer:
        return answer.code, json.loads(answer.read())
    raise AssertionError("the node is ready")


async def test_a_node_does_not_make_a_deleted_topic_again_before_an_admin_says_so(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**SETTINGS)
        await node.start()
        deleted_id = (await node.status())["topic_id"]
        admin = AdminClient({"bootstrap.servers": kafka})
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, PATIENCE_S)
        status = await until_deleted(node, topic)
        code, ready = await asyncio.to_thread(readiness, status["http_port"])
        assert (code, f"there is no topic {topic} any more: it was deleted" in ready["why_not_ready"]) == (503, True)
        await wait_until(lambda: any(line["event"] == "leaders_lost" for line in node.events()), "a line")
        lost = next(line for line in node.events() if line["event"] == "leaders_lost")
        assert lost["why"] == f"there is no topic {topic} any more: it was deleted"

        node.kill()
        node.launch()
        assert await node.wait_exit() == 3, node.last_words()
        refused = node.events()[-2]
        assert refused["event"] == "node_start_failed"
        assert f"The state topic {topic} does not exist, and did before: " in refused["why"]
        assert "`holdfast serve --new-state-topic`, once" in refused["why"]

        allowed = make_node(**SETTINGS, new_state_topic=True)
        await allowed.start()
        assert (await allowed.status())["topic_id"] != deleted_id
        [made] = [line for line in allowed.events() if line["event"] == "state_topic_made"]
        assert (made["level"], made["topic_id"]) == ("warning", (await allowed.status())["topic_id"])


@pytest.mark.parametrize("has_records", [False, True], ids=["made ahead", "left"])
async def test_a_snapshot_topic_says_that_there_was_a_state_topic_when_something_was_written_to_it(
    kafka: str, topic: str, tmp_path: Path, has_records: bool
) -> None:
    snapshot_topic = f"{topic}-snapshots"
    made = NewTopic(snapshot_topic, 4, 1, config={"cleanup.policy": "compact"})
    assert create_topic(AdminClient({"bootstrap.servers": kafka}), made, PATIENCE_MS) is None
    if has_records:
        producer = Producer({"bootstrap.servers": kafka})
        producer.produce(snapshot_topic, b"value", b"key", 3)
        assert producer.flush(PATIENCE_S) == 0
    settings = make_settings(kafka, topic, **{"snapshots.topic": snapshot_topic})
    [found] = await check_log(Subject(settings, "", PATIENCE_MS))
    assert found.level is (Level.WRONG if has_records else Level.RIGHT)
    assert found.remedy.endswith("holdfast serve --new-state-topic, once") is has_records
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**SETTINGS, **{"snapshots.topic": snapshot_topic})
        if not has_records:
            await node.start()
            return
        node.launch()
        assert await node.wait_exit() == 3, node.last_words()
        why = node.events()[-2]["why"]
        assert why.startswith(
            f"The state topic {topic} does not exist, and did before: the topic {snapshot_topic} has snapshots of it."
        )
