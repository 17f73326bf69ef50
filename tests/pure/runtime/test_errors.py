"""The two families of errors: outcomes for an operation's caller, and ends of a load."""

import inspect

import pytest

from holdfast.runtime import errors
from holdfast.runtime.errors import Alarm, AppendRefused, CoordinatorError, LoadFailed

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_of_one_family(kind: type[Exception]) -> None:
    families = [family for family in (CoordinatorError, LoadFailed, AppendRefused) if issubclass(kind, family)]
    assert len(families) == 1


def test_alarm_ends_a_load() -> None:
    assert issubclass(Alarm, LoadFailed)


@pytest.mark.parametrize("is_too_large", [True, False])
def test_refusal_carries_its_reason(is_too_large: bool) -> None:
    refused = AppendRefused("too many wait", is_too_large=is_too_large)
    assert (refused.reason, refused.is_too_large, str(refused)) == ("too many wait", is_too_large, "too many wait")
