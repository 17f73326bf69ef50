"""The connections of a command: behind one address may be several nodes, and it talks to one of them."""

from __future__ import annotations

import pytest

from holdfast.console.node_session import NodeSession
from holdfast.console.options import admin
from holdfast.console.outcomes import Failure
from tests.pure.console.conftest import Node, Run
from tests.waiting import block_until


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (("partitions",), ["partitions", "members"]),
        (("partitions", "take", "1"), ["decision-preview", "partitions-take", "partitions"]),
    ],
)
def test_all_that_a_command_asks_a_node_goes_over_one_connection(
    node: Node, run: Run, command: tuple[str, ...], asked: list[str]
) -> None:
    run(*command)
    assert [name for name, _ in node.asked][: len(asked)] == asked
    assert node.connections.accepted == 1
    block_until(lambda: not len(node.connections), "the end of the connection with that of the command")


def test_a_refusal_costs_the_connection_and_the_next_query_has_another(node: Node) -> None:
    session = NodeSession()
    try:
        for _ in range(2):
            assert session.query(node.address, lambda client: client.admin("partitions"))
        with pytest.raises(Exception, match="unknown to this node"):
            session.query(node.address, lambda client: client.admin("no-such-command"))
        assert session.query(node.address, lambda client: client.admin("partitions"))
        assert node.connections.accepted == 2
    finally:
        session.close()


def test_outside_of_a_command_a_query_closes_what_it_has_opened(node: Node) -> None:
    for _ in range(2):
        assert admin(node.address, "partitions")
    assert node.connections.accepted == 2
    with pytest.raises(Failure, match="Is the node running"):
        admin("127.0.0.1:1", "status")
    block_until(lambda: not len(node.connections))
