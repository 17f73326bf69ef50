"""The page at a node's HTTP port as an application; what it needs is imported when somebody looks first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.http.queries import Ask
from holdfast.daemon.http.readers import reader_of
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.tenant import LogParts
from holdfast.distribution import how_to_install
from holdfast.http_refusals import refusal
from holdfast.kafka.addresses import find_host
from holdfast.page.past import History
from holdfast.share.page.kept_answers import Asked, KeptAnswers, Recorder
from holdfast.share.page.node_page import HISTORY_OPTION, NodePage
from holdfast.share.page.others import Query
from holdfast.share.page.purse import Account, Purse
from holdfast.share.page.rights import READER
from holdfast.share.page.samples import Samples

#: Paths whose answers are cut from a moment.
_OF_MOMENTS: Final = frozenset({"/", "/group", "/window", "/api/v1/group-topics", "/api/v1/group", "/api/v1/window"})
#: Time of the loop that a request takes beside its answer, in seconds.
_REQUEST_S: Final = 0.001
#: A connection that is kept would take the place of another reader's.
_TOO_MANY: Final = {"Retry-After": "30", "Connection": "close"}
#: How long a request waits for time of the loop: less than the port and the script of the page have patience.
_PATIENCE_S: Final = 15.0
_NO_TIME: Final = "The page has used up its part of the node's time; look again in a minute, or use the command line."
#: Sites by which a browser calls a request of the page itself, or of a person who typed its address.
_OWN_SITES: Final = (b"same-origin", b"none")
#: After the last look everything is kept for so long.
_KEPT_S: Final = 60.0


def wall_now_ms() -> int:
    """Return the time of the calendar, in ms since 1970."""
    return time.time_ns() // 1_000_000


class PageSite:
    """The application of one node, from when its log was found on."""

    def __init__(
        self,
        log: LogParts,
        authorizer: Authorizer,
        query: Query,
        ask: Ask,
        names: Collection[str] | None,
        connections_max: int,
        internal_errors: InternalErrors,
        history_dir: str = "",
        samples: Samples | None = None,
    ) -> None:
        """Import and look at nothing yet.

        Args:
            log: the parts of the node.
            authorizer: decides what readers may see.
            query: asks another node.
            ask: runs commands of the node.
            names: by which requests may call the port, besides every address; None: any.
            connections_max: of the port, of which events get a part.
            internal_errors: counts what is a mistake of ours.
            history_dir: place of the history; empty: none is named.
            samples: know what the node finished before somebody looked; None: nobody knows.
        """
        self._purse = Purse()
        history = History(history_dir, HISTORY_OPTION) if history_dir else None
        self._source = NodePage(log, authorizer, query, ask, self._purse, wall_now_ms, history, samples)
        self._names = names
        self._internal_errors = internal_errors
        self._app: ASGIApp | None = None
        self._making: asyncio.Future[ASGIApp] | None = None
        self._kept = KeptAnswers()
        #: A lock for each account of which a request waits.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        #: Probes and Prometheus need connections, too.
        self._streams_max = max(1, connections_max // 2)
        self._streams = 0
        #: Requests that are being answered, events included.
        self._looks = 0
        self._forgetting: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        READER.set(reader_of(scope))
        self._looks += 1
        try:
            if self._app is None:
                # It takes some tenths of a second.
                self._making = self._making or asyncio.ensure_future(asyncio.to_thread(self._make_app))
                self._app = await asyncio.shield(self._making)
            if scope["path"] == "/events":
                await self._stream(self._app, scope, receive, send)
            else:
                await self._look(self._app, scope, receive, send)
        finally:
            self._looks -= 1
            self._forget_later()

    async def _stream(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with events, which go on; the task that makes them is none of this request."""
        if self._streams >= self._streams_max:
            text = f"{self._streams_max} pages have live numbers already; reload to see newer ones."
            await refusal(scope, 503, text, _TOO_MANY)(scope, receive, send)
            return
        self._streams += 1
        try:
            await app(scope, receive, send)
        finally:
            self._streams -= 1

    async def _look(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        reader = READER.get()
        account = self._purse.account(reader.principal)
        turn = self._turns.setdefault(account.name, asyncio.Lock())
        # A page without its style could not be read, and files cost next to nothing.
        must_wait = not scope["path"].startswith("/static/") and (turn.locked() or account.is_empty)
        if must_wait and not await _wait(_take_turn(turn, account), scope, receive, send):
            return
        account.pay(_REQUEST_S)
        # The guard of the page looks at requests that another site may have made.
        is_shared = scope["method"] == "GET" and scope["path"] in _OF_MOMENTS and _is_of_no_site(scope)
        version = await self._source.version() if is_shared else None
        if version is None:
            await account.timed(_run(app, scope, receive, send))
            return
        asked = Asked(scope["path"], scope["query_string"], reader.principal, find_host(reader.client_address))
        if (kept := self._kept.find(version, asked)) is not None:
            for message in kept:
                await send(message)
            return
        recorder = Recorder(send)
        await account.timed(_run(app, scope, receive, recorder))
        if version.is_same(await self._source.version()):
            self._kept.keep(version, asked, tuple(recorder.sent))

    def _forget_later(self) -> None:
        """Keep nothing from some time after the last look on."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(_KEPT_S, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        if not self._looks:
            self._kept.forget()
            self._source.forget()

    def describe(self) -> Mapping[str, Any]:
        """See `Site.describe`."""
        try:
            from holdfast.page.web.app import QUERIES
        except ImportError:  # no page is there without it
            return {}
        from holdfast.page.web import openapi

        return openapi.describe(QUERIES)

    async def close(self) -> None:
        """End what is being made."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        await self._source.close()

    def _make_app(self) -> ASGIApp:
        try:
            from holdfast.page.web.app import make_app
        except ImportError as missing:
            text = f"The page needs {missing.name}, which is not installed; {how_to_install('page')}."
            return _Refused(501, text)
        note = partial(self._internal_errors.note_bug, "page_failed")
        return make_app(self._source.veiled(), self._names, lambda error, path: note(error, path=path))


class _Refused:
    """An application that refuses every request."""

    def __init__(self, status: int, text: str) -> None:
        self._status = status
        self._text = text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refusal(scope, self._status, self._text)(scope, receive, send)


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _wait(turn: Coroutine[Any, Any, None], scope: Scope, receive: Receive, send: Send) -> bool:
    """Wait for the turn of a request, tell whether it came, and refuse it where it did not; one whose client has gone is forgotten."""
    taking, gone = asyncio.ensure_future(turn), asyncio.ensure_future(_gone(receive))
    try:
        done, _ = await asyncio.wait((taking, gone), timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            refused = refusal(scope, 503, _NO_TIME, {"Retry-After": "60"}, has_style=True)
            await refused(scope, receive, send)
        return taking in done and gone not in done
    finally:
        taking.cancel()
        gone.cancel()
        await asyncio.gather(taking, gone, return_exceptions=True)


async def _take_turn(turn: asyncio.Lock, account: Account) -> None:
    async with turn:  # one after the other, so that all that is paid is seen by the next one
        await account.wait()


def _is_of_no_site(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"origin" not in headers and headers.get(b"sec-fetch-site", b"none") in _OWN_SITES


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
