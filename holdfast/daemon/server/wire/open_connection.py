"""A connection of a client, as all that is shared between connections sees it."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from holdfast.daemon.server.wire.requests import Request, Violation
from holdfast.daemon.server.wire.turns import Payer, Worker


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenConnection(Worker):
    """A connection of a client, as its server sees it; also a `buffers.Buffered`."""

    def __init__(self) -> None:
        """Begin with a client that is not known yet."""
        super().__init__(Payer())
        #: Address of the client, with its port and without.
        self.address = "unknown"
        self.host = "unknown"
        #: Whether a request of it is in a `RequestBatch`, to which this belongs: no other one of it is begun before that one.
        self.is_in_batch = False

    def begin(self, request: Request) -> None:
        """Hand the request that was in a batch to the handler, unless the client is gone."""
        raise NotImplementedError

    @property
    def is_unanswered(self) -> bool:
        """Whether a request is being carried out."""
        raise NotImplementedError

    def silent_ms(self, now_ms: float) -> float:
        """Return for how long the client has sent no request and waited for no answer."""
        raise NotImplementedError

    def count_buffered_bytes(self) -> int:
        """See `buffers.Buffered`."""
        raise NotImplementedError

    def count_unsent_bytes(self) -> int:
        """See `buffers.Buffered`."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write the answers that may leave; it must not raise, for others are flushed behind it."""
        raise NotImplementedError

    def drain(self) -> None:
        """Take no more requests, and close when those in flight are answered."""
        raise NotImplementedError

    def close_if_overdue(self, now_ms: float) -> None:
        """Close if time is up."""
        raise NotImplementedError

    def close(self, violation: Violation) -> None:
        """Close because of what the client did."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close without waiting for anything."""
        raise NotImplementedError
