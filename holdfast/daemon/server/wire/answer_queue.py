"""Requests in flight on one connection, and their answers: given in any order, sent in the order of the requests.

Kafka's clients expect that order. A large answer is encoded piece by piece, when it is the next to leave. One whose pieces are there
leaves by a bounded number of bytes at a time: its pieces are neither joined nor copied, and each is let go when it was taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from holdfast.daemon.server.wire.requests import Api, Body, Piece, Request
from holdfast.kafka.protocol.frames import encode_response, encode_response_head

#: More than any answer has, and small enough for a number that is no object on the compiled build.
BYTES_MAX: Final = 1 << 60


class AnswerQueue:
    """Requests whose answer has not left, and the answers that may leave."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self._apis = apis
        #: Requests without an answer that has left, in their order.
        self._in_flight: deque[Request] = deque()
        #: Bytes of their frames.
        self.request_bytes = 0
        #: The part of the answer at the head that is encoded already, if that leaves in pieces.
        self._pieces: list[bytes] = []
        #: The part of the answer at the head that has not left, if its pieces were there.
        self._rest: deque[Piece] = deque()
        #: Answers that may leave, in their order.
        self._output: list[Piece] = []
        #: Bytes of answers that may leave and were not given to `take_output`, their heads excepted where in pieces.
        self.output_bytes = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def unanswered(self) -> int:
        """Number of requests that are being carried out."""
        count = 0
        for request in self._in_flight:
            count += request.reply is None
        return count

    @property
    def has_output(self) -> bool:
        """Whether `take_output` has anything to give."""
        return bool(self._output) or bool(self._rest)

    @property
    def has_more_to_encode(self) -> bool:
        """Whether the next answer to leave is one for `encode_piece`."""
        if not self._in_flight:
            return False
        reply = self._in_flight[0].reply
        return reply is not None and not isinstance(reply, bytes | list)

    def begin(self, request: Request) -> None:
        """Put a request behind those in flight."""
        self._in_flight.append(request)
        self.request_bytes += request.size_bytes

    def reply(self, request: Request, body: Body) -> None:
        """Take the answer to a request, once for each; it leaves when those before it have."""
        assert request.reply is None, "a request is answered once"
        request.reply = body
        if isinstance(body, list):
            request.count_pieces(sum(map(len, body)))
        # Others may begin, however long the client takes for the answers before this one.
        request.end_work()
        if request.is_waiting:
            request.end_wait()
        if request is self._in_flight[0]:
            self._move_to_output()

    def encode_piece(self) -> None:
        """Encode a piece of the next answer to leave; only while `has_more_to_encode`."""
        request = self._in_flight[0]
        reply = request.reply
        assert reply is not None
        assert not isinstance(reply, bytes | list)
        for piece in reply:
            self._pieces.append(piece)
            return
        pieces, self._pieces = self._pieces, []
        size = sum(map(len, pieces))
        self._in_flight.popleft()
        self.request_bytes -= request.size_bytes
        request.release()
        self._output.append(encode_response_head(request.correlation_id, size, self._has_tags(request)))
        self._output += pieces
        self.output_bytes += size
        self._move_to_output()

    def take_output(self, bytes_max: int = BYTES_MAX) -> list[Piece]:
        """Return the bytes that can be sent now, each once; of an answer whose pieces were there only what is within the bound."""
        output, self._output = self._output, []
        if not self._rest:  # as nearly always
            self.output_bytes = 0
            return output
        room = bytes_max - self.output_bytes
        self.output_bytes = 0
        while self._rest and room > 0:
            room -= self._take_pieces(output, room)
            if not self._rest:
                request = self._in_flight.popleft()
                self.request_bytes -= request.size_bytes
                request.release()
                self._move_to_output()
                output += self._output
                self._output.clear()
                room -= self.output_bytes
                self.output_bytes = 0
        return output

    def _take_pieces(self, output: list[Piece], bytes_max: int) -> int:
        """Move pieces of the answer at the head to the output; returns how many bytes."""
        rest, taken = self._rest, 0
        while rest and taken < bytes_max:
            piece = rest.popleft()
            if taken + len(piece) > bytes_max:
                view, end = memoryview(piece), bytes_max - taken
                rest.appendleft(view[end:])
                piece = view[:end]
            output.append(piece)
            taken += len(piece)
        self._in_flight[0].sent(taken)
        return taken

    def close(self) -> None:
        """Drop everything; requests that are being carried out learn that their answers are not wanted any more."""
        for request in self._in_flight:
            request.is_wanted = False
            if request.reply is not None:
                request.release()
        self._in_flight.clear()
        self._pieces.clear()
        self._rest.clear()
        self._output.clear()
        self.output_bytes = 0

    def _move_to_output(self) -> None:
        """Move whole answers that are next to the output."""
        in_flight = self._in_flight
        while in_flight:
            request = in_flight[0]
            reply = request.reply
            if not isinstance(reply, bytes):
                if isinstance(reply, list) and not self._rest:
                    self._begin_to_send(request, reply)
                return
            in_flight.popleft()
            self.request_bytes -= request.size_bytes
            request.release()
            output = encode_response(request.correlation_id, reply, self._has_tags(request))
            self._output.append(output)
            self.output_bytes += len(output)

    def _begin_to_send(self, request: Request, pieces: list[Piece]) -> None:
        """Have the pieces of the answer at the head taken, after its own head."""
        head = encode_response_head(request.correlation_id, sum(map(len, pieces)), self._has_tags(request))
        request.count_answer_bytes(len(head))
        self._rest.append(head)
        self._rest.extend(pieces)
        pieces.clear()

    def _has_tags(self, request: Request) -> bool:
        """Return whether the header of the answer has tagged fields."""
        api = self._apis[request.api_key]
        return request.api_version >= api.flexible_from and api.has_answer_tags
