"""One connection of a client, without its socket: bytes in, requests out; answers in, in any order, bytes out in order.

Requests may be pipelined; their answers leave in the order of the requests, as Kafka's clients expect. What a peer can
make us hold is bounded: a frame by its size and its time, unanswered requests by their number and bytes. A frame grows
as its bytes arrive; nothing is allocated by the length it announces.

The owner calls `receive` with every chunk, `reply` with every answer, `take_output` to get what can be sent, and
`overdue` now and then. A peer that breaks the protocol is told from a bug of ours: `violation` is set, the connection
takes nothing more, and the owner closes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.daemon.listener_settings import LimitSettings
from holdfast.records.compact import MalformedBody, skip_tags
from holdfast.records.frames import LENGTH_SIZE, encode_response, read_length, read_request_header

API_VERSIONS: Final = 18


class Api(NamedTuple):
    """Say in which versions a call is served."""

    name: str
    #: Inclusive.
    min_version: int
    #: Inclusive.
    max_version: int
    #: First version with compact types and tagged fields.
    flexible_from: int = 0


class Violation(NamedTuple):
    """Say what a peer did that ends its connection."""

    #: One of few words, for limiting how often it is logged.
    kind: str
    text: str


class Request:
    """Hold a request that arrived whole; its body is checked by whoever decodes it."""

    __slots__ = ("_client_id", "_reply", "api_key", "api_version", "body_offset", "correlation_id", "frame", "peer")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: bytes | None,
        frame: bytes,
        body_offset: int,
        peer: str,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._client_id = client_id
        #: The frame without its length; the body reaches from `body_offset` to its end.
        self.frame = frame
        self.body_offset = body_offset
        #: Address of the client, for people.
        self.peer = peer
        self._reply: bytes | None = None

    @property
    def client_id(self) -> str:
        """What the client calls itself, empty when it does not."""
        return "" if self._client_id is None else self._client_id.decode("utf-8", "replace")


class Connection:
    """Turn the bytes of one client into requests, and answers into bytes."""

    def __init__(self, apis: Mapping[int, Api], limits: LimitSettings, peer: str, now_ms: float) -> None:
        self._apis = apis
        self._limits = limits
        self._peer = peer
        #: Bytes that are not a request yet: the beginning of a frame, or whole frames while reading is paused.
        self._buffer = bytearray()
        #: How long the buffer must be before another look at it is worth while.
        self._bytes_needed = LENGTH_SIZE
        #: When the frame at the head of the buffer began to arrive, None while no more of it is asked for.
        self._frame_began_ms: float | None = None
        self._last_active_ms = now_ms
        #: Requests without an answer that has left, in their order.
        self._in_flight: deque[Request] = deque()
        self._bytes_in_flight = 0
        #: Answers that may leave, in their order.
        self._output: list[bytes] = []
        #: True while the peer must wait for answers before more of its bytes are read.
        self.is_paused = False
        #: Why the connection must be closed, None while the peer has done nothing wrong.
        self.violation: Violation | None = None

    @property
    def in_flight(self) -> int:
        """Number of requests whose answer has not left."""
        return len(self._in_flight)

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of frames that are not complete or not looked at."""
        return len(self._buffer)

    def receive(self, data: bytes, now_ms: float) -> list[Request]:
        """Take bytes of the peer; return the requests that are complete, each exactly once, in order.

        With too many requests unanswered it sets `is_paused` and keeps the rest; `resume` goes on with it.
        """
        if self._buffer:
            self._buffer += data
            if self.is_paused or len(self._buffer) < self._bytes_needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        return self._parse(data, now_ms)

    def resume(self, now_ms: float) -> list[Request]:
        """Go on after `is_paused` if enough answers have left; return what `receive` would."""
        limits = self._limits
        # Half of the limit: so that a long queue of small frames is not copied once for each of them.
        if (
            not self.is_paused
            or len(self._in_flight) > limits.requests_in_flight_max // 2
            or self._bytes_in_flight > limits.frame_size_bytes_max // 2
        ):
            return []
        self.is_paused = False
        self._last_active_ms = now_ms
        data = bytes(self._buffer)
        self._buffer.clear()
        return self._parse(data, now_ms)

    def reply(self, request: Request, body: bytes) -> None:
        """Take the answer to a request, once for each; it leaves when those before it have."""
        assert request._reply is None, "a request is answered once"
        has_tags = request.api_version >= self._apis[request.api_key].flexible_from and request.api_key != API_VERSIONS
        request._reply = encode_response(request.correlation_id, body, has_tags)
        in_flight = self._in_flight
        while in_flight and (reply := in_flight[0]._reply) is not None:
            self._bytes_in_flight -= len(in_flight.popleft().frame)
            self._output.append(reply)

    @property
    def has_output(self) -> bool:
        """Whether `take_output` has anything to give."""
        return bool(self._output)

    def take_output(self) -> bytes:
        """Return the bytes that can be sent now, each once."""
        output = self._output
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        return data

    def overdue(self, now_ms: float) -> Violation | None:
        """Return why time is up for this connection, or None."""
        limits = self._limits
        began_ms = self._frame_began_ms
        if began_ms is not None and now_ms - began_ms > limits.frame_timeout_ms:
            held = f"{len(self._buffer)} of {self._bytes_needed} bytes"
            text = f"it began a request and did not complete it in {limits.frame_timeout_ms} ms ({held} arrived)"
            return Violation("slow request", text)
        if self._in_flight:
            # It waits for us.
            self._last_active_ms = now_ms
        elif now_ms - self._last_active_ms > limits.connections_max_idle_ms:
            return Violation("idle", f"it sent no request for {limits.connections_max_idle_ms} ms")
        return None

    def _parse(self, data: bytes, now_ms: float) -> list[Request]:
        requests: list[Request] = []
        limits = self._limits
        in_flight_max, size_max = limits.requests_in_flight_max, limits.frame_size_bytes_max
        in_flight = self._in_flight
        position, available = 0, len(data)
        while self.violation is None:
            if len(in_flight) >= in_flight_max or self._bytes_in_flight >= size_max:
                self.is_paused = True
                break
            start = position + LENGTH_SIZE
            if start > available:
                self._bytes_needed = LENGTH_SIZE
                break
            length = read_length(data, position)
            if not 0 <= length <= size_max:
                self.violation = Violation(
                    "frame size", f"it announces a request of {length} bytes, at most {size_max} are taken"
                )
                break
            end = start + length
            if end > available:
                self._bytes_needed = end - position
                break
            try:
                request = self._read(data[start:end])
            except MalformedBody as error:
                self.violation = Violation("malformed request", str(error))
                break
            if request is None:
                break
            in_flight.append(request)
            self._bytes_in_flight += length
            requests.append(request)
            position = end
        if requests:
            self._last_active_ms = now_ms
        if self.violation is not None:
            return requests
        if position < available:
            self._buffer += data[position:]
            if self.is_paused:
                # Whatever is missing of the next frame, we do not ask for it now.
                self._frame_began_ms = None
            elif requests or self._frame_began_ms is None:
                self._frame_began_ms = now_ms
        else:
            self._frame_began_ms = None
        return requests

    def _read(self, frame: bytes) -> Request | None:
        """Return the request in a frame, or None after setting `violation` when it is for nothing we serve."""
        api_key, version, correlation_id, client_id, offset = read_request_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            self.violation = Violation("unknown API", f"it asks for API key {api_key}, which is not served here")
            return None
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS:
                served = f"{api.min_version} to {api.max_version} are served"
                self.violation = Violation(
                    "unsupported version", f"it asks for version {version} of {api.name}, {served}"
                )
                return None
        elif version >= api.flexible_from:
            offset = (
                skip_tags(frame, offset, "the request header") if frame[offset : offset + 1] != b"\x00" else offset + 1
            )
        return Request(api_key, version, correlation_id, client_id, frame, offset, self._peer)
