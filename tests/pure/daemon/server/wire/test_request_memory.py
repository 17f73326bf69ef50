"""What a request is promised of the memory for answers."""

from __future__ import annotations

from holdfast.daemon.server.wire.requests import Request, RequestMemory


def test_what_was_refused_takes_no_room_from_what_is_smaller() -> None:
    memory = RequestMemory(answer_bytes_max=100)
    request = Request(84, 0, 1, b"", b"", 0, "client", memory, 0)
    assert [request.reserve(size) for size in (60, 60, 40, 1)] == [True, False, True, False]
    assert memory.answer_bytes == 100
