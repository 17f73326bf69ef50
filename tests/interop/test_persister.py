"""Apache Kafka's persister gets from every share coordinator the answers that the protocol asks for."""

import pytest

from tests.interop.conftest import SHARE_TOPIC_PARTITIONS, Address
from tests.interop.driver import drive, step, without_messages
from tests.interop.formatter import format_state_topic
from tests.interop.scenarios import Exchange, life_of_a_share_partition, many_share_partitions

pytestmark = [pytest.mark.real, pytest.mark.interop]


def check(coordinator: Address, exchanges: list[Exchange]) -> None:
    answers = without_messages(drive(coordinator.host, coordinator.port, [exchange.step for exchange in exchanges]))
    told = [
        (exchange.claim, answer.get("partitions", answer)) for exchange, answer in zip(exchanges, answers, strict=True)
    ]
    assert told == [(exchange.claim, exchange.expected) for exchange in exchanges]


def test_share_partition_lives_as_the_protocol_says(coordinator: Address, group_id: str, share_topic_id: str) -> None:
    check(coordinator, life_of_a_share_partition(group_id, share_topic_id))


def test_many_share_partitions_are_answered_each(coordinator: Address, group_id: str, share_topic_id: str) -> None:
    check(coordinator, many_share_partitions(group_id, share_topic_id, SHARE_TOPIC_PARTITIONS))


def test_kafkas_formatter_shows_what_the_persister_wrote(kafka: str, group_id: str, share_topic_id: str) -> None:
    host, port = kafka.rsplit(":", 1)
    steps = [exchange.step for exchange in life_of_a_share_partition(group_id, share_topic_id)]
    drive(host, int(port), steps)
    records = [
        record
        for record in format_state_topic(kafka, "__share_group_state")
        if record["key"]["data"] == {"groupId": group_id, "topicId": share_topic_id, "partition": 0}
    ]
    kinds = ["tombstone" if r["value"] is None else ("snapshot", "update")[r["key"]["type"]] for r in records]
    assert kinds == [
        "snapshot",  # Initialize
        *["update"] * 5,  # the Read that stores its leader epoch, three writes, the Read that takes over
        "snapshot",  # Initialize with a higher state epoch; it leaves the fence, so the next Read stores nothing
        "update",
        "tombstone",
        "snapshot",
    ]
    assert records[-1]["value"]["data"]["startOffset"] == 7


def test_unknown_call_is_named(kafka: str) -> None:
    host, port = kafka.rsplit(":", 1)
    assert drive(host, int(port), [step("nonsense", "g", "AAECAwQFBgcICQoLDA0ODw")]) == [
        {"call": "nonsense", "exception": "unknown call"}
    ]
