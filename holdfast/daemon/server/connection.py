"""One connection of a client, without its socket: bytes in, requests out; answers in, in any order, bytes out in order.

Requests may be pipelined; their answers leave in the order of the requests, as Kafka's clients expect. What a peer can
make us hold is bounded: a frame by its size and its time, unanswered requests by their number, their bytes and the
bytes of their answers. A frame grows as its bytes arrive; nothing is allocated by the length it announces. Whole frames
stay bytes until `next_request` takes them, one by one; a large answer is encoded piece by piece, when it is the next to
leave.

The owner calls `receive` with every chunk, `next_request` as long as there is one and time to handle it, `reply` with
every answer, `take_output` to get what can be sent, and `overdue` now and then. A peer that breaks the protocol is told
from a bug of ours: `violation` is set, the connection takes nothing more, and the owner closes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from holdfast.daemon.settings.listener_models import LimitSettings
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.protocol.frames import (
    LENGTH_SIZE,
    encode_response,
    encode_response_head,
    read_length,
    read_request_header,
)
from holdfast.kafka.protocol.primitives import MalformedBody, skip_tags

#: Frames up to this size are handled in one step; larger ones are cut into steps, and wait where memory is short.
SMALL_FRAME_BYTES: Final = 4_096

#: Bytes of memory that a request takes for each byte of its frame while it is carried out: nine bytes name a share
#: partition, for which some objects are made.
WORK_PER_BYTE: Final = 80

#: The body of an answer, whole or in pieces.
Body = bytes | Iterator[bytes]
#: The work that is left of a request. Each element is a step that was done: True if the next one can be done, False if
#: that has to wait for `Request.wake`. Whoever does the steps looks between them whether the request is wanted.
Steps = Iterator[bool]


class Api(NamedTuple):
    """Say in which versions a call is served."""

    name: str
    #: Inclusive.
    min_version: int
    #: Inclusive.
    max_version: int
    #: First version with compact types and tagged fields.
    flexible_from: int = 0
    #: Bytes of memory for each byte of a frame, while the request is carried out.
    work_per_byte: int = WORK_PER_BYTE


class Violation(NamedTuple):
    """Say what a peer did that ends its connection."""

    #: One of few words, for limiting how often it is logged.
    kind: str
    text: str


class Held:
    """Count what requests in flight hold, on one connection or on all of them."""

    __slots__ = ("answer_bytes", "answer_bytes_max", "whole", "work_bytes")

    def __init__(self, whole: Held | None = None, answer_bytes_max: int = 1 << 62) -> None:
        #: Memory for carrying requests out, as estimated.
        self.work_bytes = 0
        #: Room that answers to come have been promised.
        self.answer_bytes = 0
        #: Room that state batches have in one answer.
        self.answer_bytes_max = answer_bytes_max
        #: The count that this one is a part of.
        self.whole = whole


class Request:
    """Hold a request that arrived whole; its body is checked by whoever decodes it.

    It is also the `api.results.Caller` of its share-state call.
    """

    __slots__ = (
        "_answer_bytes",
        "_client_id",
        "_held",
        "_length",
        "_reply",
        "_reserved_bytes",
        "_work_bytes",
        "api_key",
        "api_version",
        "body_offset",
        "correlation_id",
        "failure",
        "frame",
        "is_wanted",
        "peer",
        "wake",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: bytes | None,
        frame: bytes,
        body_offset: int,
        peer: str,
        held: Held,
        work_bytes: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._client_id = client_id
        #: The frame without its length; the body reaches from `body_offset` to its end. Empty once it was decoded.
        self.frame = frame
        self.body_offset = body_offset
        #: Address of the client, for people.
        self.peer = peer
        #: Has the steps of this request go on after one that said that they must wait; None while there are none.
        self.wake: Callable[[], None] | None = None
        #: False once nobody waits for the answer any more.
        self.is_wanted = True
        #: Why there is no answer that could be sent; set before the reply, by whoever could not make one.
        self.failure: Exception | None = None
        self._length = len(frame)
        self._reply: Body | None = None
        self._held = held
        self._work_bytes = work_bytes
        #: Promised to state batches, and all that is promised.
        self._reserved_bytes = 0
        self._answer_bytes = 0

    @property
    def client_id(self) -> str:
        """What the client calls itself, empty when it does not."""
        return "" if self._client_id is None else self._client_id.decode("utf-8", "replace")

    def hold(self, size_bytes: int) -> None:
        """Count so many bytes of the answer to come."""
        self._answer_bytes += size_bytes
        held: Held | None = self._held
        while held is not None:
            held.answer_bytes += size_bytes
            held = held.whole

    def reserve(self, size_bytes: int) -> bool:
        """Promise room in the answer; returns whether there is so much. The first that asks has it in any case."""
        reserved_bytes = self._reserved_bytes + size_bytes
        if self._reserved_bytes and reserved_bytes > self._held.answer_bytes_max:
            return False
        self._reserved_bytes = reserved_bytes
        self.hold(size_bytes)
        return True

    def end_work(self) -> None:
        """Give back what carrying it out takes; what its answer takes, it holds on."""
        work_bytes, self._work_bytes = self._work_bytes, 0
        held: Held | None = self._held
        while held is not None:
            held.work_bytes -= work_bytes
            held = held.whole

    def release(self) -> None:
        """Give back what it holds, its answer included; again is harmless."""
        self.end_work()
        if self._reply is not None:
            # The log may know of the request for a while yet.
            self._reply = b""
        answer_bytes, self._answer_bytes = self._answer_bytes, 0
        held: Held | None = self._held if answer_bytes else None
        while held is not None:
            held.answer_bytes -= answer_bytes
            held = held.whole


class Connection:
    """Turn the bytes of one client into requests, and answers into bytes."""

    def __init__(
        self, apis: Mapping[int, Api], limits: LimitSettings, peer: str, now_ms: float, node: Held | None = None
    ) -> None:
        self._apis = apis
        self._limits = limits
        # Looked up for every request; pydantic's attributes take their time.
        self._frame_size_bytes_max = limits.frame_size_bytes_max
        self._in_flight_max = limits.requests_in_flight_max
        self._answer_bytes_max = limits.write_buffer_bytes_max
        self._node_work_bytes_max = limits.requests_in_flight_bytes_max
        self._work_bytes_share = limits.requests_in_flight_bytes_max // limits.connections_max
        self._peer = peer
        #: What requests in flight hold on all connections, and on this one.
        self._node = Held() if node is None else node
        self._held = Held(self._node, limits.answer_size_bytes_max)
        #: Bytes that were not looked at yet; they begin with a frame, at `_position`.
        self._chunk = b""
        self._position = 0
        #: The beginning of a frame; while there is one, the chunk is empty.
        self._partial = bytearray()
        #: How long the beginning must be before another look at it is worth while.
        self._bytes_needed = LENGTH_SIZE
        #: When the frame that is not complete began to arrive, None while no more of it is asked for.
        self._frame_began_ms: float | None = None
        self._last_active_ms = now_ms
        #: Requests without an answer that has left, in their order.
        self._in_flight: deque[Request] = deque()
        self._bytes_in_flight = 0
        #: The part of the answer at the head that is encoded already, if that leaves in pieces.
        self._pieces: list[bytes] = []
        #: Answers that may leave, in their order.
        self._output: list[bytes] = []
        self._output_bytes = 0
        #: Whether a request came ever.
        self.has_asked = False
        #: True while the peer must wait for answers before more of its requests are begun.
        self.is_paused = False
        #: True while the next request waits for others of the node to end.
        self.is_starved = False
        #: Why the connection must be closed, None while the peer has done nothing wrong.
        self.violation: Violation | None = None

    @property
    def in_flight(self) -> int:
        """Number of requests whose answer has not left."""
        return len(self._in_flight)

    @property
    def unanswered(self) -> int:
        """Number of requests that are being carried out."""
        count = 0
        for request in self._in_flight:
            count += request._reply is None
        return count

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of frames that are not complete or not looked at."""
        return len(self._partial) + len(self._chunk) - self._position

    @property
    def unsent_bytes(self) -> int:
        """Bytes that answers take or will take, those that were given to `take_output` excepted."""
        return self._held.answer_bytes + self._output_bytes

    @property
    def has_unread_chunk(self) -> bool:
        """Whether bytes wait that `next_request` has not looked at."""
        return self._position < len(self._chunk)

    def silent_ms(self, now_ms: float) -> float:
        """Return for how long the peer has waited for nothing and asked for nothing."""
        return 0.0 if self._in_flight else now_ms - self._last_active_ms

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer."""
        if self.violation is not None:
            return
        if self._partial:
            self._partial += data
            if len(self._partial) < self._bytes_needed:
                return
            self._chunk = bytes(self._partial)
            self._partial = bytearray()
        elif self._position < len(self._chunk):
            self._chunk = self._chunk[self._position :] + data
        else:
            self._chunk = data
        self._position = 0

    def next_request(self, now_ms: float) -> Request | None:
        """Return the next request, each exactly once, in order; None when none is complete or it must wait.

        With too much unanswered it sets `is_paused`, and goes on when about half of that has left.
        """
        chunk, position = self._chunk, self._position
        available = len(chunk) - position
        if not available or self.violation is not None or (self.is_paused and not self._may_go_on(now_ms)):
            return None
        if (
            len(self._in_flight) >= self._in_flight_max
            or self._bytes_in_flight >= self._frame_size_bytes_max
            or self._held.answer_bytes + self._output_bytes >= self._answer_bytes_max
        ):
            self.is_paused = True
            return None
        if available < LENGTH_SIZE:
            self._wait_for(LENGTH_SIZE, now_ms)
            return None
        length = read_length(chunk, position)
        if not 0 <= length <= self._frame_size_bytes_max:
            self._refuse(
                "frame size",
                f"it announces a request of {length} bytes, at most {self._frame_size_bytes_max} are taken",
            )
            return None
        start = position + LENGTH_SIZE
        end = start + length
        if end > len(chunk):
            self._wait_for(LENGTH_SIZE + length, now_ms)
            return None
        if self._node.work_bytes >= self._node_work_bytes_max and (
            length > SMALL_FRAME_BYTES or self._held.work_bytes >= self._work_bytes_share
        ):
            self.is_starved = True
            return None
        try:
            request = self._read(chunk[start:end])
        except MalformedBody as error:
            self._refuse("malformed request", str(error))
            return None
        if request is None:
            return None
        if end == len(chunk):
            self._chunk, self._position = b"", 0
        else:
            self._position = end
        self._frame_began_ms = None
        self._in_flight.append(request)
        self._bytes_in_flight += length
        self._last_active_ms = now_ms
        self.has_asked = True
        return request

    def reply(self, request: Request, body: Body) -> None:
        """Take the answer to a request, once for each; it leaves when those before it have."""
        assert request._reply is None, "a request is answered once"
        request._reply = body
        # Others may begin, however long the client takes for the answers before this one.
        request.end_work()
        if request is self._in_flight[0]:
            self._let_leave()

    @property
    def has_output(self) -> bool:
        """Whether `take_output` has anything to give."""
        return bool(self._output)

    @property
    def has_more_to_encode(self) -> bool:
        """Whether the next answer to leave is one for `encode_piece`."""
        if not self._in_flight:
            return False
        reply = self._in_flight[0]._reply
        return reply is not None and not isinstance(reply, bytes)

    def encode_piece(self) -> None:
        """Encode a piece of the next answer to leave; only while `has_more_to_encode`."""
        request = self._in_flight[0]
        reply = request._reply
        assert reply is not None
        assert not isinstance(reply, bytes)
        for piece in reply:
            self._pieces.append(piece)
            return
        pieces, self._pieces = self._pieces, []
        size = sum(map(len, pieces))
        self._in_flight.popleft()
        self._bytes_in_flight -= request._length
        request.release()
        self._output.append(encode_response_head(request.correlation_id, size, self._has_tags(request)))
        self._output += pieces
        self._output_bytes += size
        self._let_leave()

    def take_output(self) -> list[bytes]:
        """Return the bytes that can be sent now, each once."""
        output, self._output = self._output, []
        self._output_bytes = 0
        return output

    def close(self) -> None:
        """Let go of everything; requests that are being carried out learn that nobody waits for them."""
        for request in self._in_flight:
            request.is_wanted = False
            if request._reply is not None:
                request.release()
        self._in_flight.clear()
        self._pieces.clear()
        self._output.clear()
        self._chunk, self._position = b"", 0
        self._partial = bytearray()

    def overdue(self, now_ms: float) -> Violation | None:
        """Return why time is up for this connection, or None."""
        limits = self._limits
        began_ms = self._frame_began_ms if self._partial else None
        if began_ms is not None and now_ms - began_ms > limits.frame_timeout_ms:
            held = f"{len(self._partial)} of {self._bytes_needed} bytes"
            text = f"it began a request and did not complete it in {limits.frame_timeout_ms} ms ({held} arrived)"
            return Violation("slow request", text)
        if self._in_flight or self._position < len(self._chunk):
            # It waits for us.
            self._last_active_ms = now_ms
        elif now_ms - self._last_active_ms > limits.connections_max_idle_ms:
            return Violation("idle", f"it sent no request for {limits.connections_max_idle_ms} ms")
        return None

    def _may_go_on(self, now_ms: float) -> bool:
        # Half of each limit, so that reading is not paused and resumed for each request.
        if (
            len(self._in_flight) > self._in_flight_max // 2
            or self._bytes_in_flight > self._frame_size_bytes_max // 2
            or self._held.answer_bytes + self._output_bytes > self._answer_bytes_max // 2
        ):
            return False
        self.is_paused = False
        self._last_active_ms = now_ms
        return True

    def _wait_for(self, size: int, now_ms: float) -> None:
        """Keep the beginning of a frame until `size` bytes of it are here."""
        self._partial += self._chunk[self._position :]
        self._chunk, self._position = b"", 0
        self._bytes_needed = size
        if self._frame_began_ms is None:
            self._frame_began_ms = now_ms

    def _refuse(self, kind: str, text: str) -> None:
        self.violation = Violation(kind, text)

    def _let_leave(self) -> None:
        """Move whole answers that are next to the output."""
        in_flight = self._in_flight
        while in_flight:
            request = in_flight[0]
            reply = request._reply
            if not isinstance(reply, bytes):
                return
            in_flight.popleft()
            self._bytes_in_flight -= request._length
            request.release()
            output = encode_response(request.correlation_id, reply, self._has_tags(request))
            self._output.append(output)
            self._output_bytes += len(output)

    def _has_tags(self, request: Request) -> bool:
        """Tell whether the header of the answer has tagged fields."""
        return request.api_version >= self._apis[request.api_key].flexible_from and request.api_key != API_VERSIONS

    def _read(self, frame: bytes) -> Request | None:
        """Return the request in a frame, or None after setting `violation` when it is for nothing we serve."""
        api_key, version, correlation_id, client_id, offset = read_request_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            self._refuse("unknown API", f"it asks for API key {api_key}, which is not served here")
            return None
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS:
                served = f"{api.min_version} to {api.max_version} are served"
                self._refuse("unsupported version", f"it asks for version {version} of {api.name}, {served}")
                return None
        elif version >= api.flexible_from:
            offset = (
                skip_tags(frame, offset, "the request header") if frame[offset : offset + 1] != b"\x00" else offset + 1
            )
        work_bytes = len(frame) * api.work_per_byte
        held = self._held
        held.work_bytes += work_bytes
        self._node.work_bytes += work_bytes
        return Request(api_key, version, correlation_id, client_id, frame, offset, self._peer, held, work_bytes)
