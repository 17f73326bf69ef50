"""The description of the HTTP port as OpenAPI, made from the table of its paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.daemon.http.queries import PREFIX, Page, Query
from holdfast.distribution import VERSION
from holdfast.http_refusals import REFUSAL_SCHEMA

_JSON: Final = "application/json"


class FixedPath(NamedTuple):
    """A path of its own, and its answers: by status what it means."""

    path: str
    description: str
    answers: dict[int, str]
    media_type: str = _JSON


FIXED_PATHS: Final = (
    FixedPath("/live", "Whether the event loop of the node turns; it needs no token.", {200: "It does."}),
    FixedPath(
        "/ready",
        "Whether the node serves all that it should serve, and per log partition its state, how far its load is and why it does not "
        "serve; without the token, whether it is ready alone.",
        {200: "It is ready.", 503: "It is not."},
    ),
    FixedPath(
        "/health",
        "The answers of `/ready` and `/api/v1/status` in one.",
        {200: "The node is ready.", 503: "It is not."},
    ),
    FixedPath(
        "/metrics",
        "Every metric, as Prometheus text or, where `Accept` prefers it, as OpenMetrics.",
        {200: "All of them."},
        "text/plain",
    ),
    FixedPath("/openapi.json", "This description.", {200: "It."}),
)


def describe(queries: Mapping[str, Query], pages: Sequence[Page] = ()) -> dict[str, Any]:
    """Return the description of all paths."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast node",
            "version": VERSION,
            "description": "Health, metrics and what the command line tool shows of one node; nothing here changes anything.",
        },
        "paths": {path.path: _of_path(path) for path in FIXED_PATHS}
        | {f"{PREFIX}{query.command}": _of_query(query) for query in queries.values()}
        | {f"{PREFIX}{page.query.command}": _of_page(page.query) for page in pages},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Refusal": REFUSAL_SCHEMA},
        },
        "security": [{}, {"token": []}],
    }


def join(own: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of all paths and of those of a site, `Site.describe`."""
    if not site:
        return dict(own)
    components = own["components"]
    schemas = components["schemas"] | site["components"]["schemas"]
    return {**own, "paths": own["paths"] | site["paths"], "components": components | {"schemas": schemas}}


def _of_path(page: FixedPath) -> dict[str, Any]:
    schema = {"type": "string" if page.media_type != _JSON else "object"}
    answers = {
        str(status): {"description": text, "content": {page.media_type: {"schema": schema}}}
        for status, text in page.answers.items()
    }
    refused = {} if page.path == "/live" or page.path == "/ready" else _refusals((401,))
    return {"get": {"summary": page.description, "responses": answers | refused}}


def _of_query(query: Query) -> dict[str, Any]:
    parameters = [
        {
            "name": each.name,
            "in": "query",
            "required": each.is_needed,
            "description": each.description,
            **({"content": {_JSON: {"schema": {}}}} if each.sort == "json" else {"schema": {"type": each.sort}}),
        }
        for each in query.parameters
    ]
    answer = {"description": "The answer to the query.", "content": {_JSON: {"schema": {"type": query.answer}}}}
    return {
        "get": {
            "summary": query.description,
            "operationId": query.command,
            "parameters": parameters,
            "responses": {"200": answer} | _refusals((400, 401, 500, 503)),
        }
    }


def _of_page(query: Query) -> dict[str, Any]:
    described = _of_query(query)
    names = re.findall(r"{(\w+)}", query.command)
    described["get"]["parameters"] = [
        *(
            {"name": name, "in": "path", "required": True, "description": "Its name.", "schema": {"type": "string"}}
            for name in names
        ),
        *described["get"]["parameters"],
    ]
    if names:
        described["get"]["responses"] |= _refusals((404,))
    return described


def _refusals(statuses: Iterable[int]) -> dict[str, Any]:
    texts = {
        400: "The request is wrong.",
        401: "The token is missing or wrong.",
        404: "There is no such thing here.",
        500: "A bug of ours; a log line of the node says more.",
        503: "The node cannot answer now; try again.",
    }
    content = {_JSON: {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    return {str(status): {"description": texts[status], "content": content} for status in statuses}
