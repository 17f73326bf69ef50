"""How many connections there may be, and from where; which one gives its place to a new one."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.admission import Admission, descriptors_kept, descriptors_left
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.settings.components.listener import LimitSettings, is_loopback
from holdfast.metrics.instruments import Counter
from tests.world.serving import CountingTransport, Reports, write_frame
from tests.world.tenants import APIS

LIMITS = LimitSettings(connections_max=32, connections_per_address_max=20)


def fill(admission: Admission, host: str, count: int) -> None:
    for _ in range(count):
        assert admission.refusal(host) is None
        admission.enter(host)


def test_one_address_has_only_its_share() -> None:
    admission = Admission(LIMITS)
    fill(admission, "10.0.0.1", 20)
    assert "connections_per_address_max" in str(admission.refusal("10.0.0.1"))
    assert admission.where_to_make_room("10.0.0.1") == "10.0.0.1"
    assert admission.refusal("10.0.0.2") is None
    admission.leave("10.0.0.1")
    assert admission.refusal("10.0.0.1") is None


def test_the_last_places_are_for_loopback() -> None:
    admission = Admission(LIMITS)
    fill(admission, "10.0.0.1", 16)
    fill(admission, "10.0.0.2", 14)
    assert "the last 2 connections" in str(admission.refusal("10.0.0.3"))
    assert admission.where_to_make_room("10.0.0.3") == "10.0.0.1"
    fill(admission, "127.0.0.1", 2)
    assert "connections_max" in str(admission.refusal("127.0.0.1"))
    assert admission.where_to_make_room("127.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1%eth0", False),
        ("10.0.0.1", False),
        ("unknown", False),
    ],
)
def test_loopback_is_known_in_all_its_forms(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def connect(connections: Connections, host: str) -> tuple[ClientProtocol, CountingTransport]:
    transport = CountingTransport(host)
    client = ClientProtocol(connections)
    client.connection_made(transport)
    return client, transport


async def test_a_new_connection_takes_the_place_of_the_one_that_is_silent_for_longest() -> None:
    now_s = [0.0]
    reports = Reports()
    limits = LimitSettings(connections_max=10, connections_per_address_max=6)
    connections = Connections(
        lambda request, respond: respond(b""), {}, limits, reports, InternalErrors(Counter()), lambda: now_s[0]
    )
    opened = []
    for number in range(6):
        now_s[0] = number / 10
        opened.append(connect(connections, "10.0.0.1"))
    now_s[0] = 0.9
    _, early = connect(connections, "10.0.0.1")
    assert early.is_closed  # none is silent for so long yet
    now_s[0] = 1.15
    _, late = connect(connections, "10.0.0.1")
    assert not late.is_closed
    assert [transport.is_closed for _, transport in opened] == [True, False, False, False, False, False]
    assert len(connections) == 6
    assert reports.kinds == ["connections_exceeded", "connections_exceeded"]


async def test_a_client_that_waits_for_an_answer_gives_no_place() -> None:
    now_s = [0.0]
    limits = LimitSettings(connections_max=1, connections_per_address_max=1)
    connections = Connections(
        lambda request, respond: None, APIS, limits, Reports(), InternalErrors(Counter()), lambda: now_s[0]
    )
    busy, transport = connect(connections, "10.0.0.1")
    busy.data_received(write_frame(1))
    now_s[0] = 100.0
    _, late = connect(connections, "10.0.0.1")
    assert late.is_closed
    assert not transport.is_closed


def test_the_last_file_descriptors_are_not_for_clients() -> None:
    left = 20
    listener = Admission(LIMITS, left=lambda: left, kept=lambda: 20)
    http = Admission(LIMITS, part_kept=0.5, left=lambda: left, kept=lambda: 20)
    fill(listener, "10.0.0.1", 1)
    left = 19
    refusal = listener.refusal("10.0.0.2")
    assert refusal == ("19 file descriptors are left, and the last 20 are kept (ulimit -n)", True)
    assert http.refusal("127.0.0.1") is None, "probes are answered"
    left = 9
    assert http.refusal("127.0.0.1") is not None, "brokers are reached"
    left = 20
    assert listener.refusal("10.0.0.2") is None


def test_file_descriptors_in_use_are_not_left(tmp_path: Path) -> None:
    before = descriptors_left()
    with ExitStack() as files:
        for number in range(50):
            files.enter_context((tmp_path / str(number)).open("w"))
        assert descriptors_left() <= before - 50
    assert 0 < descriptors_kept() <= 64


def test_a_process_without_file_descriptors_has_none_left() -> None:
    code = """
import os, resource
from holdfast.daemon.server.wire.admission import descriptors_kept, descriptors_left
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
found = [descriptors_kept(), descriptors_left()]
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    found.append(descriptors_left())
print(found[0], 0 < found[1] < 40, found[2])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["10", "True", "0"]


def test_a_client_refused_for_want_of_file_descriptors_is_counted() -> None:
    reports, left, now_s = Reports(), 100, 0.0
    connections = Connections(
        lambda request, respond: None, APIS, LIMITS, reports, InternalErrors(Counter()), lambda: now_s
    )
    connections._admission = Admission(LIMITS, left=lambda: left, kept=lambda: 20)
    first, second, third = (ClientProtocol(connections) for _ in range(3))
    first.connection_made(CountingTransport("10.0.0.1"))
    left = 19
    second.connection_made(CountingTransport("10.0.0.2"))
    assert (len(connections), connections.refused, reports.kinds) == (1, 1, ["file_descriptors_short"])
    now_s = 10_000.0
    third.connection_made(CountingTransport("10.0.0.2"))  # a silent one makes room
    assert (len(connections), connections.refused) == (1, 1)
    assert reports.kinds == ["file_descriptors_short"] * 2
    assert "it was silent" in reports[1][2]
