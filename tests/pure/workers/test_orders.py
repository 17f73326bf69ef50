"""What a supervisor says to a worker, and what a worker makes of it."""

from __future__ import annotations

import os
import queue
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.workers.orders import RELOAD, Order, Orders, take_sockets
from tests.waiting import PATIENCE_S

ORDER = Order(
    Path("node.toml"), {"node_id": 2, "kafka.sasl.password": "pass\nword"}, [3, 4], {1: "127.0.0.1:9493"}, 5, 250
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give the end that a supervisor writes to, which the test closes, and that which a worker reads from."""
    its, ours = os.pipe()
    yield ours, its
    os.close(its)


@pytest.mark.parametrize("order", [ORDER, ORDER._replace(config=None, others={}, report_interval_ms=None)])
def test_the_order_is_read_as_it_was_written_however_it_arrives(pipe: tuple[int, int], order: Order) -> None:
    ours, its = pipe
    line, said, orders = order.encode(), queue.Queue[str](), Orders(its)
    for byte in line[:20]:
        os.write(ours, bytes([byte]))
    os.write(ours, line[20:] + RELOAD[:3])
    assert orders.first() == order
    orders.follow(lambda: said.put("reload"), lambda: said.put("gone"))
    os.write(ours, RELOAD[3:] + RELOAD)
    os.close(ours)
    assert [said.get(timeout=PATIENCE_S) for _ in range(3)] == ["reload", "reload", "gone"]


def test_a_supervisor_that_is_gone_before_its_order_is_noticed(pipe: tuple[int, int]) -> None:
    ours, its = pipe
    os.write(ours, ORDER.encode()[:10])
    os.close(ours)
    with pytest.raises(EOFError):
        Orders(its).first()


def test_a_supervisor_that_is_gone_is_noticed_before_its_order_is_read(pipe: tuple[int, int]) -> None:
    ours, its = pipe
    orders = Orders(its)
    os.write(ours, ORDER.encode())
    assert not orders.have_ended()
    os.close(ours)
    assert orders.have_ended()
    assert orders.first() == ORDER


def test_the_sockets_are_not_handed_on_to_children() -> None:
    inherited = socket.create_server(("127.0.0.1", 0))
    inherited.set_inheritable(True)
    (taken,) = take_sockets([inherited.detach()])
    with taken:
        assert not taken.get_inheritable()
        assert taken.getsockname()[0] == "127.0.0.1"
