"""Which requests the page answers, and the headers of every answer: a browser must not be led here by another site.

A page of another site may have a name that leads to a loopback address (DNS rebinding), but its requests carry that name. A request by
an address cannot come of it. Nothing that others chose is ever markup, and no browser would run a script that is, nor ask another host.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http_refusals import PAGE_HEADERS, refusal
from holdfast.kafka.addresses import parse_address

#: Browsers tell in these of which site a request is, how it is made, and for which purpose; no script of a site can set them.
_FETCH_HEADERS: Final = (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")
#: Another port of this host is of the same site.
_FOREIGN_SITES: Final = ("cross-site", "same-site")
_METHODS: Final = ("GET", "HEAD")


class PageGuard:
    """Lets through requests that change nothing, call the page by a name of its own, and come from no other site."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        self._app = app
        self._names = None if names is None else frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in PAGE_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in _METHODS:
            text = "This page changes nothing: only GET and HEAD are answered."
            return refusal(scope, 405, text, {"Allow": ", ".join(_METHODS)})
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host")
        if host is not None and not self._is_own(host):
            text = "The page is not called by this name; open it by the address that the command printed, or see --allowed-host."
            return refusal(scope, 421, text)
        site, mode, destination = (headers.get(name, "") for name in _FETCH_HEADERS)
        if site in _FOREIGN_SITES and (mode, destination) != ("navigate", "document"):
            return refusal(
                scope, 403, "Another site may lead here by a link, and may fetch or embed nothing of the page."
            )
        origin = headers.get(b"origin")
        if origin is not None and (host is None or _host_of(origin) != host.lower()):
            return refusal(scope, 403, "The page answers no request that comes from another site.")
        return None

    def _is_own(self, host: str) -> bool:
        if self._names is None:
            return True
        try:
            name = parse_address(host, default_port=0)[0].lower()
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
