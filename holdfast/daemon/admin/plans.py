"""Decisions of an admin: what each would change is shown before it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from holdfast.api.admin import reason_problem
from holdfast.daemon.server.admin import AdminError

Arguments: TypeAlias = dict[str, Any]
Facts: TypeAlias = dict[str, Any]


class Plan(NamedTuple):
    """The changes of a decision."""

    #: Carries it out, and returns what was done.
    carry_out: Callable[[], str]
    before: Facts
    after: Facts
    #: A sentence each without its full stop.
    data_lost: tuple[str, ...] = ()


#: Returns the plan of a decision by its arguments. It raises AdminError.
Decide: TypeAlias = Callable[[Arguments], Plan]


def reason_of(arguments: Arguments) -> str:
    """Return the reason that an admin gives.

    Raises:
        AdminError: there is none, or none that can be kept.
    """
    reason = arguments.get("reason")
    problem = reason_problem(reason) if isinstance(reason, str) else "it is no text"
    if problem:
        raise AdminError(f"A `reason` is needed, and this is none that can be kept: {problem}.")
    return str(reason)
