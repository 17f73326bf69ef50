"""Apache Kafka's own tool reads our topic, and sees there what Kafka's coordinator writes after the same calls."""

from contextlib import closing
from typing import Any

import pytest

from holdfast.console.sources.log_reader import LogReader
from tests.interop.conftest import Coordinator, PersisterOf, new_share_topic
from tests.interop.driver import PersisterDriver
from tests.interop.formatter import format_state_topic
from tests.interop.scenarios import life_of_a_share_partition

pytestmark = [pytest.mark.real, pytest.mark.interop]

SNAPSHOT, UPDATE = 0, 1
KINDS = ("snapshot", "update")


def written_by(persister: PersisterDriver, coordinator: Coordinator, group_id: str) -> list[dict[str, Any]]:
    """Let a share partition live once, and return what Kafka's formatter then shows of it, times and topic id left out."""
    topic_id = new_share_topic(coordinator)
    for exchange in life_of_a_share_partition(group_id, topic_id):
        persister.ask(exchange.step)
    shown = format_state_topic(coordinator.kafka, coordinator.state_topic)
    assert {record["key"]["type"] for record in shown} == {SNAPSHOT, UPDATE}
    records = [
        record
        for record in shown
        if record["key"]["data"] == {"groupId": group_id, "topicId": topic_id, "partition": 0}
    ]
    for record in records:
        del record["key"]["data"]["topicId"]
        if record["value"] is not None and record["key"]["type"] == SNAPSHOT:
            created_ms, written_ms = (record["value"]["data"].pop(f"{name}Timestamp") for name in ("create", "write"))
            assert created_ms == written_ms > 0
    return records


def test_kafkas_formatter_shows_the_same_in_both_topics(
    persister_of: PersisterOf,
    newest_apache_kafka: Coordinator,
    holdfast: Coordinator,
    group_id: str,
) -> None:
    ours, theirs = (
        written_by(persister_of(coordinator), coordinator, group_id) for coordinator in (holdfast, newest_apache_kafka)
    )
    assert ours == theirs
    kinds = ["tombstone" if r["value"] is None else KINDS[r["key"]["type"]] for r in ours]
    assert kinds == [
        "snapshot",  # Initialize
        *["update"] * 5,  # the Read that stores its leader epoch, three writes, the Read that takes over
        "snapshot",  # Initialize with a higher state epoch; it leaves the fence, so the next Read stores nothing
        "update",
        "tombstone",
        "snapshot",
    ]
    assert ours[-1]["value"]["data"]["startOffset"] == 7
    # Kafka's tool passed over records of a type that it does not know, and there were some.
    with closing(LogReader({"bootstrap.servers": holdfast.kafka}, holdfast.state_topic)) as reader:
        assert "checkpoint" in {entry.kind for entry in reader.read()}
