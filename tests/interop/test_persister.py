"""Apache Kafka's persister gets from every share coordinator the answers that the protocol asks for."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import SHARE_TOPIC_PARTITIONS, Coordinator, PersisterOf, new_share_topic
from tests.interop.driver import PersisterDriver, step, without_messages
from tests.interop.newest_kafka import newest_kafka
from tests.interop.scenarios import Exchange, late_calls, life_of_a_share_partition, many_share_partitions
from tests.real.nodes import node_processes

pytestmark = [pytest.mark.real, pytest.mark.interop]

KILLED_UNDER = "a write may move the start offset"
#: Kafka's persister was seen to try for more than this, and to have given up after 70 s.
PERSISTER_TRIES_S = 25.0


def told(persister: PersisterDriver, exchange: Exchange) -> tuple[str, Any]:
    (answer,) = without_messages([persister.ask(exchange.step)])
    return exchange.claim, answer.get("partitions", answer)


def check(persister: PersisterDriver, exchanges: list[Exchange]) -> None:
    """Ask one after the other and compare the answers line by line."""
    answers = [told(persister, exchange) for exchange in exchanges]
    assert answers == [(exchange.claim, exchange.expected) for exchange in exchanges]


def test_share_partition_lives_as_the_protocol_says(
    persister: PersisterDriver, group_id: str, coordinated_topic_id: str
) -> None:
    check(persister, life_of_a_share_partition(group_id, coordinated_topic_id))


def test_many_share_partitions_are_answered_each(
    persister: PersisterDriver, group_id: str, coordinated_topic_id: str
) -> None:
    check(persister, many_share_partitions(group_id, coordinated_topic_id, SHARE_TOPIC_PARTITIONS))


@pytest.mark.parametrize("release", ["apache_kafka", "newest_apache_kafka", "holdfast"])
def test_what_comes_late_is_answered_as_the_newest_kafka_does(
    request: pytest.FixtureRequest, persister_of: PersisterOf, group_id: str, release: str
) -> None:
    """4.3.1 takes all of it, and takes the start offset back."""
    coordinator: Coordinator = request.getfixturevalue(release)
    exchanges = late_calls(group_id, new_share_topic(coordinator), is_former=release == "apache_kafka")
    check(persister_of(coordinator, newest_kafka()), exchanges)


async def test_persister_does_not_notice_that_the_daemon_is_killed(
    kafka: str, topic: str, tmp_path: Path, group_id: str, share_topic_id: str
) -> None:
    """It dies before its answer or right after; the persister tries again by itself, and is answered as if nothing was."""
    exchanges = life_of_a_share_partition(group_id, share_topic_id)
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node()
        await node.start()
        with PersisterDriver(node.address) as persister:
            answers = []
            for exchange in exchanges:
                asking = asyncio.create_task(asyncio.to_thread(told, persister, exchange))
                if exchange.claim == KILLED_UNDER:
                    await asyncio.sleep(0)  # The thread starts.
                    killed_s = time.monotonic()
                    node.kill()
                    await node.start()
                    if time.monotonic() - killed_s > PERSISTER_TRIES_S:
                        # It may have given up, on a machine that is so busy, and then its user asks again.
                        await asking
                        asking = asyncio.create_task(asyncio.to_thread(told, persister, exchange))
                answers.append(await asking)
    assert answers == [(exchange.claim, exchange.expected) for exchange in exchanges]
    assert KILLED_UNDER in [exchange.claim for exchange in exchanges]


def test_unknown_call_is_named(persister: PersisterDriver) -> None:
    assert persister.ask(step("nonsense", "g", "AAECAwQFBgcICQoLDA0ODw")) == {
        "call": "nonsense",
        "exception": "unknown call",
    }
