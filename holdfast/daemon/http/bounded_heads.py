"""uvicorn's connection, with a bound on the head of a request that holds however its bytes come, and a refusal that fails at no body.

h11 has a bound for heads that are not complete: one that comes in a single read of the socket is complete at once, and one behind another
request as soon as that is answered. So h11 is given no more than a head may have, and nothing of the next request before it is due.
"""

from __future__ import annotations

from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: States of a client in which its next bytes are of the request that is due: its head, or its body.
_SENDS: Final = (h11.IDLE, h11.SEND_BODY)
#: States of ours in which an answer may begin.
_MAY_ANSWER: Final = (h11.IDLE, h11.SEND_RESPONSE)


class BoundedHeads(H11Protocol):
    """A connection that keeps what came and is not due."""

    #: Bytes that h11 was not given.
    _unread = b""

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._unread += data
        self._give()

    def on_response_complete(self) -> None:
        """Go on with the next request, which may have come already."""
        super().on_response_complete()
        self._give()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are none of HTTP; where they are of a body, its request may be in the middle of its answer, or have it.

        uvicorn's own would begin a second answer, and the application, which learns of nothing, a third.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _MAY_ANSWER:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _give(self) -> None:
        head_bytes_max = self.config.h11_max_incomplete_event_size
        assert head_bytes_max is not None
        while self._unread and not self.transport.is_closing():
            if self.conn.their_state not in _SENDS:
                self.flow.pause_reading()
                return
            begun, _ = self.conn.trailing_data
            # One byte is given in any case: h11 refuses a head when it is longer than it may be, and not before.
            room = max(1, head_bytes_max - len(begun))
            given, self._unread = self._unread[:room], self._unread[room:]
            super().data_received(given)
