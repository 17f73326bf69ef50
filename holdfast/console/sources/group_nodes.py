"""The nodes that divide a log, found through any of them, and what each answers to one command."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.console.options import admin
from holdfast.console.outcomes import Failure

Row = dict[str, Any]

#: States of a log partition that the node which lists it does not serve.
_OF_OTHERS: Final = frozenset({"elsewhere", "unassigned"})


class OtherNode(NamedTuple):
    """A member of the group other than the node that was queried."""

    node_id: int
    address: str

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.address}"


class Answers(NamedTuple):
    """The answers of all nodes to a command."""

    #: The node that the user named comes first.
    found: list[Any]
    #: Which of the others gave no answer, and why, a sentence each.
    problems: list[str]


def other_nodes(members: Iterable[Mapping[str, Any]]) -> list[OtherNode]:
    """Return the members beside the node that lists them; none where it has no group."""
    return [OtherNode(row["node_id"], row["address"]) for row in members if row["state"] == "member"]


def query_all(address: str, command: str, **arguments: Any) -> Answers:  # noqa: ANN401
    """Run an admin command at a node and at the other members of its group.

    Raises:
        Failure: the node at the address does not answer, or refuses.
    """
    answers = Answers([admin(address, command, **arguments)], [])
    for node in other_nodes(admin(address, "members")):
        try:
            answers.found.append(admin(node.address, command, **arguments))
        except Failure as failure:
            answers.problems.append(f"The answer of {node} is missing. {failure}")
    return answers


def merge_partitions(answers: Sequence[Sequence[Row]]) -> list[Row]:
    """Return each log partition as shown by the node that serves it, or else by the node that will have it."""
    best: dict[int, Row] = {}
    for row in (row for rows in answers for row in rows):
        known = best.get(row["partition"])
        if known is None or _rank(row) < _rank(known):
            best[row["partition"]] = row
    return [row for _, row in sorted(best.items())]


def _rank(row: Row) -> int:
    return 2 if row["state"] in _OF_OTHERS else 0 if row["state"] == "active" else 1
