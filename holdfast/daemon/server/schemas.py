"""Answers to Kafka's own calls (ApiVersions, Metadata) as kio's entities, which have one class per version.

kio's classes of different versions have different fields. `ResponseSchemas.make` builds the one of a version from all
values we know and leaves out what the version lacks, so that an answer is written once for all versions.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

from kio.serial import entity_writer


@cache
def _field_names(schema: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(schema))


class ResponseSchemas:
    """The entities of one call's response in one version."""

    def __init__(self, call: str, version: int) -> None:
        """Name a call as kio does, such as `api_versions`."""
        self.version = version
        self._module = import_module(f"kio.schema.{call}.v{version}.response")

    def make(self, entity: str, /, **values: object) -> Any:  # noqa: ANN401
        """Return the entity of that name, such as `MetadataResponseBroker`, with those of the values that it has."""
        schema = getattr(self._module, entity)
        names = _field_names(schema)
        return schema(**{field: value for field, value in values.items() if field in names})


def encode(entity: Any) -> bytes:  # noqa: ANN401
    """Return the body of a response."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
