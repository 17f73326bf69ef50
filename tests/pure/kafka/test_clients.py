"""librdkafka is made in one place, says nothing by itself, and is asked nothing about groups and transactions."""

import ast
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

import holdfast
from holdfast.kafka.librdkafka import KafkaClients, find_topic

HOUSE = Path(holdfast.__file__).parent
DEMO = Path(__file__).parents[3] / "demo"
#: It stands for a program of a user, with a client that is none of ours.
STOCK_WORKER = DEMO / "stock_worker.py"
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "10"}

#: Each of these makes librdkafka ask a coordinator: a broker that goes away meanwhile ends the whole process (its issue 4605).
FORBIDDEN = {
    "abort_transaction",
    "alter_consumer_group_offsets",
    "begin_transaction",
    "commit",
    "commit_transaction",
    "committed",
    "consumer_group_metadata",
    "delete_consumer_group_offsets",
    "delete_consumer_groups",
    "delete_groups",
    "describe_consumer_groups",
    "describe_share_groups",
    "describe_transactions",
    "init_transactions",
    "list_consumer_group_offsets",
    "list_consumer_groups",
    "list_groups",
    "send_offsets_to_transaction",
    "store_offsets",
    "subscribe",
}
CLIENTS = {"AdminClient", "AIOConsumer", "AIOProducer", "Consumer", "DeserializingConsumer", "Producer"}
CLIENTS |= {"SerializingProducer", "ShareConsumer"}


def sources_with_librdkafka() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted([*HOUSE.rglob("*.py"), *DEMO.glob("*.py")]):
        text = path.read_text()
        if "confluent_kafka" in text and path != STOCK_WORKER:
            yield f"{path.parent.name}/{path.name}", ast.parse(text)


def called(tree: ast.Module) -> Iterator[str]:
    """Yield the names of what is called, without our own methods called on `self`; and attributes taken to be called later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in FORBIDDEN:
            yield node.value  # getattr


def test_no_code_of_ours_queries_librdkafka_about_groups_or_transactions() -> None:
    found = {(name, call) for name, tree in sources_with_librdkafka() for call in called(tree) if call in FORBIDDEN}
    assert found == set()


def test_clients_are_made_in_one_place() -> None:
    found = {name for name, tree in sources_with_librdkafka() for call in called(tree) if call in CLIENTS}
    assert found == {"kafka/librdkafka.py"}


Said = list[tuple[int, str, str, str]]


def test_what_an_admin_client_says_is_handed_over_at_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    said: Said = []
    with KafkaClients(NOBODY, lambda *line: said.append(line)).admin() as admin, pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    assert {kind for _, kind, _, _ in said} >= {"FAIL"}
    assert all("127.0.0.1:1" in text and client.startswith("rdkafka#") for _, _, client, text in said)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sort", ["consumer", "producer"])
def test_what_consumers_and_producers_say_is_handed_over_when_they_are_polled(
    sort: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said: Said = []
    clients = KafkaClients(NOBODY, lambda *line: said.append(line))
    client = clients.consumer("name", {}) if sort == "consumer" else clients.producer({})
    while not said:
        client.poll(0.1)
    assert said[0][1] == "FAIL"
    assert capfd.readouterr() == ("", "")


def test_where_nobody_listens_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with KafkaClients(NOBODY).admin() as admin, pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    assert capfd.readouterr() == ("", "")


def test_no_setting_makes_a_consumer_commit(capfd: pytest.CaptureFixture[str]) -> None:
    clients = KafkaClients(NOBODY | {"enable.auto.commit": "true", "debug": "conf", "log_level": "7"}, lambda *_: None)
    said: Said = []
    clients = KafkaClients(clients._properties, lambda *line: said.append(line))
    consumer = clients.consumer("name", {"enable.auto.commit": True})
    while not any("enable.auto.commit" in text for *_, text in said):
        consumer.poll(0.1)
    texts = [text for *_, text in said if "enable.auto" in text]
    assert any("enable.auto.commit = false" in text for text in texts), texts
    consumer.close()


class UnknownTopics:
    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"orders": future}


def test_a_client_that_found_no_topic_is_gone_when_its_user_is() -> None:
    admin = UnknownTopics()
    alive = weakref.ref(admin)
    gc.disable()  # it may come late, and until then the client of librdkafka has its threads
    try:
        assert find_topic(cast("AdminClient", admin), "orders", 1_000) is None
        del admin
        assert alive() is None
    finally:
        gc.enable()
