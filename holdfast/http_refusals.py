"""Refusals over HTTP: JSON for programs, and a small page for a person with a browser, who would not know how to go on from JSON.

No template makes it, because a port refuses requests without the extra `page`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

#: Headers of every page; a name of a group stands in addresses, which go to no other site.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: JSON of a refusal, as OpenAPI describes it.
REFUSAL_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string", "description": "One sentence, with the next step."},
        "nearest": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names that are spelled alike, where one was asked for that is not there.",
        },
    },
}
#: Paths below it have JSON alone.
_API: Final = "/api/"
_STYLE: Final = (
    '<link rel="stylesheet" href="static/style.css">\n<link rel="icon" href="static/icon.svg" type="image/svg+xml">\n'
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{status} · Holdfast</title>
{style}</head>
<body>
<main id="content">
<h1><small>{status}</small> There is no answer</h1>
<p class="warning" role="alert"><bdi>{text}</bdi></p>
<p class="actions"><a href="">Look again</a></p>
</main>
</body>
</html>
"""


def refusal(
    scope: Scope, status: int, text: str, headers: Mapping[str, str] | None = None, *, has_style: bool = False
) -> Response:
    """Return the answer to a request that is refused.

    Args:
        scope: of the request.
        status: of the answer.
        text: one sentence, with what to do.
        headers: a browser looks again by itself after the time of `Retry-After`.
        has_style: whether the port answers where the page's style sheet is; else the page is plain.
    """
    headers = dict(headers or {})
    if scope["path"].startswith(_API) or not _prefers_html(", ".join(Headers(scope=scope).getlist("accept"))):
        return JSONResponse({"error": text}, status, headers)
    if "Retry-After" in headers:
        headers["Refresh"] = headers["Retry-After"]
    page = _PAGE.format(status=status, text=escape(text), style=_STYLE if has_style else "")
    return HTMLResponse(page, status, PAGE_HEADERS | {"Cache-Control": "no-store"} | headers)


def _prefers_html(accept: str) -> bool:
    """Tell whether a header `Accept` names HTML before JSON; programs that take anything name neither."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        if kind in weights:
            weights[kind] = next((_weight(given) for given in parameters if given.startswith("q=")), 1.0)
    return weights["text/html"] > weights["application/json"]


def _weight(given: str) -> float:
    try:
        return float(given.removeprefix("q="))
    except ValueError:
        return 0.0
