"""The description of the queries as OpenAPI, made from their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from holdfast.distribution import VERSION

_NUMBERS: Final = frozenset({"partition", "offset", "from"})
_DESCRIPTIONS: Final = {
    "after": "Cursor of the page before, its `next`.",
    "from": "Offset from which ranges are given, `next_from` of the answer before.",
    "group": "Name of the share group.",
    "topic": "Name or id of the topic.",
    "partition": "Partition of the topic.",
    "offset": "Offset in it.",
}
_REFUSAL: Final = {
    "type": "object",
    "required": ["error", "nearest"],
    "properties": {
        "error": {"type": "string", "description": "One sentence, with the next step."},
        "nearest": {"type": "array", "items": {"type": "string"}, "description": "Names that are spelled alike."},
    },
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


def describe(queries: Mapping[str, Described], prefix: str = "/api/v1/") -> dict[str, Any]:
    """Return the description of all queries."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast's page", "version": VERSION},
        "paths": {f"{prefix}{name}": {"get": _operation(name, query)} for name, query in queries.items()},
        "components": {"schemas": {"Refusal": _REFUSAL}},
    }


def _operation(name: str, query: Described) -> dict[str, Any]:
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
            "200": {"description": "The answer.", "content": {"application/json": {"schema": {"type": "object"}}}},
            "default": {"description": "Why there is none.", "content": refusal},
        },
    }
