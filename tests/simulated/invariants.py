"""What must hold, by name."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


class Invariant(Enum):
    """A name and the sentence that must be true after every step of every life."""

    ANSWERED_WRITES_STAY = "every answered write is in every later load"
    ANSWERED_ONCE = "an operation is answered once"
    ALWAYS_ANSWERED = "when faults have stopped, every operation has an outcome"
    ANSWERED_IN_TIME = "an operation has its outcome at the first tick after its deadline"
    ANSWERED_AFTER_COMMIT = "a write is answered when its record lies below the high watermark"
    SUPERSEDED_IS_SILENT = "a superseded owner answers no write"
    ANSWERED_IN_ORDER = "answers of writes leave in the order of the log"
    LINEARIZABLE = "an answer is the state at a point between its question and itself, behind every earlier answer"
    READ_INDEX = "an answer without records waits for the log's end as it was when the question came"
    DECIDED_ON_ITS_STATE = "a record that counts was decided on the state that every reader has before it"
    REFUSED_IS_UNWRITTEN = "what is answered as not written was never handed to the log"
    STATE_IS_THE_LOG = "the state at the committed position is the fold of the whole log up to there"
    STATE_IS_WHAT_WAS_SENT = "the newest state is the committed state and what is parked"
    COUNTED_IS_NOT_VOID = "a record that a node takes as its own counts for every reader"
    LOAD_IS_COMPLETE = "a load serves the fold of the log up to its own checkpoint"
    FAST_LOAD_IS_A_WHOLE_LOAD = "a load that began with snapshots ends as a load of the whole log does"
    REMOVED_IS_DEAD = "a removal leaves the newest manifest that agrees with its entries as it is"
    NO_FALSE_DIVERGENCE = "a divergence is told only where an entry was falsified"
    LOAD_ENDS_AT_ITS_CHECKPOINT = "a partition serves when its own checkpoint counts in the log, not before"
    COMMITTED_IS_WRITTEN = "committed is not above written, nor above the high watermark"
    TIMELINE_IS_BOUNDED = "what can be undone is what is parked"
    DECIDE_IS_PURE = "decide changes nothing"
    PARTITION_IS_VALID = "Partition.validate holds"
    LEGAL_TRANSITIONS = "a partition's state follows the table"
    ONE_LIFE_PER_INSTANCE = "an instance sees load*, on_loaded, calls and on_unloaded once, and nothing after"
    GAP_ENDS_AN_EPOCH = "an owner that meets a record of its own void stops serving"
    UNLOAD_ANSWERS_ALL = "when an instance ends, each of its operations has an outcome"
    PARKING_IS_BOUNDED = "no more wait than the setting allows"
    AMBIGUITY_FAILS = "an append that failed after its hand-over fails its partition"
    LOADS_AGAIN = "a partition that failed or may take over loads again when its back-off is over"
    TIMERS_FIRE = "a timer fires at the first tick when it is due, and only while its instance serves"
    SILENT_AFTER_CLOSE = "nothing is appended after close or by a partition that does not serve"
    PRUNED_IS_REPLACED = "a reader that starts now finds the state of the whole log"
    PRUNED_IS_JUDGED_ALIKE = "a reader that starts now finds the same records void"
    BUGS_STAY_AT_HOME = "an exception does not leave the runtime"
    BUGS_FAIL_THEIR_PARTITION = "a partition in whose event an exception was raised stops serving"
    IMAGE_IS_THE_NEWEST = "a partition that serves decides by the newest metadata image of its node"
    DISTRUSTED_IS_NOT_SERVED = "no partition begins to serve while its node does not trust the log"
    NOTHING_FAILS_WITHOUT_FAULTS = "without faults no partition fails and no operation is lost"
    SENT_IS_APPENDED = "what is sent was handed to the log by the process that sends it"
    NO_BUSY_LOOP = "nobody asks again and again without a pause"
    CONVERGES = "when faults have stopped, one node serves each partition"
    NOBODY_FIGHTS = "when faults have stopped, few checkpoints are taken"


class Violation(BaseException):
    """An invariant does not hold; no handler of the code under test may catch it, so it is no `Exception`."""

    def __init__(self, invariant: Invariant, text: str) -> None:
        super().__init__(f"{invariant.name}: {invariant.value}; {text}")
        self.invariant = invariant


def violate(invariant: Invariant, text: str) -> NoReturn:
    """Say that an invariant does not hold."""
    raise Violation(invariant, text)
