"""One client connection without its socket: bytes in, events out; answers in, in any order, bytes out in order.

Requests may be pipelined. What a client can make us keep is bounded: a frame by its size and its time, unanswered
requests by their number, their bytes and the bytes of their answers (`frame_reader`, `answer_queue`).

The owner calls `receive` with every chunk, `next_event` until it gives no request or time is up, `reply` with every
answer, `take_output` to get what can be sent, and `overdue` now and then. A client that breaks the protocol is an event,
`Violation`, after which the connection takes nothing more and the owner closes it; an exception is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from holdfast.daemon.server.wire.accounts import Account
from holdfast.daemon.server.wire.answer_queue import BYTES_MAX, AnswerQueue
from holdfast.daemon.server.wire.frame_reader import FrameReader
from holdfast.daemon.server.wire.requests import (
    ANONYMOUS,
    SMALL_FRAME_BYTES,
    Api,
    Body,
    ClientConnection,
    Piece,
    Request,
    RequestMemory,
    Violation,
    WireBounds,
)
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol.frames import read_request_header
from holdfast.kafka.protocol.primitives import MalformedBody, skip_tags


class Wait(Enum):
    """What must happen before there can be another event."""

    #: More bytes of the client.
    NEED_DATA = "need data"
    #: About half of what is unanswered or unsent on this connection leaves; `is_paused` until then.
    PAUSED = "paused"
    #: Requests of other connections end: together they take all the memory that requests may take.
    NEED_MEMORY = "need memory"
    #: Requests of the same client end, on this connection or on another one of its: it has all that one client may have.
    NEED_QUOTA = "need quota"


NEED_DATA: Final = Wait.NEED_DATA
PAUSED: Final = Wait.PAUSED
NEED_MEMORY: Final = Wait.NEED_MEMORY
NEED_QUOTA: Final = Wait.NEED_QUOTA

#: While a connection holds more bytes than this of requests that are not begun, it is not read from.
_READ_AHEAD_BYTES: Final = 65_536

#: What `Connection.next_event` returns.
Event = Request | Violation | Wait


class Connection:
    """One client: its bytes as requests in order, and answers as bytes."""

    def __init__(
        self,
        apis: Mapping[int, Api],
        limits: LimitSettings,
        client_address: str,
        now_ms: float,
        node_memory: RequestMemory | None = None,
        bounds: WireBounds | None = None,
        client: ClientConnection | None = None,
    ) -> None:
        """Begin a connection that shares `node_memory` with all others of the node; `client` is what calls see of it."""
        self._apis = apis
        self._limits = limits
        bounds = bounds or WireBounds()
        self._frame_timeout_ms = bounds.frame_timeout_ms
        # Looked up for every request; pydantic's attributes take their time.
        self._frame_size_bytes_max = limits.frame_size_bytes_max
        self._in_flight_max = bounds.requests_in_flight_max
        self._answer_bytes_max = bounds.write_buffer_bytes_max
        self._node_work_bytes_max = limits.requests_in_flight_bytes_max
        self._work_bytes_share = limits.requests_in_flight_bytes_max // limits.connections_max
        self._client_address = client_address
        self._client = client
        #: Who the client has proved to be, as `User:name`; of the requests that come from now on.
        self.principal = ANONYMOUS
        #: What requests in flight take on all connections, and on this one.
        self._node_memory = RequestMemory() if node_memory is None else node_memory
        self._memory = RequestMemory(self._node_memory, limits.answer_size_bytes_max)
        #: Whose requests they are; None: nobody counts them.
        self._account: Account | None = None
        self._frames = FrameReader(limits.frame_size_bytes_max)
        self._answers = AnswerQueue(apis)
        #: Until when the client must be let in; None: it is.
        self._login_due_ms: float | None = None
        self._last_active_ms = now_ms
        #: True while the client must wait for answers before more of its requests are begun.
        self.is_paused = False
        #: Why the connection must be closed, None while the client has done nothing wrong.
        self._violation: Violation | None = None

    @property
    def in_flight(self) -> int:
        """Number of requests whose answer has not left."""
        return len(self._answers)

    @property
    def unanswered(self) -> int:
        """Number of requests that are being carried out."""
        return self._answers.unanswered

    @property
    def buffered_bytes(self) -> int:
        """Bytes of frames that are not complete or not begun."""
        return self._frames.buffered_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that answers take or will take, those that were given to `take_output` excepted."""
        return self._memory.answer_bytes + self._answers.output_bytes

    @property
    def has_unread_chunk(self) -> bool:
        """Whether bytes wait that `next_event` has not looked at."""
        return self._frames.has_unread_chunk

    @property
    def is_ahead(self) -> bool:
        """Whether it has so much of requests that are not begun that no more is to be read."""
        return self.has_unread_chunk and (self.is_paused or self.buffered_bytes > _READ_AHEAD_BYTES)

    @property
    def has_output(self) -> bool:
        """Whether `take_output` has anything to give."""
        return self._answers.has_output

    @property
    def has_more_to_encode(self) -> bool:
        """Whether the next answer to leave is one for `encode_piece`."""
        return self._answers.has_more_to_encode

    def silent_ms(self, now_ms: float) -> float:
        """Return for how long the client has sent no request and waited for no answer."""
        return 0.0 if len(self._answers) else now_ms - self._last_active_ms

    def join(self, account: Account) -> None:
        """Count requests from now on as those of `account`; what is in flight stays counted where it was."""
        self._account = account
        self._memory = RequestMemory(account.memory, self._limits.answer_size_bytes_max)

    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._violation is None:
            self._frames.receive(data)

    def await_login(self, frame_size_bytes_max: int, due_ms: float) -> None:
        """Take only requests that come before a login, in smaller frames, until `let_in`, which must come before `due_ms`."""
        self._frames.frame_size_bytes_max = frame_size_bytes_max
        self._login_due_ms = due_ms

    def let_in(self, principal: str) -> None:
        """Take requests of all calls from now on; they are those of `principal`."""
        self.principal = principal
        self._frames.frame_size_bytes_max = self._frame_size_bytes_max
        self._login_due_ms = None

    def next_event(self, now_ms: float) -> Event:
        """Return what comes next of the bytes received.

        Returns:
            The next `Request`, each exactly once, in order; or what must happen before there can be one (`Wait`); or the
            `Violation` for which the connection is to be closed, from then on at each call.
        """
        if self._violation is not None:
            return self._violation
        frames = self._frames
        if not frames.has_unread_chunk:
            return NEED_DATA
        if self.is_paused and not self._try_resume(now_ms):
            return PAUSED
        answers = self._answers
        if (
            len(answers) >= self._in_flight_max
            or answers.request_bytes >= self._frame_size_bytes_max
            or self._memory.answer_bytes + answers.output_bytes >= self._answer_bytes_max
        ):
            self.is_paused = True
            return PAUSED
        length = frames.next_length(now_ms)
        if length is None:
            return NEED_DATA
        if not frames.is_allowed(length):
            return self._refuse(
                "frame_size_exceeded",
                f"it announces a request of {length} bytes, at most {frames.frame_size_bytes_max} are taken",
            )
        if not frames.is_whole(length, now_ms):
            return NEED_DATA
        if self._node_memory.work_bytes >= self._node_work_bytes_max and (
            length > SMALL_FRAME_BYTES or self._memory.work_bytes >= self._work_bytes_share
        ):
            return NEED_MEMORY
        if self._account is not None and not self._account.has_room(length > SMALL_FRAME_BYTES):
            return NEED_QUOTA
        try:
            event = self._read(frames.take(length))
        except MalformedBody as error:
            return self._refuse("malformed_request_received", str(error))
        if isinstance(event, Request):
            answers.begin(event)
            self._last_active_ms = now_ms
        return event

    def reply(self, request: Request, body: Body) -> None:
        """Take the answer to a request, once for each; it leaves when those before it have."""
        self._answers.reply(request, body)

    def encode_piece(self) -> None:
        """Encode a piece of the next answer to leave; only while `has_more_to_encode`."""
        self._answers.encode_piece()

    def take_output(self, bytes_max: int = BYTES_MAX) -> list[Piece]:
        """Return the bytes that can be sent now, each once; of an answer whose pieces were there only what is within the bound."""
        return self._answers.take_output(bytes_max)

    def close(self) -> None:
        """Drop everything; requests that are being carried out learn that their answers are not wanted any more."""
        self._answers.close()
        self._frames.clear()
        if self._client is not None:
            self._client.close()

    def overdue(self, now_ms: float) -> Violation | None:
        """Return that a login or a request took too long to arrive whole, or None."""
        frames, due_ms = self._frames, self._login_due_ms
        if due_ms is not None and now_ms > due_ms:
            return Violation("login_timed_out", "it has not come in within its time (listener.login.timeout.ms)")
        began_ms = frames.incomplete_since_ms
        if began_ms is not None and now_ms - began_ms > self._frame_timeout_ms:
            text = (
                f"it began a request and did not complete it in {self._frame_timeout_ms} ms ({frames.progress} arrived)"
            )
            return Violation("request_timed_out", text)
        return None

    def is_idle(self, now_ms: float) -> bool:
        """Tell whether the client has sent no request for too long; while it waits for answers it is not idle."""
        if len(self._answers) or self._frames.has_unread_chunk:
            self._last_active_ms = now_ms
        return now_ms - self._last_active_ms > self._limits.connections_max_idle_ms

    def _try_resume(self, now_ms: float) -> bool:
        """End a pause if enough has left: half of each limit, so that reading is not paused and resumed for each request."""
        answers = self._answers
        if (
            len(answers) > self._in_flight_max // 2
            or answers.request_bytes > self._frame_size_bytes_max // 2
            or self._memory.answer_bytes + answers.output_bytes > self._answer_bytes_max // 2
        ):
            return False
        self.is_paused = False
        self._last_active_ms = now_ms
        return True

    def _refuse(self, kind: str, text: str) -> Violation:
        self._violation = violation = Violation(kind, text)
        return violation

    def _read(self, frame: bytes) -> Request | Violation:
        """Return the request in a frame, or a violation when it is for a call or a version that is not served."""
        api_key, version, correlation_id, client_id, offset = read_request_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            return self._refuse("unknown_api_requested", f"it requests API key {api_key}, which is not served here")
        if self._login_due_ms is not None and not api.is_before_login:
            return self._refuse("login_skipped", f"it requests {api.name} and has not logged in")
        if not api.min_version <= version <= api.max_version:
            if not api.takes_any_version:
                served = f"{api.min_version} to {api.max_version} are served"
                return self._refuse(
                    "unsupported_version_requested", f"it requests version {version} of {api.name}, {served}"
                )
        elif version >= api.flexible_from:
            offset = (
                skip_tags(frame, offset, "the request header") if frame[offset : offset + 1] != b"\x00" else offset + 1
            )
        work_bytes = len(frame) * api.work_per_byte
        memory = self._memory
        memory.count_work(1, work_bytes)
        return Request(
            api_key,
            version,
            correlation_id,
            client_id,
            frame,
            offset,
            self._client_address,
            memory,
            work_bytes,
            self.principal,
            None if self._account is None else self._account.backlog,
            self._client,
        )
