"""Microseconds per request of what lies between a socket and the share service.

    python -m benchmarks.micro.wire        a table

Each number is the best of several rounds; before an operation is timed its answer is checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.micro.records import Operation, time_us
from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import StateRequest, StateResponse, WritePartition, WriteResult
from holdfast.daemon.server.wire.connection import Connection
from holdfast.daemon.server.wire.requests import Request
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.records.share.batches import StateBatch
from holdfast.tenants import TABLES

TOPIC_ID = bytes(range(16))
VERSION = 1


def write_request(partitions: int, batches: int) -> StateRequest:
    """Return a Write."""
    written = tuple(StateBatch(1000110 + 10 * n, 1000119 + 10 * n, 2, 1) for n in range(batches))
    return StateRequest(
        "orders-eu-west", [(TOPIC_ID, [WritePartition(n, 2, 5, -1, 4, written) for n in range(partitions)])]
    )


def write_response(partitions: int) -> StateResponse:
    """Return the answer to a Write that succeeded."""
    return [(TOPIC_ID, [(n, WriteResult()) for n in range(partitions)])]


def wire_operations(partitions: int, batches: int) -> list[Operation]:
    """Return the codecs of one request and its response."""
    request, response = write_request(partitions, batches), write_response(partitions)
    request_body = state_requests.encode_request(share_state.WRITE, VERSION, request)
    response_body = state_responses.encode_response(share_state.WRITE, VERSION, response)
    name = f"write, {partitions} × {batches}"
    return [
        Operation(
            f"{name}: decode request",
            partial(state_requests.decode_request, share_state.WRITE, VERSION, request_body),
            request,
        ),
        Operation(
            f"{name}: encode response",
            partial(state_responses.encode_response, share_state.WRITE, VERSION, response),
            response_body,
        ),
        Operation(
            f"{name}: encode request",
            partial(state_requests.encode_request, share_state.WRITE, VERSION, request),
            request_body,
        ),
        Operation(
            f"{name}: decode response",
            partial(state_responses.decode_response, share_state.WRITE, VERSION, response_body),
            response,
        ),
    ]


def connection_operation(pipelined: int) -> Operation:
    """Return taking some requests off the bytes of a client and putting their answers in order."""
    connection = Connection(TABLES.apis, LimitSettings(), "client", now_ms=0)
    request_body = state_requests.encode_request(share_state.WRITE, VERSION, write_request(1, 1))
    answer = state_responses.encode_response(share_state.WRITE, VERSION, write_response(1))
    data = b"".join(
        frames.encode_request(share_state.WRITE, VERSION, n, b"client", request_body) for n in range(pipelined)
    )
    expected = b"".join(frames.encode_response(n, answer, has_tags=True) for n in range(pipelined))

    def exchange() -> bytes:
        connection.receive(data)
        while isinstance(request := connection.next_event(0), Request):
            connection.reply(request, answer)
        return b"".join(connection.take_output())

    return Operation(f"connection: {pipelined} requests in, answers out", exchange, expected)


def main() -> int:
    """Check, time and print every operation."""
    operations: list[tuple[str, Callable[[], Any], Any]] = [
        *(operation for shape in ((1, 1), (16, 1), (16, 3)) for operation in wire_operations(*shape)),
        connection_operation(1),
        connection_operation(32),
    ]
    for name, run, answer in operations:
        if run() != answer:
            print(f"{name}: the answer is {run()!r}, not {answer!r}", file=sys.stderr)
            return 1
        print(f"{name:46}{time_us(run):8.2f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
