"""What each call and each admin command needs, and what it may be given: one row each.

Kafka's broker has one right for all of this, CLUSTER_ACTION on the cluster; here it still allows all calls and look-ups
about groups, and rules for groups are finer. Metadata and ApiVersions need nothing.

Source: Apache Kafka 4.3.1's `KafkaApis`: `handleFindCoordinatorRequest` and those of API keys 83 to 87.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.kafka.protocol import api_keys


class GroupCall(NamedTuple):
    """A call about groups, and what it needs for each."""

    name: str
    operation: Operation


class Need(NamedTuple):
    """What an admin command needs."""

    operation: Operation
    #: The cluster, or the group in its argument `group`.
    resource: ResourceType = ResourceType.CLUSTER

    @property
    def is_change(self) -> bool:
        """Whether the command changes something, and is written to the audit log."""
        return self.operation not in (Operation.DESCRIBE, Operation.READ)


class Command(NamedTuple):
    """An admin command.

    Any other argument is refused by its name: a client that misspells one must not believe that it was heeded, and an argument
    that nothing reads cannot fill the line of the audit log. The argument that names the changed thing stands first.
    """

    need: Need
    arguments: tuple[str, ...] = ()
    #: Argument that names what the command is the preview of; empty: it is none.
    previews: str = ""
    #: Operation that the previewed call needs, by the value of that argument; a command that is previewed needs its own.
    previewed: Mapping[str, Operation] = {}


LOOKS: Final = Need(Operation.DESCRIBE)
CHANGES: Final = Need(Operation.ALTER)

#: Calls about groups that every node has, by API key.
CALLS: Final[Mapping[int, GroupCall]] = {
    api_keys.FIND_COORDINATOR: GroupCall("FindCoordinator", Operation.DESCRIBE),
}

#: Admin commands that every node has.
COMMANDS: Final[Mapping[str, Command]] = {
    "config": Command(LOOKS),
    "debug": Command(LOOKS),
    "hand-overs": Command(LOOKS),
    "members": Command(LOOKS),
    "metrics": Command(LOOKS, ("of", "accept")),
    "partitions": Command(LOOKS),
    "readers": Command(LOOKS),
    "resolve-topic": Command(LOOKS, ("name",)),
    "settings": Command(LOOKS),
    "status": Command(LOOKS),
    "topic-ends": Command(LOOKS, ("topics",)),
    "decision-preview": Command(LOOKS, ("decision", "partition", "group", "reason"), previews="decision"),
    "partitions-accept": Command(CHANGES, ("partition", "run_id", "reason")),
    "partitions-take": Command(CHANGES, ("partition", "run_id")),
    "readers-drop": Command(CHANGES, ("group", "run_id", "reason")),
}

#: Of a principal in an answer, in bytes.
_PRINCIPAL_BYTES_MAX: Final = 100


class Needs:
    """The needs of all calls and commands of a node.

    Args:
        calls: calls about groups, by API key, beside those of every node.
        commands: admin commands by name, beside those of every node.
    """

    def __init__(self, calls: Mapping[int, GroupCall] = {}, commands: Mapping[str, Command] = {}) -> None:
        self.calls: dict[int, GroupCall] = {**CALLS, **calls}
        self.commands: dict[str, Command] = {**COMMANDS, **commands}

    def explain_denial(self, principal: str, api_key: int) -> str:
        """Return the text of an answer to a client that may not make a call about groups.

        It is the same for every group and says nothing of any rule, so nobody learns from it which groups there are and who may what.
        """
        shown = principal.encode()[:_PRINCIPAL_BYTES_MAX].decode(errors="ignore")
        operation = self.calls[api_key].operation
        return f"{shown} may not {operation.value} the GROUP: no access rule allows it, or one denies it."

    def unknown_arguments(self, command: str, arguments: Collection[str]) -> list[str]:
        """Return the names of arguments that a command does not take, in order; none of a command that has no row."""
        known = self.commands.get(command)
        return [] if known is None else sorted(set(arguments) - set(known.arguments))

    def arguments_of(self, command: str, given: Collection[str]) -> list[str]:
        """Return the names of the arguments that a command takes, in the order of its row; of one without a row those that are given."""
        known = self.commands.get(command)
        return sorted(given) if known is None else list(known.arguments)

    def need_of(self, command: str) -> Need:
        """Return what an admin command needs; one without a row needs what a change does."""
        known = self.commands.get(command)
        return CHANGES if known is None else known.need

    def operations_after(self, command: str, arguments: Mapping[str, Any]) -> list[Operation]:
        """Return what is needed, of the same resource, by what a command is the preview of; nothing where it is none."""
        known = self.commands.get(command)
        if known is None or not known.previews:
            return []
        previewed = str(arguments.get(known.previews))
        if not known.previewed:
            return [self.need_of(previewed).operation]
        operation = known.previewed.get(previewed)
        return [] if operation is None else [operation]
