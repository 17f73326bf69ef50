"""What each call and each admin command needs, and what it may be given: one row each.

Kafka's broker has one right for all of this, CLUSTER_ACTION on the cluster; here it still allows all share-state calls and
look-ups, and rules for groups are finer. Metadata and ApiVersions need nothing.

Source: Apache Kafka 4.3.1's `KafkaApis`: `handleFindCoordinatorRequest` and those of API keys 83 to 87.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from holdfast.api import share_state
from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.kafka.protocol import api_keys


class GroupCall(NamedTuple):
    """A call about groups, and what it needs for each."""

    name: str
    operation: Operation


#: API key to what it needs; a Read is no mere look, it may raise the leader epoch.
GROUP_CALLS: Final[Mapping[int, GroupCall]] = {
    api_keys.FIND_COORDINATOR: GroupCall("FindCoordinator", Operation.DESCRIBE),
    share_state.INITIALIZE: GroupCall("InitializeShareGroupState", Operation.WRITE),
    share_state.READ: GroupCall("ReadShareGroupState", Operation.READ),
    share_state.WRITE: GroupCall("WriteShareGroupState", Operation.WRITE),
    share_state.DELETE: GroupCall("DeleteShareGroupState", Operation.DELETE),
    share_state.SUMMARY: GroupCall("ReadShareGroupStateSummary", Operation.DESCRIBE),
}


#: Of a principal in an answer, in bytes.
_PRINCIPAL_BYTES_MAX: Final = 100


def explain_denial(principal: str, api_key: int) -> str:
    """Return the text of an answer to a client that may not make a call of `GROUP_CALLS`.

    It is the same for every group and says nothing of any rule, so nobody learns from it which groups there are and who may what.
    """
    shown = principal.encode()[:_PRINCIPAL_BYTES_MAX].decode(errors="ignore")
    return (
        f"{shown} may not {GROUP_CALLS[api_key].operation.value} the GROUP: no access rule allows it, or one denies it."
    )


class Need(NamedTuple):
    """What an admin command needs."""

    operation: Operation
    #: The cluster, or the group in its argument `group`.
    resource: ResourceType = ResourceType.CLUSTER

    @property
    def is_change(self) -> bool:
        """Whether the command changes something, and is written to the audit log."""
        return self.operation not in (Operation.DESCRIBE, Operation.READ)


_LOOKS: Final = Need(Operation.DESCRIBE)
_CHANGES: Final = Need(Operation.ALTER)

ADMIN_COMMANDS: Final[Mapping[str, Need]] = {
    "config": _LOOKS,
    "debug": _LOOKS,
    "members": _LOOKS,
    "metrics": _LOOKS,
    "partitions": _LOOKS,
    "readers": _LOOKS,
    "resolve-topic": _LOOKS,
    "settings": _LOOKS,
    "share-partitions": _LOOKS,
    "status": _LOOKS,
    "topic-ends": _LOOKS,
    # Shows all of a state, as a Read does, and changes none.
    "state-preview": Need(Operation.READ, ResourceType.GROUP),
    "decision-preview": _LOOKS,
    "partitions-accept": _CHANGES,
    "partitions-take": _CHANGES,
    "readers-drop": _CHANGES,
    "topics-accept-deleted": _CHANGES,
}


#: Any other argument is refused by its name: who misspells one must not believe that it was heeded, and none that nobody reads can fill
#: the line of the audit log. What says what is changed stands first.
COMMAND_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "config": (),
    "debug": (),
    "members": (),
    "metrics": ("of", "accept"),
    "partitions": (),
    "readers": (),
    "resolve-topic": ("name",),
    "settings": (),
    "share-partitions": ("group", "topic_id", "after", "limit"),
    "status": (),
    "topic-ends": ("topics",),
    "state-preview": (
        "call",
        "group",
        "topic_id",
        "partition",
        "state_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
        "state_batches",
    ),
    "decision-preview": ("decision", "partition", "group", "reason"),
    "partitions-accept": ("partition", "run_id", "reason"),
    "partitions-take": ("partition", "run_id"),
    "readers-drop": ("group", "run_id", "reason"),
    "topics-accept-deleted": ("run_id", "reason"),
}


def unknown_arguments(command: str, arguments: Collection[str]) -> list[str]:
    """Return the names of arguments that a command does not take, in order; none of a command that has no row."""
    known = COMMAND_ARGUMENTS.get(command)
    return [] if known is None else sorted(set(arguments) - set(known))


def need_of(command: str) -> Need:
    """Return what an admin command needs; one without a row needs what a change does."""
    return ADMIN_COMMANDS.get(command, _CHANGES)


#: What follows a preview of a call.
_PREVIEWED_CALLS: Final[Mapping[str, int]] = {
    "initialize": share_state.INITIALIZE,
    "write": share_state.WRITE,
    "delete": share_state.DELETE,
}


def operations_after(command: str, arguments: Mapping[str, Any]) -> list[Operation]:
    """Return what is needed, of the same resource, by what a command is the preview of; nothing where it is none."""
    if command == "decision-preview":
        return [need_of(str(arguments.get("decision"))).operation]
    call = _PREVIEWED_CALLS.get(str(arguments.get("call"))) if command == "state-preview" else None
    return [] if call is None else [GROUP_CALLS[call].operation]
