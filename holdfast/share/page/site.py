"""The page at a node's HTTP port as an application; what it needs is imported when somebody looks first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.clock import now_ms
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.http.queries import Ask
from holdfast.daemon.http.readers import reader_of
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.tenant import LogParts
from holdfast.distribution import how_to_install
from holdfast.share.page.node_page import NodePage
from holdfast.share.page.purse import Purse
from holdfast.share.page.rights import READER

if TYPE_CHECKING:
    from holdfast.page.web.app import Query


class PageSite:
    """The application of one node, from when its log was found on."""

    def __init__(
        self,
        log: LogParts,
        authorizer: Authorizer,
        ask: Ask,
        names: Collection[str] | None,
        internal_errors: InternalErrors,
    ) -> None:
        """Import and look at nothing yet.

        Args:
            log: the parts of the node.
            authorizer: decides what readers may see.
            ask: runs commands of the node.
            names: by which requests may call the port, besides every address; None: any.
            internal_errors: counts what is a mistake of ours.
        """
        self._purse = Purse()
        self._source = NodePage(log, authorizer, ask, self._purse, now_ms)
        self._names = names
        self._internal_errors = internal_errors
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app = self._app or self._make_app()
        READER.set(reader_of(scope))
        if scope["path"] == "/events":  # it goes on, and its task is none of this request
            await app(scope, receive, send)
            return
        await self._purse.wait()
        await self._purse.timed(_run(app, scope, receive, send))

    def describe(self) -> Mapping[str, Any]:
        """See `Site.describe`."""
        from holdfast.page.web import openapi

        try:
            found: Mapping[str, Any] = openapi.describe(_queries())["paths"]
        except ImportError:  # no page is there without it
            return {}
        return found

    async def close(self) -> None:
        """End what is being made."""
        await self._source.close()

    def _make_app(self) -> ASGIApp:
        try:
            from holdfast.page.web.app import make_app
        except ImportError as missing:
            text = f"The page needs {missing.name}, which is not installed; {how_to_install('page')}."
            return JSONResponse({"error": text}, 501)
        note = partial(self._internal_errors.note_bug, "page_failed")
        return make_app(self._source, self._names, lambda error, path: note(error, path=path), _queries())


def _queries() -> Mapping[str, Query]:
    """Return the queries of the page; the node has groups of its own, as the command line lists them."""
    from holdfast.page.web.app import QUERIES

    return {"group-topics" if name == "groups" else name: query for name, query in QUERIES.items()}


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)
