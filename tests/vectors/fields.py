"""Strict access to the fields of a case: what is not asked for by the end is an error, so nothing recorded goes unchecked."""

from __future__ import annotations

from typing import Any

from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey


class Mismatch(Exception):
    """Say that our answer is not the recorded one, or that the case holds something this runner does not know."""


def check(what: str, ours: object, recorded: object) -> None:
    """Raise `Mismatch` unless both are equal."""
    if ours != recorded:
        raise Mismatch(f"{what}: ours is {ours!r}, recorded is {recorded!r}")


class Fields:
    """One JSON object, of which every field must be taken once.

    Use it in a `with` statement; leaving it without an exception checks that nothing was left over.
    """

    def __init__(self, what: str, fields: object) -> None:
        if not isinstance(fields, dict):
            raise Mismatch(f"{what} is not an object")
        self.what = what
        self._left: dict[str, Any] = dict(fields)

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, exception_type: object, *_: object) -> None:
        if exception_type is None and self._left:
            raise Mismatch(f"unknown fields of {self.what}: {', '.join(sorted(self._left))}")

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str) -> Any:
        """Return a field and count it as checked."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise Mismatch(f"{self.what} has no field {name}") from None

    def take_if_there(self, name: str, default: object = None) -> Any:
        """Return a field that not every case has."""
        return self._left.pop(name, default)

    def get(self, name: str, default: Any) -> Any:
        """Return a field without counting it as checked, or the default where the case has none."""
        return self._left.get(name, default)

    def take_object(self, name: str) -> Fields:
        """Return a field that is an object."""
        return Fields(f"{self.what}.{name}", self.take(name))

    def take_list(self, name: str) -> list[Any]:
        """Return a field that is a list."""
        value = self.take(name)
        if not isinstance(value, list):
            raise Mismatch(f"{self.what}.{name} is not a list")
        return value

    def take_batches(self, name: str) -> tuple[StateBatch, ...]:
        """Return a field that is a list of [first offset, last offset, delivery state, delivery count]."""
        return tuple(StateBatch(*batch) for batch in self.take_list(name))

    def take_key(self) -> SharePartitionKey:
        """Return the share partition named by the fields groupId, topicId and partition."""
        return SharePartitionKey(self.take("groupId"), parse_topic_id(self.take("topicId")), self.take("partition"))
