"""Bytes in, requests out; answers in, in any order, bytes out in order; every bound is tested."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from holdfast.daemon.server.wire.connection import NEED_DATA, NEED_MEMORY, PAUSED, Connection
from holdfast.daemon.server.wire.requests import Api, Request, RequestMemory, Violation, WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.primitives import encode_string

APIS = {
    3: Api("Metadata", 0, 13, 9),
    18: Api("ApiVersions", 0, 4, 3, has_answer_tags=False, takes_any_version=True),
    85: Api("WriteShareGroupState", 0, 1),
}
LIMITS = LimitSettings(frame_size_bytes_max=2_000, connections_max_idle_ms=5_000)
BOUNDS = WireBounds(requests_in_flight_max=4, frame_timeout_ms=1_000)


def connect(limits: LimitSettings = LIMITS) -> Connection:
    return Connection(APIS, limits, "10.0.0.1:5555", 0, bounds=BOUNDS)


def receive(connection: Connection, data: bytes, now_ms: float) -> list[Request]:
    """Return the requests that begin when bytes arrive."""
    connection.receive(data)
    return resume(connection, now_ms)


def resume(connection: Connection, now_ms: float) -> list[Request]:
    """Return the requests that may begin."""
    found = []
    while isinstance(event := connection.next_event(now_ms), Request):
        found.append(event)
    return found


def write_frame(correlation_id: int, body: bytes = b"body") -> bytes:
    return frames.encode_request(85, 1, correlation_id, b"me", body)


def legacy_frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a request with header version 1, which has no tagged fields."""
    framed = frames.encode_request(api_key, version, correlation_id, b"me", b"")
    content = framed[4:-1] + body
    return len(content).to_bytes(4, "big") + content


SAMPLES = [
    write_frame(1),
    write_frame(2, b""),
    legacy_frame(3, 1, 3, b"\xff\xff\xff\xff"),
    frames.encode_request(3, 13, 4, b"", b"x"),
    legacy_frame(18, 0, 5, b""),
    frames.encode_request(18, 3, 6, b"me", encode_string("c") + encode_string("1") + b"\x00"),
    frames.encode_request(18, 99, 7, b"me", b"what a later version may hold"),
]


def seen(request: Request) -> tuple[int, int, int, bytes]:
    return request.api_key, request.api_version, request.correlation_id, request.frame[request.body_offset :]


EXPECTED = [
    (85, 1, 1, b"body"),
    (85, 1, 2, b""),
    (3, 1, 3, b"\xff\xff\xff\xff"),
    (3, 13, 4, b"x"),
    (18, 0, 5, b""),
    (18, 3, 6, encode_string("c") + encode_string("1") + b"\x00"),
]


@pytest.mark.parametrize("index", range(len(SAMPLES)))
def test_a_request_arrives_whole_byte_by_byte_or_with_the_beginning_of_the_next(index: int) -> None:
    sample = SAMPLES[index]
    whole = receive(connect(), sample, 1)

    connection = connect()
    drip = [request for byte in sample for request in receive(connection, bytes((byte,)), 1)]
    assert connection.buffered_bytes == 0

    connection = connect()
    ahead = receive(connection, sample + SAMPLES[0][:7], 1)
    assert connection.buffered_bytes == 7
    ahead_rest = receive(connection, SAMPLES[0][7:], 1)

    assert [seen(request) for request in whole] == [seen(request) for request in drip] == [seen(r) for r in ahead]
    assert [seen(request) for request in ahead_rest] == EXPECTED[:1]
    if index < len(EXPECTED):
        assert seen(whole[0]) == EXPECTED[index]
    assert whole[0].client_address == "10.0.0.1:5555"
    assert connection.next_event(1) is NEED_DATA


def test_the_client_id_is_for_people() -> None:
    (request,) = receive(connect(), frames.encode_request(85, 1, 1, b"caf\xe9", b""), 1)
    assert request.client_id == "caf\ufffd"
    (request,) = receive(connect(), bytes.fromhex("0000000b 0055 0001 00000001 ffff 00".replace(" ", "")), 1)
    assert request.client_id == ""


def test_a_request_has_the_principal_of_its_connection_when_it_came() -> None:
    connection = connect()
    [before] = receive(connection, write_frame(1), 0)
    connection.principal = "User:alice"
    [after] = receive(connection, write_frame(2), 0)
    assert (before.principal, after.principal) == ("User:ANONYMOUS", "User:alice")


def test_answers_leave_in_the_order_of_the_requests() -> None:
    source = random.Random(3)
    for _ in range(50):
        connection = connect()
        requests = receive(connection, b"".join(write_frame(number) for number in range(4)), 1)
        sent = b""
        for request in source.sample(requests, 4):
            connection.reply(request, b"answer %d" % request.correlation_id)
            if connection.has_output:
                sent += b"".join(connection.take_output())
            assert not connection.has_output
        assert sent == b"".join(frames.encode_response(n, b"answer %d" % n, has_tags=True) for n in range(4))
        assert connection.in_flight == 0


def test_response_headers_follow_the_version() -> None:
    for sample, has_tags in zip(SAMPLES, (True, True, False, True, False, False, False), strict=True):
        connection = connect()
        (request,) = receive(connection, sample, 1)
        connection.reply(request, b"!")
        assert b"".join(connection.take_output()) == frames.encode_response(request.correlation_id, b"!", has_tags)


def test_a_request_is_answered_once() -> None:
    connection = connect()
    (request,) = receive(connection, write_frame(1), 1)
    connection.reply(request, b"")
    with pytest.raises(AssertionError, match="answered once"):
        connection.reply(request, b"")


def test_requests_in_flight_are_bounded_in_number() -> None:
    connection = connect()
    requests = receive(connection, b"".join(write_frame(number) for number in range(11)), 1)
    assert [request.correlation_id for request in requests] == [0, 1, 2, 3]
    assert connection.is_paused
    assert receive(connection, write_frame(11), 2) == []
    connection.reply(requests[0], b"")
    assert resume(connection, 3) == []  # not before half of them are answered
    connection.reply(requests[1], b"")
    more = resume(connection, 4)
    assert [request.correlation_id for request in more] == [4, 5]
    assert connection.is_paused
    for request in requests[2:] + more:
        connection.reply(request, b"")
    more = resume(connection, 5)
    assert [request.correlation_id for request in more] == [6, 7, 8, 9]
    for request in more:
        connection.reply(request, b"")
    assert [request.correlation_id for request in resume(connection, 6)] == [10, 11]
    assert not connection.is_paused
    assert connection.buffered_bytes == 0
    assert connection.next_event(7) is NEED_DATA


def test_requests_in_flight_are_bounded_in_bytes() -> None:
    connection = connect()
    requests = receive(connection, write_frame(1, bytes(1_500)) + write_frame(2, bytes(1_500)) + write_frame(3), 1)
    assert [request.correlation_id for request in requests] == [1, 2]
    assert connection.is_paused
    connection.reply(requests[0], b"")
    assert resume(connection, 2) == []
    connection.reply(requests[1], b"")
    assert [request.correlation_id for request in resume(connection, 3)] == [3]


def test_an_event_says_what_the_next_request_waits_for() -> None:
    node = RequestMemory()
    connection = Connection(APIS, LIMITS, "10.0.0.1:5555", 0, node, BOUNDS)
    assert connection.next_event(1) is NEED_DATA
    requests = receive(connection, b"".join(write_frame(number) for number in range(5)), 1)
    assert connection.next_event(2) is PAUSED
    for request in requests:
        connection.reply(request, b"")
    node.work_bytes += LIMITS.requests_in_flight_bytes_max
    small = connection.next_event(3)
    assert isinstance(small, Request), "each connection may have its share of small ones"
    connection.receive(write_frame(5))
    connection._memory.work_bytes = LIMITS.requests_in_flight_bytes_max
    assert connection.next_event(4) is NEED_MEMORY
    assert connection.next_event(5) is NEED_MEMORY, "it is not taken"
    connection._memory.work_bytes = 0
    last = connection.next_event(6)
    assert isinstance(last, Request)
    assert (last.correlation_id, connection.next_event(7)) == (5, NEED_DATA)


def test_an_answer_that_waits_for_others_takes_no_room_for_work() -> None:
    node = RequestMemory()
    connection = Connection(APIS, LIMITS, "10.0.0.1:5555", 0, node, BOUNDS)
    (first,) = receive(connection, write_frame(1), 1)
    alone = node.work_bytes
    (second,) = receive(connection, write_frame(2, bytes(500)), 1)
    second.count_answer_bytes(7)
    connection.reply(second, iter((b"piece",)))
    assert (node.work_bytes, node.answer_bytes) == (alone, 7)
    connection.reply(first, b"")
    assert (node.work_bytes, node.answer_bytes) == (0, 7)
    assert connection.has_more_to_encode


def test_a_request_whose_answer_has_left_does_not_keep_it() -> None:
    connection = connect()
    whole, pieces = receive(connection, write_frame(1) + write_frame(2), 1)
    connection.reply(whole, b"answer")
    connection.reply(pieces, iter((b"an", b"swer")))
    while connection.has_more_to_encode:
        connection.encode_piece()
    assert b"".join(connection.take_output()).count(b"answer") == 2
    assert (whole.reply, pieces.reply) == (b"", b"")


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"GET / HTTP/1.1\r\n", "frame_size_exceeded", "announces a request of 1195725856 bytes, at most 2000"),
        (b"\x16\x03\x01\x02\x00\x01", "frame_size_exceeded", "at most 2000"),
        (bytes.fromhex("ffffffff"), "frame_size_exceeded", "announces a request of -1 bytes"),
        ((2_001).to_bytes(4, "big"), "frame_size_exceeded", "2001 bytes"),
        (bytes.fromhex("00000003 0055 00".replace(" ", "")), "malformed_request_received", "request header"),
        (bytes.fromhex("00000000"), "malformed_request_received", "request header"),
        (
            bytes.fromhex("0000000b 0055 0001 00000001 7fff 00".replace(" ", "")),
            "malformed_request_received",
            "ClientId",
        ),
        (bytes.fromhex("0000000b 0055 0001 00000001 ffff 05".replace(" ", "")), "malformed_request_received", "header"),
        (bytes.fromhex("0000000a 0055 0001 00000001 ffff".replace(" ", "")), "malformed_request_received", "header"),
        (frames.encode_request(0, 9, 1, b"", b""), "unknown_api_requested", "API key 0, which is not served"),
        (
            frames.encode_request(85, 2, 1, b"", b""),
            "unsupported_version_requested",
            "version 2 of WriteShareGroupState",
        ),
        (frames.encode_request(85, -1, 1, b"", b""), "unsupported_version_requested", "0 to 1 are served"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(data: bytes, kind: str, text: str) -> None:
    connection = connect()
    before = receive(connection, write_frame(1) + data + write_frame(2), 1)
    assert [request.correlation_id for request in before] == [1]
    violation = connection.next_event(1)
    assert isinstance(violation, Violation)
    assert violation.kind == kind
    assert text in violation.text
    assert receive(connection, write_frame(3), 2) == []
    assert connection.next_event(2) == violation


def test_an_announced_length_is_not_allocated() -> None:
    connection = connect(LimitSettings(frame_size_bytes_max=100 * 1024 * 1024))
    assert receive(connection, (100 * 1024 * 1024).to_bytes(4, "big"), 1) == []
    assert connection._frames._partial.__sizeof__() < 1_000
    assert connection.next_event(1) is NEED_DATA


def test_a_frame_must_be_complete_in_time() -> None:
    connection = connect()
    frame = write_frame(1)
    receive(connection, frame[:2], 100)
    receive(connection, frame[2:9], 1_000)
    assert connection.overdue(1_100) is None
    late = connection.overdue(1_101)
    assert late is not None
    assert late.kind == "request_timed_out"
    assert "did not complete it in 1000 ms (9 of 21 bytes arrived)" in late.text
    # Complete at last, with the beginning of another: its time begins now.
    receive(connection, frame[9:] + frame[:3], 1_200)
    assert connection.overdue(2_200) is None
    assert connection.overdue(2_201) is not None


def test_time_does_not_count_while_we_do_not_read() -> None:
    connection = connect()
    requests = receive(connection, b"".join(write_frame(number) for number in range(5))[:-1], 100)
    assert len(requests) == 4
    assert connection.is_paused
    assert connection.overdue(50_000) is None
    assert not connection.is_idle(50_000)
    for request in requests:
        connection.reply(request, b"")
    assert resume(connection, 60_000) == []
    assert not connection.is_paused
    assert connection.overdue(61_000) is None
    assert connection.overdue(61_001) is not None


def test_a_connection_without_requests_is_idle_after_a_time() -> None:
    connection = connect()
    assert not connection.is_idle(5_000)
    assert connection.is_idle(5_001)
    assert connection.overdue(5_001) is None
    (request,) = receive(connection, write_frame(1), 5_000)
    assert not connection.is_idle(20_000)  # it waits for us
    connection.reply(request, b"")
    assert not connection.is_idle(25_000)
    assert connection.is_idle(25_001)


def test_random_cuts_of_a_long_stream() -> None:
    source = random.Random(5)
    stream = b"".join(write_frame(number, source.randbytes(source.randrange(300))) for number in range(300))
    for _ in range(10):
        connection = connect()
        cuts = sorted(source.sample(range(1, len(stream)), 60))
        chunks = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]
        numbers: list[int] = []
        waiting: list[Request] = []
        for chunk in chunks:
            requests = receive(connection, chunk, 1)
            while requests or waiting:
                numbers += [request.correlation_id for request in requests]
                waiting += requests
                assert len(waiting) <= 4
                source.shuffle(waiting)
                connection.reply(waiting.pop(), b"")
                requests = resume(connection, 1)
        assert numbers == list(range(300))
        assert connection.buffered_bytes == 0
