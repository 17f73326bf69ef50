"""What the nodes of an embedded cluster are told."""

import socket
from pathlib import Path

import pytest

from holdfast.broker.errors import BrokerError
from holdfast.broker.properties import (
    HOST,
    NodePorts,
    choose_ports,
    is_free,
    new_kafka_uuid,
    node_properties,
    to_properties_text,
)

PORTS = [NodePorts(broker=20_000 + i, controller=21_000 + i) for i in range(1, 4)]


def test_nodes_know_each_other_and_copy_their_topics() -> None:
    properties = node_properties(2, PORTS, Path("/data"), {"num.io.threads": "3"})
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20002,CONTROLLER://127.0.0.1:21002"
    assert properties["log.dirs"] == "/data"
    assert properties["num.io.threads"] == "3"
    for topic in ("share.coordinator.state.topic", "transaction.state.log"):
        assert (properties[f"{topic}.replication.factor"], properties[f"{topic}.min.isr"]) == ("3", "2")


def test_single_node_keeps_one_copy() -> None:
    properties = node_properties(1, PORTS[:1], Path("/data"), {})
    for topic in ("share.coordinator.state.topic", "transaction.state.log"):
        assert (properties[f"{topic}.replication.factor"], properties[f"{topic}.min.isr"]) == ("1", "1")
    assert properties["offsets.topic.replication.factor"] == "1"


def test_given_properties_win() -> None:
    assert (
        node_properties(1, PORTS[:1], Path("/d"), {"auto.create.topics.enable": "true"})["auto.create.topics.enable"]
        == "true"
    )


def test_properties_of_the_embedding_are_refused_by_name() -> None:
    with pytest.raises(BrokerError, match=r"chooses listeners, node\.id itself; leave it out"):
        node_properties(1, PORTS[:1], Path("/d"), {"node.id": "4", "listeners": "X"})


def test_property_of_two_lines_is_refused() -> None:
    with pytest.raises(BrokerError, match="'note' has more than one line"):
        node_properties(1, PORTS[:1], Path("/d"), {"note": "a\nnode.id=3"})


def test_backslashes_survive_the_properties_format() -> None:
    assert to_properties_text({"a": "x\\d", "b": "1"}) == "a=x\\\\d\nb=1\n"


def test_properties_are_in_ascii_for_java_reads_them_as_latin_1() -> None:
    assert to_properties_text({"log.dirs": "/zustände/𝄞"}) == "log.dirs=/zust\\u00e4nde/\\ud834\\udd1e\n"


def test_chosen_ports_are_free_and_differ() -> None:
    ports = [port for node in choose_ports(3) for port in (node.broker, node.controller)]
    assert len(set(ports)) == 6
    assert all(is_free(port) for port in ports)


def test_port_of_a_listener_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_kafka_uuid_is_sixteen_bytes_of_text_without_a_leading_dash() -> None:
    made = {new_kafka_uuid() for _ in range(500)}
    assert len(made) == 500
    assert {len(text) for text in made} == {22}
    assert not any(text.startswith("-") for text in made)


def test_topics_of_groups_are_copied_as_others_and_no_topic_appears_by_itself() -> None:
    for nodes, copies in ((1, "1"), (3, "3")):
        properties = node_properties(1, PORTS[:nodes], Path("/data"), {})
        assert properties["offsets.topic.replication.factor"] == copies
        assert properties["auto.create.topics.enable"] == "false"
