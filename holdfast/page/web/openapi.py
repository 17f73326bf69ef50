"""The description of the queries as OpenAPI, made from their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from holdfast.distribution import VERSION
from holdfast.http_refusals import REFUSAL_SCHEMA
from holdfast.page.web.schemas import Schemas

_NUMBERS: Final = frozenset({"partition", "offset", "from"})
_DESCRIPTIONS: Final = {
    "after": "Cursor of the answer before, its `next`: each list goes on where that one ended.",
    "from": "Offset from which ranges are given, `next_from` of the answer before.",
    "name": "Part of the name of a group or a topic, in large or small letters.",
    "group": "Name of the share group.",
    "topic": "Name or id of the topic.",
    "partition": "Partition of the topic.",
    "offset": "Offset in it.",
}


class Described(Protocol):
    """A query as far as its description needs it."""

    @property
    def description(self) -> str:
        """Return a sentence about its answer."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the parameters that it needs."""

    @property
    def optional(self) -> tuple[str, ...]:
        """Return the other ones."""

    @property
    def view(self) -> type:
        """Return the type of the view that its answer shows."""

    @property
    def added(self) -> Mapping[str, Any]:
        """Return the types of the fields that its answer has beside those of the view."""


def describe(queries: Mapping[str, Described], prefix: str = "/api/v1/") -> dict[str, Any]:
    """Return the description of all queries."""
    schemas = Schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast's page", "version": VERSION},
        "paths": {f"{prefix}{name}": {"get": _operation(name, query, schemas)} for name, query in queries.items()},
        "components": {"schemas": schemas.by_name | {"Refusal": REFUSAL_SCHEMA}},
    }


def _operation(name: str, query: Described, schemas: Schemas) -> dict[str, Any]:
    answer = {"application/json": {"schema": schemas.of_view(query.view, query.added)}}
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    return {
        "operationId": name,
        "summary": query.description,
        "parameters": [
            {
                "name": each,
                "in": "query",
                "required": each in query.parameters,
                "description": _DESCRIPTIONS[each],
                "schema": {"type": "integer", "minimum": 0} if each in _NUMBERS else {"type": "string"},
            }
            for each in (*query.parameters, *query.optional)
        ],
        "responses": {
            "200": {"description": "The answer; null is what is not known, or not there.", "content": answer},
            "default": {"description": "Why there is none.", "content": refusal},
        },
    }
