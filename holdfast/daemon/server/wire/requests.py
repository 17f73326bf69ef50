"""One request: the call it is for, what its client did wrong, the memory it takes, its connection, and the request itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from holdfast.daemon.server.wire.turns import Backlog

#: Frames up to this size are handled in one step; larger ones are cut into steps, and wait where memory is short.
SMALL_FRAME_BYTES: Final = 4_096

#: Bytes of memory that a request takes for each byte of its frame while it is carried out: nine bytes name a share
#: partition, for which some objects are made.
WORK_PER_BYTE: Final = 80

#: Who a client is that has not said it, or was not asked to. Source: Kafka's `KafkaPrincipal.ANONYMOUS`.
ANONYMOUS: Final = "User:ANONYMOUS"

#: Requests of one connection that may wait for long: Kafka's clients have one or two.
_WAITING_MAX: Final = 8

#: A part of an answer.
Piece = bytes | memoryview
#: The body of an answer: whole; in pieces that are there, which are sent as they are and in order, and the list is the connection's
#: from then on; or in pieces that are encoded when it is the next to leave.
Body = bytes | list[Piece] | Iterator[bytes]
#: Takes the body of an answer, once.
Respond = Callable[[Body], None]
#: The work that is left of a request. Each element is a step that was done: True if the next one can be done, False if
#: that has to wait for `Request.wake`. The caller of the steps checks between them whether the answer is still wanted.
Steps = Iterator[bool]


@final
@dataclass(frozen=True)
class Api:
    """What holds for the requests of a call before its handler sees them."""

    name: str
    #: Inclusive.
    min_version: int
    #: Inclusive.
    max_version: int
    #: First version with compact types and tagged fields.
    flexible_from: int = 0
    #: Bytes of memory for each byte of a frame, while the request is carried out.
    work_per_byte: int = WORK_PER_BYTE
    #: Whether the header of an answer has tagged fields in flexible versions; that of ApiVersions must be readable to a
    #: client that does not know them.
    has_answer_tags: bool = True
    #: Whether the handler sees versions that are not served, too; else such a request ends the connection.
    takes_any_version: bool = False
    #: Whether it is served before the client has logged in; any other request ends the connection then.
    is_before_login: bool = False
    #: Whether small requests of different connections that came in one turn of the loop are begun together.
    is_batched: bool = False


class WireBounds(NamedTuple):
    """The bounds of one connection, and of its turn, that no operator has a reason to choose."""

    #: A request that has begun to arrive must be complete by then: 8 MiB over a slow line.
    frame_timeout_ms: int = 30_000
    #: Requests that may wait for an answer; then nothing more is read. Brokers have one in flight, pipelining tools tens.
    requests_in_flight_max: int = 64
    #: Bytes of answers that may wait for the client or be on their way; then none of its requests is begun.
    write_buffer_bytes_max: int = 1 << 20
    #: Time that a client whose requests are answered has at a stop to take the answers: a round trip to another continent.
    unread_timeout_ms: int = 500
    #: Silence after which a connection gives its place to a new one if none is free: clients that work are not silent.
    silent_ms: int = 1_000
    #: Requests are worked on for so long, then the loop turns to sockets and the log.
    slice_ms: int = 5


class Violation(NamedTuple):
    """What a client did that ends its connection."""

    #: One of few words, for limiting how often it is logged.
    kind: str
    text: str


class RequestMemory:
    """Requests in flight and the memory that they take: on one connection, of one client, or on all connections."""

    __slots__ = ("answer_bytes", "answer_bytes_max", "requests", "whole", "work_bytes")

    def __init__(self, whole: RequestMemory | None = None, answer_bytes_max: int = 1 << 62) -> None:
        #: Number of requests that are being carried out.
        self.requests = 0
        #: Memory for carrying them out, as estimated.
        self.work_bytes = 0
        #: Room that answers to come have been promised.
        self.answer_bytes = 0
        #: Room that state batches have in one answer.
        self.answer_bytes_max = answer_bytes_max
        #: The count that this one is a part of.
        self.whole = whole

    def count_work(self, requests: int, work_bytes: int) -> None:
        """Count so many more requests, or fewer, here and in all that this count is a part of."""
        memory: RequestMemory | None = self
        while memory is not None:
            memory.requests += requests
            memory.work_bytes += work_bytes
            memory = memory.whole

    def count_answer(self, answer_bytes: int) -> None:
        """Count so many more bytes that are promised to answers, or fewer, here and in all that this count is a part of."""
        memory: RequestMemory | None = self
        while memory is not None:
            memory.answer_bytes += answer_bytes
            memory = memory.whole


@dataclass
class WaitingMemory:
    """Bytes of the requests that wait for long, on all connections."""

    #: So many may wait; further requests are answered at once.
    bytes_max: int
    taken_bytes: int = 0
    #: Whether none may wait any more, because the server stops.
    is_stopping: bool = False


def _run(task: Callable[[], None]) -> None:
    task()


@final
class ClientConnection:
    """A connection of a client as the calls see it: equal to itself alone, so that it can be the key of a table."""

    def __init__(
        self,
        address: str,
        host: str,
        memory: WaitingMemory,
        call_soon: Callable[[Callable[[], None]], None] = _run,
    ) -> None:
        """Begin without a request that waits; `call_soon` runs a task in the next turn of the loop."""
        #: The address of the client, with its port and without.
        self.address = address
        self.host = host
        #: False once the connection has ended.
        self.is_open = True
        self._memory = memory
        self._call_soon = call_soon
        self._ended: Callable[[], None] | None = None
        #: Requests that wait for long, with what has each answered.
        self._waiting: dict[Request, Callable[[], None]] = {}

    @property
    def waiting(self) -> int:
        """Number of requests that wait for long."""
        return len(self._waiting)

    def on_close(self, ended: Callable[[], None]) -> None:
        """Call `ended` once in the turn of the loop after that in which the connection ends, for any reason; there is one such call.

        Where it has ended already, the call comes in the next turn.
        """
        assert self._ended is None, "one call is told of the end of a connection"
        self._ended = ended
        if not self.is_open:
            self._call_soon(ended)

    def begin_wait(self, request: Request, answer_now: Callable[[], None]) -> bool:
        """See `Request.wait`."""
        memory, size = self._memory, request.size_bytes
        if (
            memory.is_stopping
            or not self.is_open
            or len(self._waiting) >= _WAITING_MAX
            or memory.taken_bytes + size > memory.bytes_max
        ):
            return False
        self._waiting[request] = answer_now
        memory.taken_bytes += size
        return True

    def end_wait(self, request: Request) -> None:
        """End the wait of a request; again is harmless."""
        if self._waiting.pop(request, None) is not None:
            self._memory.taken_bytes -= request.size_bytes

    def answer_waiting(self) -> None:
        """Have all requests answered that wait; from then on they do not."""
        while self._waiting:
            request = next(iter(self._waiting))
            answer_now = self._waiting[request]
            request.end_wait()
            answer_now()

    def close(self) -> None:
        """Tell of the end of the connection; again is harmless."""
        if not self.is_open:
            return
        self.is_open = False
        for request in list(self._waiting):
            request.end_wait()
        if self._ended is not None:
            self._call_soon(self._ended)


class Request:
    """A request that arrived whole; its body is checked where it is decoded.

    It is also the `api.results.Caller` of its share-state call.
    """

    __slots__ = (
        "_answer_bytes",
        "_backlog",
        "_client_id",
        "_memory",
        "_reserved_bytes",
        "_work_bytes",
        "api_key",
        "api_version",
        "body_offset",
        "client_address",
        "connection",
        "correlation_id",
        "failure",
        "frame",
        "is_waiting",
        "is_wanted",
        "principal",
        "reply",
        "size_bytes",
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
        client_address: str,
        memory: RequestMemory,
        work_bytes: int,
        principal: str = ANONYMOUS,
        backlog: Backlog | None = None,
        connection: ClientConnection | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._client_id = client_id
        #: The frame without its length; the body reaches from `body_offset` to its end. Empty once it was decoded.
        self.frame = frame
        self.body_offset = body_offset
        #: Of the client, for people.
        self.client_address = client_address
        #: Who the client had proved to be when the request came, as `User:name`.
        self.principal = principal
        #: Has the steps of this request go on after one that said that they must wait; None while there are none.
        self.wake: Callable[[], None] | None = None
        #: False once the client is gone.
        self.is_wanted = True
        #: On which it came; None: on none, as of a call of this process.
        self.connection = connection
        #: Whether it waits for an event that may be long in coming (`wait`).
        self.is_waiting = False
        #: Why there is no answer that could be sent; set before the reply, by the code that could not make one.
        self.failure: Exception | None = None
        #: Of the whole frame, also once that was decoded.
        self.size_bytes = len(frame)
        #: The answer, None until there is one; empty again once it has left.
        self.reply: Body | None = None
        self._memory = memory
        #: Of its client; None: nobody takes turns.
        self._backlog = backlog
        self._work_bytes = work_bytes
        #: Promised to state batches, and all that is promised.
        self._reserved_bytes = 0
        self._answer_bytes = 0

    @property
    def client_id(self) -> str:
        """What the client calls itself, empty when it does not."""
        return "" if self._client_id is None else self._client_id.decode("utf-8", "replace")

    def count_answer_bytes(self, size_bytes: int) -> None:
        """Count so many bytes of the answer to come."""
        self._answer_bytes += size_bytes
        self._memory.count_answer(size_bytes)

    def reserve(self, size_bytes: int) -> bool:
        """Promise room in the answer; returns whether there is so much. The first call has it in any case."""
        reserved_bytes = self._reserved_bytes + size_bytes
        if self._reserved_bytes and reserved_bytes > self._memory.answer_bytes_max:
            return False
        self._reserved_bytes = reserved_bytes
        self.count_answer_bytes(size_bytes)
        return True

    def go_on(self, task: Callable[[], None]) -> None:
        """Run a task of this request, which waited for an event, in a turn of its client."""
        if self._backlog is None:
            task()
        else:
            self._backlog.add(task)

    def wait(self, answer_now: Callable[[], None]) -> bool:
        """Wait for an event that may be long in coming, such as a record; nobody else waits for this request meanwhile.

        It is not carried out while it waits: others may begin in its place, and a stop of the node is not held up by it.
        The end of the wait is the answer, or the end of the connection, after which no answer is needed.

        Args:
            answer_now: is called at most once, when the server stops: the request is carried out again, to be answered at once.

        Returns:
            whether it may wait; False: too many wait, or the server stops, so it must be answered with what is there.
        """
        connection = self.connection
        if self.reply is not None or connection is None or not connection.begin_wait(self, answer_now):
            return False
        self.is_waiting = True
        self.end_work()
        return True

    def end_wait(self) -> None:
        """End its wait; again is harmless."""
        if self.is_waiting:
            self.is_waiting = False
            if self.connection is not None:
                self.connection.end_wait(self)

    def end_work(self) -> None:
        """Give back what carrying it out takes; what its answer takes, it keeps."""
        work_bytes, self._work_bytes = self._work_bytes, 0
        if work_bytes:
            self._memory.count_work(-1, -work_bytes)

    def count_pieces(self, size_bytes: int) -> None:
        """Count the bytes of an answer that is there, beyond those that were promised to it."""
        if size_bytes > self._answer_bytes:
            self.count_answer_bytes(size_bytes - self._answer_bytes)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of its answer that have left."""
        self._answer_bytes -= size_bytes
        self._memory.count_answer(-size_bytes)

    def release(self) -> None:
        """Give back all it takes, its answer included; again is harmless."""
        self.end_work()
        if self.is_waiting:
            self.end_wait()
        if self.reply is not None:
            # The log may know of the request for a while yet.
            self.reply = b""
        answer_bytes, self._answer_bytes = self._answer_bytes, 0
        if answer_bytes:
            self._memory.count_answer(-answer_bytes)


class StepwiseRequest:
    """A request that is begun in steps; a connection has one at most, and takes no other before its last step."""

    def __init__(self, request: Request, steps: Steps) -> None:
        self.request = request
        self._steps = steps
        #: Whether a step is being done; it may end the connection.
        self.is_running = False
        #: Whether the next step has to wait for `Request.wake`.
        self.is_waiting = False
        #: Whether no step is left; one that raises is the last.
        self.is_done = False

    def step(self) -> None:
        """Do the next step.

        Raises:
            MalformedBody: the body does not follow its API.
        """
        request, self.is_running, self.is_done = self.request, True, True
        try:
            self.is_waiting = not next(self._steps)
            self.is_done = False
        except StopIteration:
            pass
        finally:
            self.is_running = False
            if self.is_done:
                request.frame = b""
                request.wake = None
