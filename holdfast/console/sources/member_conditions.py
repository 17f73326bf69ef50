"""How each member of a group is, by what it says itself."""

from collections.abc import Iterable
from typing import Any, Final

from holdfast.console.options import admin
from holdfast.console.outcomes import Failure
from holdfast.console.sources.group_nodes import Answers

Facts = dict[str, Any]

_NO_MEMBER: Final = "it is no member of a group"


def query_conditions(members: Iterable[Facts], queried: str) -> Answers:
    """Ask each member whether it is ready, its version, and what it says of itself as a member.

    Args:
        members: what the command `members` answered.
        queried: the address of the node that answered it.

    Returns:
        the rows with what was found, None with a reason where a member does not say; and which members did not answer.
    """
    answers = Answers([], [])
    for member in members:
        if member["state"] == "absent":
            condition = _unknown("it is absent")
        else:
            try:
                status = admin(member["address"] if member["state"] == "member" else queried, "status")
            except Failure as failure:
                answers.problems.append(
                    f"Node {member['node_id']} at {member['address']} does not say how it is. {failure}"
                )
                condition = _unknown("it does not answer")
            else:
                condition = _condition(status, is_alone=member["state"] == "static")
        answers.found.append(member | condition)
    return answers


def _condition(status: Facts, *, is_alone: bool) -> Facts:
    found = {"is_ready": status["is_ready"], "version": status["version"], "is_ready_unknown": None}
    said = status.get("membership")
    if said is None:
        return _unknown("it does not say") | found  # it starts, or is of an earlier version
    age_ms, offset = said["heartbeat_age_ms"], said["config_offset"]
    return found | {
        "heartbeat_age_ms": age_ms,
        "heartbeat_age_ms_unknown": _NO_MEMBER if is_alone else "it has not joined" if age_ms is None else None,
        # It says -1, as a node of an earlier version does, before the first value.
        "config_offset": offset if offset is not None and offset >= 0 else None,
        "config_offset_unknown": _NO_MEMBER
        if is_alone
        else "it has read no value"
        if offset is None or offset < 0
        else None,
        "group_instance_id": said["group_instance_id"],
    }


def _unknown(why: str) -> Facts:
    measured = ("is_ready", "heartbeat_age_ms", "config_offset")
    return dict.fromkeys((*measured, "version", "group_instance_id")) | {f"{name}_unknown": why for name in measured}
