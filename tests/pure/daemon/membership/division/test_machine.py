"""Which addresses lead to another node on each machine, and what tells machines apart there."""

import socket

import pytest

from holdfast.daemon.membership.division.machine import find_machine, this_machine


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_where_only_this_machine_reaches_a_host_it_is_named(host: str) -> None:
    assert find_machine(host).startswith(socket.gethostname())
    assert find_machine(host) == this_machine()


@pytest.mark.parametrize("host", ["10.0.0.1", "kelp.example", "2001:db8::1"])
def test_any_other_host_says_itself_where_it_leads(host: str) -> None:
    assert find_machine(host) == ""
