"""Sockets that several processes accept connections at."""

from __future__ import annotations

import select
import socket

import pytest

from holdfast.daemon.server.sockets import CannotListen, choose_ports, has_waiting, listen
from tests.waiting import PATIENCE_S


def test_two_supervisors_do_not_get_one_port() -> None:
    (first, *_) = listen("127.0.0.1", 0, 10)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(
            CannotListen, match=rf"^Cannot listen on 127\.0\.0\.1:{port} \(Address already in use\); set "
        ):
            listen("127.0.0.1", port, 10)
        socket.create_connection(("127.0.0.1", port)).close()  # who connects before a worker accepts, waits


def test_a_connection_waits_until_somebody_accepts_it() -> None:
    (shared, *_) = listen("127.0.0.1", 0, 10)
    with shared:
        assert not has_waiting([shared])
        with socket.create_connection(shared.getsockname()):
            assert select.select([shared], [], [], PATIENCE_S)[0]
            assert has_waiting([shared])
            accepted, _ = shared.accept()
            accepted.close()
            assert not has_waiting([shared])


def test_a_host_that_is_not_there_is_no_traceback() -> None:
    with pytest.raises(CannotListen):
        listen("no-such-host.invalid", 9492, 10)


def test_the_ports_of_workers_are_free_and_different() -> None:
    ports = choose_ports("127.0.0.1", 20)
    assert len(set(ports)) == 20
    for port in ports:
        for each in listen("127.0.0.1", port, 1):
            each.close()
