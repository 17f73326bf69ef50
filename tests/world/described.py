"""Answers beside their description as OpenAPI: each field that an answer has is described, and each that must be there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


class Description:
    """A description of paths, and the names of schemas that answers were compared with."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._openapi = openapi
        self.schemas: Mapping[str, Any] = openapi["components"]["schemas"]
        self.seen = set[str]()

    def faults(self, path: str, status: int, answer: object) -> list[str]:
        """Return what differs between an answer and its description, each with its place."""
        responses = self._openapi["paths"][path]["get"]["responses"]
        response = responses.get(str(status)) or responses["default"]
        return list(self._compare(answer, response["content"]["application/json"]["schema"], path))

    def _compare(self, value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/components/schemas/")
            self.seen.add(name)
            yield from self._compare(value, self.schemas[name], place)
            return
        if "anyOf" in schema:
            found = [list(self._compare(value, each, place)) for each in schema["anyOf"]]
            yield from min(found, key=len)
            return
        given = schema["type"]
        names = [given] if isinstance(given, str) else given
        # Python's truth is a number, and JSON's is none.
        if not any(type(value) in _TYPES[name] for name in names):
            yield f"{place}: {value!r} is no {names}"
        elif isinstance(value, list):
            before = schema.get("prefixItems", [])
            yield from (f"{place}: {missing} is not there" for missing in range(len(value), schema.get("minItems", 0)))
            for number, each in enumerate(value):
                items = before[number] if number < len(before) else schema["items"]
                if items is False:
                    yield f"{place}[{number}] is not described"
                else:
                    yield from self._compare(each, items, f"{place}[{number}]")
        elif isinstance(value, dict):
            fields, others = schema.get("properties", {}), schema.get("additionalProperties")
            yield from (f"{place}.{name} is not there" for name in schema.get("required", []) if name not in value)
            for name, each in value.items():
                if (field := fields.get(name, others)) is None:
                    yield f"{place}.{name} is not described"
                else:
                    yield from self._compare(each, field, f"{place}.{name}")
