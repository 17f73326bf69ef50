"""Answers to Kafka's own calls (ApiVersions, Metadata, FindCoordinator) as kio's entities, one class per version.

kio's classes of different versions have different fields. `make` builds the one of a version from all values we know
and leaves out what the version lacks, so that an answer is written once for all versions.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from io import BytesIO
from types import ModuleType
from typing import Any

from kio.serial import entity_writer


@cache
def _module(call: str, version: int) -> ModuleType:
    return import_module(f"kio.schema.{call}.v{version}.response")


@cache
def _field_names(schema: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(schema))


def make(call: str, version: int, entity: str, /, **values: object) -> Any:  # noqa: ANN401
    """Return the entity of that name in a call's response, such as `MetadataResponseBroker`, with the fields it has."""
    schema = getattr(_module(call, version), entity)
    names = _field_names(schema)
    return schema(**{field: value for field, value in values.items() if field in names})


def encode(entity: Any) -> bytes:  # noqa: ANN401
    """Return the body of a response."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
