"""What each call and each admin command needs and takes, written out by hand, so that a wrong row of the product's tables is one here."""

from __future__ import annotations

from typing import Final

from holdfast.api import share_state
from holdfast.daemon.access.acl import Operation
from holdfast.kafka.protocol import api_keys

#: Of the group that it is about.
CALLS: Final = {
    api_keys.FIND_COORDINATOR: ("FindCoordinator", Operation.DESCRIBE),
    share_state.INITIALIZE: ("InitializeShareGroupState", Operation.WRITE),
    share_state.READ: ("ReadShareGroupState", Operation.READ),
    share_state.WRITE: ("WriteShareGroupState", Operation.WRITE),
    share_state.DELETE: ("DeleteShareGroupState", Operation.DELETE),
    share_state.SUMMARY: ("ReadShareGroupStateSummary", Operation.DESCRIBE),
}
#: Commands that need DESCRIBE of the cluster, with the arguments that they take.
LOOKS: Final[dict[str, tuple[str, ...]]] = {
    "config": (),
    "debug": (),
    "decision-preview": ("decision", "partition", "group", "reason"),
    "hand-overs": (),
    "members": (),
    "metrics": ("of", "accept"),
    "page-state": ("group", "topic_id", "partition"),
    "page-states": ("after",),
    "partitions": (),
    "readers": (),
    "resolve-topic": ("name",),
    "settings": (),
    "share-partitions": ("group", "topic_id", "after", "limit"),
    "status": (),
    "topic-ends": ("topics",),
}
#: Commands that need ALTER of the cluster.
CHANGES: Final[dict[str, tuple[str, ...]]] = {
    "partitions-accept": ("partition", "run_id", "reason"),
    "partitions-take": ("partition", "run_id"),
    "readers-drop": ("group", "run_id", "reason"),
    "topics-accept-deleted": ("run_id", "reason"),
}
#: Commands that need READ of the group.
READS: Final[dict[str, tuple[str, ...]]] = {
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
}
COMMANDS: Final = LOOKS | CHANGES | READS
