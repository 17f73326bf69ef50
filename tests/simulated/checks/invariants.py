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
    RESTORE_IS_A_WHOLE_LOAD = "a load that began with snapshots ends as a load of the whole log does"
    REMOVED_IS_DEAD = "a removal leaves the newest manifest that agrees with its entries as it is"
    NO_FALSE_DIVERGENCE = "a divergence is told only where an entry was falsified, or its log lost its end or start"
    LOAD_ENDS_AT_ITS_CHECKPOINT = "a partition serves when its own checkpoint counts in the log, not before"
    COMMITTED_IS_WRITTEN = "committed is not above written, nor above the high watermark"
    TIMELINE_IS_BOUNDED = "what can be undone is what is parked"
    DECIDE_IS_PURE = "decide changes nothing"
    PARTITION_IS_VALID = "Partition.validate holds"
    LEGAL_TRANSITIONS = "a partition's state follows the table"
    ONE_LIFE_PER_INSTANCE = "an instance sees load*, on_loaded, calls and on_unloaded once, discard*, and nothing after"
    HELD_IS_COUNTED = "a node counts what its instances hold, from their fold until it is freed"
    GAP_ENDS_AN_EPOCH = "an owner that meets a record of its own void stops serving"
    UNLOAD_ANSWERS_ALL = "when an instance ends, each of its operations has an outcome"
    PARKING_IS_BOUNDED = "no more wait than the setting allows"
    AMBIGUITY_FAILS = "an append that failed after its hand-over fails its partition, unless it was read back"
    LOADS_AGAIN = "a partition that failed or may take over loads again when its back-off is over"
    SILENT_AFTER_CLOSE = "nothing is appended after close or by a partition that does not serve"
    PRUNED_IS_REPLACED = "a reader that starts now finds the state of the whole log"
    PRUNED_IS_JUDGED_ALIKE = "a reader that starts now finds the same records void"
    BUGS_STAY_AT_HOME = "an exception does not leave the runtime"
    BUGS_FAIL_THEIR_PARTITION = "a partition in whose event an exception was raised stops serving"
    IMAGE_IS_THE_NEWEST = "a partition that serves decides by the newest metadata image of its node"
    DISTRUSTED_IS_NOT_SERVED = "no partition begins to serve while its node does not trust the log"
    NOTHING_FAILS_WITHOUT_FAULTS = "without faults no partition fails and no operation is lost"
    READERS_ARE_HELD = (
        "a log is not cut past a registered reader, and a reader is silent or dropped when it has not moved for long"
    )
    TOPICS_KEEP_THEIR_STATE = "state is removed of topics that were seen to be missing for the whole time of grace"
    DELETED_LOSE_THEIR_STATE = "when faults have stopped, deleted topics lose their state"
    GATE_ASKS_FIRST = "a request about an unknown topic waits until the cluster was asked, and no other does"
    DAMAGE_IS_TOLD = (
        "a log that somebody else cut, or that holds what nobody can read, is served only if an admin accepted it"
    )
    IDENTITY_IS_CHECKED = "a log whose checkpoints name another log is served only if an admin accepted it"
    SENT_IS_APPENDED = "what is sent was handed to the log by the process that sends it"
    SENT_IN_ORDER = "records of a log partition are sent in the order in which they were handed over"
    ONE_BATCH_AT_A_TIME = "of a log partition one batch is sent until it is answered, read back or given up"
    SETTLED_IS_SETTLED = "a batch that was answered is not sent again"
    DROPPED_IS_UNSENT = "what was handed over for an owner that is gone is not sent any more"
    GIVEN_UP_IN_TIME = "a batch is not sent again when its time is up"
    RETRIED_WHERE_IT_IS_LED = "a batch is sent again when it was asked who leads"
    GIVEN_UP_LATE = "a batch that may be sent again is not given up before its time is up"
    HEALTHY_APPENDS_LAND = "no batch is given up while nothing is wrong with the cluster"
    BACKLOG_IS_BOUNDED = "the log keeps no record that nobody waits for"
    TOLD_ONCE = "what the log tells comes in the order of offsets, and once"
    TOLD_IS_COMMITTED = "the log tells nothing above the high watermark"
    TOLD_IS_THE_LOG = "what the log tells of an offset is what lies there"
    NOTHING_IS_LEFT_OUT = "the log leaves no record out"
    READ_INDEX_ONCE = "a read index is told once for each time that it was asked for"
    NO_BUSY_LOOP = "nobody asks again and again without a pause"
    DRAINS = "when faults have stopped, nothing waits in the log for ever"
    PROMPT = "when faults have stopped, an answer takes no longer than its messages"
    PRUNING_ENDS = "when faults have stopped, the log is cut"
    ALARMS_HAVE_A_REASON = "an alarm is raised where something happened that asks for it"
    LOSS_IS_TOLD = "who saw records committed that are gone serves the log no more before an admin accepts it"
    CONVERGES = "when faults have stopped, one node serves each partition"
    NOBODY_FIGHTS = "when faults have stopped, few checkpoints are taken"
    CALLBACKS_IN_ORDER = "callbacks of a member run one at a time: prepare, perform, complete"
    ONE_LEADER = "who performs an assignment is who the group coordinator made the leader, once for each join"
    ONE_JOIN_AT_A_TIME = "a member has one JoinGroup in flight"
    OUTDATED_CHANGES_NOTHING = "an answer to a request of an earlier generation changes nothing"
    HEARTBEATS_GO_ON = "a member sends heartbeats as long as it has a session, and only then"
    NO_HOT_REJOIN = "nobody joins again and again without a pause"
    WISHES_STAY = "a wish to join again is heard by a JoinGroup that leaves after it"
    DELIVERED_AGAIN = "an assignment that was not taken over is delivered again"
    NOBODY_IS_REFUSED = "nobody is refused by its group for good without a reason"
    ASSIGNED_ONCE = "an assignment names every log partition and every duty once, and all members are given one map"
    BALANCED = "no member is assigned two more than another"
    GENERATIONS_RISE = "an ownership generation is above all that the members have seen"
    WORK_IS_ASSIGNED = "a node begins what its newest assignment gives it, under that ownership generation"
    BEHIND_WAITS = "nothing begins before the config topic was read as far as its assignment was made for"
    GIVEN_UP_ONCE = "a node gives up what it holds, once"
    HANDED_OVER_IN_TIME = "what was assigned to another node is given up when that one takes it, or in time"
    EAGER_GIVES_UP_FIRST = "under the eager protocol a member holds nothing when it joins"
    MAP_IS_OF_THE_SESSION = "nothing is answered from the map of a lost session, nor for long from a stale one"
    NEWEST_CLAIM_WINS = "of two members that held a log partition, the one that held it last keeps it"
    WORK_IS_BEGUN = (
        "what is assigned is begun as soon as the config topic was read far enough, or the member joins again"
    )
    NAMES_WHAT_IT_SERVES = "while it is to join again, a node names itself for what it serves alone"
    NAMED_BY_ITS_WORD = "a former owner is named that serves, or said so a poll and its time-out ago"
    SERVED_IS_NAMED = "while somebody serves a log partition that is on its way, nobody is named that does not"
    FORMER_ARE_KNOWN = "who serves what another member is assigned is named in the assignment, if the leader knew of it"
    SESSIONS_END = "a member that the coordinator has not answered for the time of a session is none"
    MEMBERSHIPS_DO_NOT_MIX = "a node that finds nodes of another membership at work ends"
    LOADS_ARE_BOUNDED = "no more log partitions load at a time than the setting allows"
    CONFIG_IS_WHOLE = "a node goes by the config topic as it stands at an offset that was read, and by nothing between"
    CONFIG_IS_READ_AGAIN = "a config topic that could not be read is read again after a pause"
    JOINS_WITH_A_LOOK = "a member takes a fresh look at the config topic before each join"
    CONFIG_IS_TAKEN = "a node takes what holds in the config topic when it has read it"
    GROUP_CONVERGES = "when faults have stopped, all members are stable, and each serves what one map gives it"
    GROUP_RESTS = "when the group has converged, it stays as it is"
    SETTLED_IS_NOT_GIVEN = "what was accepted or rejected without an error is not given again"
    SETTLED_IS_IN_THE_LOG = "what was accepted or rejected without an error is in the state of its share partition"
    NO_RECORD_IS_SKIPPED = "a start offset passes what has its end, or is in the log no more, and nothing else"
    RECORDS_ARE_GIVEN = "when faults have stopped, each record is accepted, rejected or given up, and the log knows it"
    LOCKED_BY_ONE = "a share partition gives an offset to one member at a time"
    LOCKED_RECORDS_ARE_SENT = "the records that a member is given are in the answer"
    DELIVERY_COUNT_GROWS = "a delivery count never falls in the log, nor goes above its limit"
    ACKNOWLEDGED_IS_NAMED = "an answer names each partition that its request acknowledges"
    LEADER_IS_NAMED = "an answer names leader and leader epoch where another node leads, and only there"
    GIVEN_BY_ITS_LEADER = "records are acquired from a share partition that is led, under the newest leader epoch known"
    NOBODY_MISSES_ANYTHING = "no fetch sleeps while a question to one of its share partitions would lead to something"
    NOBODY_WAITS_BESIDE_RECORDS = "a fetch does not wait for long where a record is available"
    LOCKS_END = "a lock ends in its time"
    FETCHES_ARE_BOUNDED = "a fetch brings records of one more share partition only while it has fewer than it wants"
    MEMBERS_ACQUIRE = "records are acquired for members that have a session"
    WAITS_ARE_BOUNDED = "a consumer is answered in the time that it waits, and that of two Writes"
    NOTHING_IS_LEFT = "when all sessions are gone, nothing is led, read or waited for"


class Violation(BaseException):
    """An invariant does not hold; no handler of the code under test may catch it, so it is no `Exception`."""

    def __init__(self, invariant: Invariant, text: str) -> None:
        super().__init__(f"{invariant.name}: {invariant.value}; {text}")
        self.invariant = invariant


#: Violations of this life in order, for those that end in a task which nobody waits for.
FOUND: list[Violation] = []


def violate(invariant: Invariant, text: str) -> NoReturn:
    """Say that an invariant does not hold."""
    violation = Violation(invariant, text)
    FOUND.append(violation)
    raise violation
