"""Which topic is read where a command names only brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.console.sources.state_topics import find_state_topic

KAFKAS, OURS = "__share_group_state", "__holdfast_share_state"


class Cluster:
    """Has some topics; others may not be described, or do not exist."""

    def __init__(self, *topics: str, denied: Sequence[str] = (), is_old: bool = False) -> None:
        self._topics = topics
        self._denied = denied
        self._is_old = is_old

    def has_share_groups(self) -> bool:
        return not self._is_old

    has_topic = KafkaReader.has_topic

    def partitions(self, topic: str) -> list[int]:
        if topic in self._denied:
            raise Failure("It may not be described.", Exit.DENIED)
        if topic not in self._topics:
            raise Failure("There is none.", Exit.NOT_FOUND)
        return [0]


def find(cluster: Cluster) -> str:
    return find_state_topic(cast("KafkaReader", cluster))


def test_the_state_topic_of_a_stock_kafka_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert find(Cluster("orders", KAFKAS)) == KAFKAS
    assert find(Cluster(KAFKAS, denied=[OURS])) == KAFKAS, "the other one need not be described"
    assert capsys.readouterr().err == ""


def test_that_of_a_holdfast_is_found_where_there_is_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert find(Cluster("orders", OURS)) == OURS
    assert capsys.readouterr().err == ""


def test_of_two_that_of_kafka_is_read_and_the_other_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert find(Cluster(KAFKAS, OURS)) == KAFKAS
    assert capsys.readouterr().err == (
        "__share_group_state is read; this Kafka has the state topic of a Holdfast as well, __holdfast_share_state.\n"
    )


def test_where_there_is_none_the_reason_is_said() -> None:
    with pytest.raises(
        Failure, match=r"no share groups yet: .*neither __share_group_state, .* nor __holdfast"
    ) as refused:
        find(Cluster("orders"))
    assert refused.value.exit_code == Exit.NOT_FOUND
    with pytest.raises(Failure, match=r"too old for share groups: brokers of Apache Kafka 4\.1") as refused:
        find(Cluster("orders", is_old=True))
    assert refused.value.exit_code == Exit.NOT_FOUND
    assert find(Cluster(OURS, is_old=True)) == OURS


@pytest.mark.parametrize("topics", [(), (OURS,)], ids=["none", "ours"])
def test_one_that_may_not_be_described_is_not_called_missing(topics: Sequence[str]) -> None:
    with pytest.raises(Failure) as refused:
        find(Cluster(*topics, denied=[KAFKAS]))
    assert refused.value.exit_code == Exit.DENIED
