"""The schemas of answers, made from the types of views as `source.to_json` makes JSON of their values."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Any, Final, TypedDict, get_args, get_origin, get_type_hints

from holdfast.page.source import GroupView, Part
from holdfast.records.share.group_lag import Row


class SharePartition(TypedDict):
    """A share partition and its state in numbers, as `holdfast groups describe --json` has it."""

    group: str
    topic: str | None
    topic_id: str
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int | None
    state_end_offset: int | None
    oldest_unfinished_offset: int | None
    finished: int
    delivery_complete_count: int | None
    in_flight: int
    delivery_count_max: int
    delivery_counts: Mapping[str, int]
    state_batches: int
    log_partition: int
    owner: str | None
    end_offset: int | None
    lag: int | None
    lag_unknown: str | None


class Totals(TypedDict):
    """The sums of a group, `LagTotals.data`."""

    topics: int
    share_partitions: int
    lag: int | None
    lag_known: int
    lag_unknown: Mapping[str, int]
    in_flight: int
    delivery_count_max: int


class Bytes(TypedDict):
    """A key, a value or a header's value, cut where it is long."""

    base64: str
    size_bytes: int
    is_whole: bool


#: Types whose JSON has other fields, and the types that have them.
_IN_JSON: Final[Mapping[Any, type]] = {Part: Bytes, Row: SharePartition}
_SIMPLE: Final[Mapping[Any, str]] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    NoneType: "null",
}


class Schemas:
    """The schemas of answers, each type of a view once by its name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def of_view(self, view: type, added: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the schema of a view; `added` are fields that its JSON has beside those of the view, and their types."""
        if view.__name__ not in self.by_name:
            fields = {name: self._of(kind) for name, kind in (_fields_of(view) | dict(added or {})).items()}
            self.by_name[view.__name__] = {
                "type": "object",
                "description": cleandoc(view.__doc__ or ""),
                "required": list(fields),
                "properties": fields,
            }
        return {"$ref": f"#/components/schemas/{view.__name__}"}

    def _of(self, kind: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the schema of the type of a field."""
        origin, given = get_origin(kind), get_args(kind)
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if origin is UnionType and _SIMPLE.keys() >= set(given):
            return {"type": [_SIMPLE[each] for each in given]}
        if origin is UnionType:
            return {"anyOf": [self._of(each) for each in given]}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self._of(given[1])}
        if origin is tuple and given[1:] == (...,):
            return {"type": "array", "items": self._of(given[0])}
        if origin is tuple:
            parts = [self._of(each) for each in given]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
        return self.of_view(_IN_JSON.get(kind, kind))


def _fields_of(view: type) -> dict[str, Any]:
    fields = get_type_hints(view)
    if view is not GroupView:
        return fields
    rest = {name: kind for name, kind in fields.items() if name != "totals"}
    totals = get_type_hints(Totals)
    return totals | rest | {"topics_in_detail": rest["topics"], "topics": totals["topics"]}
