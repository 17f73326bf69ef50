"""Server-sent events: one line to each open page whenever something may have changed, and nothing that is kept for any of them.

One task asks the source for all streams of readers who are shown the same, while there is any.
A stream that its reader does not take, or one too many, is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from holdfast.page.source import PageSource

#: Streams at a time; browsers have six connections to a host, so this is for ten people.
STREAMS_MAX: Final = 64
#: A line at least so often, by which a reader that is gone is noticed.
BEAT_S: Final = 15.0
#: A reader that has not taken a line for so long is cut off.
UNREAD_S: Final = 10.0
#: A browser comes again after this time, in ms.
_RETRY_MS: Final = 3_000
#: A proxy must not gather lines.
_HEADERS: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))


class Changes:
    """How often the source has changed for some readers, who are shown the same, with any number of waiting streams."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._following: asyncio.Task[None] | None = None
        self._turned = asyncio.Event()
        #: Changes until now.
        self.count = 0
        self.streams = 0

    def enter(self) -> None:
        """Count a stream in; the first one has the source followed."""
        self.streams += 1
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="holdfast-page-changes")
            self._following.add_done_callback(_look_at_failure)

    def leave(self) -> None:
        """Count a stream out."""
        self.streams -= 1
        if not self.streams and self._following is not None:
            self._following.cancel()
            self._following = None

    async def wait(self, seen: int) -> None:
        """Wait until there are more changes than were seen; return at once when the source is followed no longer."""
        if self.count == seen and self.is_followed:
            await self._turned.wait()

    @property
    def is_followed(self) -> bool:
        """Tell whether there will be changes."""
        return self._following is not None and not self._following.done()

    async def _follow(self) -> None:
        try:
            async for _ in self._source.changed():
                self.count += 1
                self._turn()
        finally:
            # Those that wait see that it has ended, once it has.
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()


class EventStream:
    """The answer that goes on: an event for each change."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        #: By audience, those that have streams.
        self._changes: dict[str, Changes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader is gone, takes none, or the source is over."""
        if sum(each.streams for each in self._changes.values()) >= STREAMS_MAX:
            text = f"{STREAMS_MAX} pages have live numbers already; reload to see newer ones."
            # A connection that is kept would take the place of another reader's.
            refusal = JSONResponse({"error": text}, 503, {"Retry-After": "30", "Connection": "close"})
            await refusal(scope, receive, send)
            return
        start: Message = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body"})
            return
        audience = self._source.audience()
        changes = self._changes.setdefault(audience, Changes(self._source))
        changes.enter()
        sending = asyncio.create_task(_send(changes, start, send), name="holdfast-page-events")
        leaving = asyncio.create_task(_gone(receive), name="holdfast-page-reader")
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changes.leave()
            if not changes.streams:
                del self._changes[audience]
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send(changes: Changes, start: Message, send: Send) -> None:
    seen = changes.count
    await send(start)
    await _send_line(send, f"retry: {_RETRY_MS}\n\n")
    while changes.is_followed:
        line = ": nothing has changed\n\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S):
                await changes.wait(seen)
        if changes.count != seen:
            seen, line = changes.count, "event: changed\ndata: {}\n\n"
        await _send_line(send, line)
    await send({"type": "http.response.body"})


async def _send_line(send: Send, line: str) -> None:
    """Send a line.

    Raises:
        TimeoutError: the reader does not take it.
    """
    async with asyncio.timeout(UNREAD_S):
        await send({"type": "http.response.body", "body": line.encode(), "more_body": True})


def _look_at_failure(following: asyncio.Task[None]) -> None:
    """Take notice of how it ended: its streams end with it, and browsers come again."""
    if not following.cancelled():
        following.exception()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
