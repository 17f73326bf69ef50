"""A plain blocking client for what comes before and after a measurement: find coordinators, initialise, read back."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple, Self, TypeVar

from holdfast.api.results import StateRequest, StateResponse
from holdfast.api.share_state import VERSIONS
from holdfast.api.state_requests import encode_request
from holdfast.api.state_responses import decode_response
from holdfast.kafka.protocol.primitives import (
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    read_string,
)

T = TypeVar("T")

FIND_COORDINATOR: Final = 10
FIND_COORDINATOR_VERSION: Final = 6
SHARE_KEY_TYPE: Final = 2
CLIENT_ID: Final = b"holdfast-benchmark"

_REQUEST_START = Struct(">hhih")  # API key, version, correlation id, length of the client id
_ERROR = Struct(">h")
_NODE = Struct(">i")


class BenchmarkError(Exception):
    """A server answered what it must not, or not in time; the run is worth nothing."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


def request_frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a whole request with header version 2; the correlation id is at byte 8."""
    start = _REQUEST_START.pack(api_key, version, correlation_id, len(CLIENT_ID))
    payload = start + CLIENT_ID + b"\x00" + body
    return len(payload).to_bytes(4, "big") + payload


#: What a new connection to a server goes through first, such as TLS and a login, where it is more than nothing.
OPENINGS: Final[dict[Address, Callable[[socket.socket], socket.socket]]] = {}


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """Connect to a server as it wants it."""
    opened = socket.create_connection(address, timeout=timeout_s)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opening = OPENINGS.get(address)
    return opening(opened) if opening else opened


class Client:
    """One connection on which one call at a time is made."""

    def __init__(self, address: Address, timeout_s: float = 30.0) -> None:
        self._socket = open_socket(address, timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one flexible request and return the body of its response (header version 1).

        Raises:
            BenchmarkError: the response belongs to another request.
            OSError: the connection ended; a broker that is still starting may do that.
        """
        self._correlation_id += 1
        self._socket.sendall(request_frame(api_key, version, self._correlation_id, body))
        payload = self._receive(int.from_bytes(self._receive(4), "big"))
        if payload[:5] != self._correlation_id.to_bytes(4, "big") + b"\x00":
            raise BenchmarkError(f"The response to API {api_key} begins with {payload[:5].hex()}.")
        return payload[5:]

    def share_state(self, api_key: int, request: StateRequest) -> StateResponse:
        """Make one of the five share-state calls in its highest version."""
        version = VERSIONS[api_key][1]
        return decode_response(api_key, version, self.call(api_key, version, encode_request(api_key, version, request)))

    def find_coordinators(self, keys: Sequence[str]) -> list[tuple[int, Address]]:
        """Return for each coordinator key (error code, address of its share coordinator), in the same order."""
        body = bytes((SHARE_KEY_TYPE,)) + encode_varint(len(keys) + 1) + b"".join(map(encode_string, keys)) + b"\x00"
        data = self.call(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)
        count, offset = read_count(data, 4, 1, "Coordinators")
        found: dict[str, tuple[int, Address]] = {}
        for _ in range(count):
            key, offset = read_string(data, offset, "Key")
            host, offset = read_string(data, offset + _NODE.size, "Host")
            (port,) = _NODE.unpack_from(data, offset)
            (error_code,) = _ERROR.unpack_from(data, offset + _NODE.size)
            _, offset = read_nullable_string(data, offset + _NODE.size + _ERROR.size, "ErrorMessage")
            offset += 1
            found[key] = (error_code, Address(host, port))
        return [found[key] for key in keys]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("The server closed a connection in the middle of a response.")
            data += chunk
        return bytes(data)


def wait_until(what: str, attempt: Callable[[], T | None], timeout_s: float = 60.0, pause_s: float = 0.1) -> T:
    """Try until `attempt` returns something; a refused or closed connection is tried again as well.

    Raises:
        BenchmarkError: it did not within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError):
            result = attempt()
            if result is not None:
                return result
        time.sleep(pause_s)
    raise BenchmarkError(f"{what} did not happen within {timeout_s:.0f} s.")
