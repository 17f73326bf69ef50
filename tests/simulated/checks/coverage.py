"""What a run must have seen: a simulation in which something never happens says nothing about it.

Here is also which lives `pytest tests/simulated` lives, so that nothing else of the same run lives them again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from holdfast.share.snapshots.restore import Refusal
from tests.simulated.cluster import faults as cluster_faults
from tests.simulated.faults import FAULTS
from tests.simulated.gateway.faults import FAULTS as GATEWAY_FAULTS
from tests.simulated.group import faults as group_faults

MEMORY, CLUSTER, GROUP, LEADERS, GATEWAY = "memory", "cluster", "group", "leaders", "gateway"

#: Kind of life to the seeds that the tests live.
TESTED: Final = {MEMORY: range(500), CLUSTER: range(60), GROUP: range(30), LEADERS: range(150), GATEWAY: range(60)}
#: Lives beyond those that failed once.
FAILED: Final = (
    *((MEMORY, seed) for seed in (637, 746, 501_474, 502_082, 502_935, 3_214_618)),
    *(
        (MEMORY, seed)
        for seed in (61_396, 65_122, 66_232, 70_107, 80_412, 108_105, 900_293, 901_793, 903_099, 906_715, 907_476)
    ),
    *((MEMORY, seed) for seed in (5_200_160, 5_205_649, 5_329_634)),
    *((CLUSTER, seed) for seed in (502, 529, 730, 869, 1_764, 27_298, 500_224, 500_474, 501_499, 501_518, 711_587)),
    *((CLUSTER, seed) for seed in (800_734, 801_542, 803_544, 803_934, 820_094, 824_063)),
    *((CLUSTER, seed) for seed in (825_936, 854_267, 874_634, 877_492, 841_419, 841_764, 841_879)),
    *((CLUSTER, seed) for seed in (1_204_147, 1_206_842, 1_327_454, 3_101_975, 3_131_090, 3_151_288, 3_201_447)),
    *((GROUP, seed) for seed in (14_873, 50_811, 58_812)),
)


def lived() -> set[tuple[str, int]]:
    """Return kind and seed of every life that `test_simulation.py` lives."""
    return {(kind, seed) for kind, seeds in TESTED.items() for seed in seeds} | {*FAILED}


#: They need more memory, or another number of partitions, than any life has.
NEVER = (Refusal.TOO_LARGE, Refusal.FOREIGN)
RARELY = ("disagreement", "unreadable", "undecodable")
_NO_RESTORE_POINT = "no restore point: "
EXPECTED = (
    *(f"fault: {kind}" for kind in FAULTS),
    "fault: a write that is too large",
    "fault: a malformed write",
    "fault: decide raises",
    "fault: replay raises",
    "fault: committed raises",
    "initial -> loading",
    "loading -> active",
    "loading -> failed",
    "loading -> closed",
    "active -> failed",
    "active -> closed",
    "failed -> loading",
    "failed -> closed",
    "closed -> loading",
    "load",
    "life without faults",
    "answered write",
    "answered read",
    "retry from inside",
    "outcome: LoadInProgress",
    "outcome: NotAvailable",
    "outcome: NotCoordinator",
    "outcome: OperationFailed",
    "outcome: RecordTooLarge",
    "outcome: TimedOut",
    "own records taken",
    "own records refused",
    "verdict: void",
    "verdict: own",
    "verdict: rival",
    "verdict: data",
    "superseded",
    "refresh",
    "cut named",
    "prune",
    "log start moved",
    "pruning refreshing",
    "pruning writing snapshots",
    "pruning deleting records",
    "accept",
    "restart",
    "thaw",
    "late begin",
    "late catch up",
    "late read",
    "late request",
    "refused delete",
    "reading fails",
    "alarm while reading",
    "note: load_stalled",
    "batch folded",
    "job begins again after a lost end",
    "removal",
    "removal lands",
    "manifest verified by its owner",
    "restored load",
    "restore point: loaded",
    "restore point: the log does not hold its offset",
    *(_NO_RESTORE_POINT + refusal.value for refusal in Refusal if refusal not in NEVER and refusal.value not in RARELY),
)

#: Seen once in some hundred lives.
RARE_LIVES_MIN = 5_000
RARE = (
    "miss",
    "late lose",
    "own records refused",
    "batch behind a cut",
    "divergence",
    *(_NO_RESTORE_POINT + name for name in RARELY),
)


#: Of lives on the cluster.
CLUSTER_EXPECTED = (
    *(f"fault: {kind}" for kind in cluster_faults.FAULTS),
    "fault: decide raises",
    "fault: replay raises",
    "fault: committed raises",
    "active -> failed",
    "active -> closed",
    "failed -> loading",
    "loading -> failed",
    "load",
    "life without faults",
    "answered write",
    "answered read",
    "outcome: LoadInProgress",
    "outcome: NotAvailable",
    "outcome: NotCoordinator",
    "outcome: RecordTooLarge",
    "outcome: TimedOut",
    "own records taken",
    "own records refused",
    "superseded",
    "accept",
    "restart",
    "thaw",
    "failed over",
    "uncommitted records lost",
    "append to a leader of the past",
    "append given up",
    "batch sent again",
    "batch that arrives damaged",
    "fetch session lost",
    "offset out of range",
    "diverging",
    "offset of the past told",
    "the past rightly believed",
    "the past known as such",
    "alarm while reading",
    "no broker found at the start",
    "log closed in time",
    "log closed too late",
    "log start moved",
)

#: Of lives of a group.
GROUP_EXPECTED = (
    *(f"fault: {kind}" for kind in group_faults.FAULTS),
    "fault: on_join_prepare raises",
    "fault: perform_assignment raises",
    "fault: on_join_complete raises",
    "life without faults",
    "answered write",
    "load",
    "restart",
    "superseded",
    "log partition moves",
    "taken as planned",
    "taken by surprise",
    "assignment handed in",
    "assignment failed",
    "config mismatch",
    "answer of an earlier generation",
    "left in time",
    "left too late",
    "note: membership_lost",
    "note: work_revoked",
    "note: config_behind",
    "note: handover_expired",
    "fault: clock stood still",
    "owner queried",
    "nodes of another membership found",
    "refused beside nodes of another membership",
    "static node superseded",
    "note: config_topic_read",
    "note: config_topic_unread",
    "note: config_records_passed_over",
)

#: Of lives with leaders among the clients, whose faults are those of others over a log in memory.
LEADERS_EXPECTED = ("leader has a state", "leader finds no state", "answered write", "answered read", "load", "restart")

#: Of lives of a gateway.
GATEWAY_EXPECTED = (
    *(f"fault: {kind}" for kind in GATEWAY_FAULTS),
    "life without faults",
    "accepted",
    "rejected",
    "given",
    "given again",
    "given by a leader of the past",
    "given after its lock",
    "lock renewed",
    "truncation told",
    "call refused",
    "outcome of a Write is not known",
    "leader fenced",
    "partition forgotten",
    "session begun again",
    "session ended",
    "connection cut",
    "wrong session epoch",
    "share partition done with",
    "note: records_not_read",
    "note: share_partition_held",
    "note: share_partition_not_served",
)

#: Below so many lives chance may leave something out, by kind.
LIVES_MIN = {MEMORY: 500, CLUSTER: 400, GROUP: 2_000, LEADERS: 150, GATEWAY: 400}
_EXPECTED: Final = {
    MEMORY: EXPECTED,
    CLUSTER: CLUSTER_EXPECTED,
    GROUP: GROUP_EXPECTED,
    LEADERS: LEADERS_EXPECTED,
    GATEWAY: GATEWAY_EXPECTED,
}


def missing(kind: str, counts: Counter[str], lives: int) -> list[str]:
    """Return what is expected in so many lives of a kind and never happened."""
    if lives < LIVES_MIN[kind]:
        return []
    rare = RARE if kind == MEMORY and lives >= RARE_LIVES_MIN else ()
    return [what for what in (*_EXPECTED[kind], *rare) if not counts[what]]
