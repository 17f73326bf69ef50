"""What is asked of a share coordinator, and what must be answered: once for Apache Kafka's, once for ours.

The expectations were written from the protocol's rules; they hold for Apache Kafka 4.3.1 and 4.4.0 but where they say which.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.interop.driver import Step, batches, step

NONE = 0
INVALID_REQUEST = 42
FENCED_LEADER_EPOCH = 74
FENCED_STATE_EPOCH = 124

ARCHIVED = 4
ARCHIVING = 3
ACKNOWLEDGED = 2
AVAILABLE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call, and what its answer holds for each partition asked, in order."""

    claim: str
    step: Step
    expected: list[dict[str, Any]] = field(default_factory=list)


class Talk:
    """Builds the exchanges of one share group about one topic."""

    def __init__(self, group_id: str, topic_id: str) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.exchanges: list[Exchange] = []

    def say(self, claim: str, call: str, *pairs: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Add a call; each pair is a partition as asked and what is told of it."""
        asked = [partition for partition, _ in pairs]
        expected = [{"topic_id": self.topic_id, "partition": p["partition"], **answer} for p, answer in pairs]
        self.exchanges.append(
            Exchange(claim=claim, step=step(call, self.group_id, self.topic_id, *asked), expected=expected)
        )

    def initialize(self, claim: str, *, state_epoch: int, start_offset: int, error: int = NONE) -> None:
        """Add an Initialize of partition 0."""
        asked = {"partition": 0, "stateEpoch": state_epoch, "startOffset": start_offset}
        self.say(claim, "initialize", (asked, {"error_code": error}))

    def write(
        self,
        claim: str,
        *rows: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 1,
        start_offset: int = -1,
        complete: int = 0,
        error: int = NONE,
    ) -> None:
        """Add a Write to partition 0; each row is first offset, last offset, delivery state, delivery count."""
        asked = {
            "partition": 0,
            "stateEpoch": state_epoch,
            "leaderEpoch": leader_epoch,
            "startOffset": start_offset,
            "deliveryCompleteCount": complete,
            "stateBatches": batches(*rows),
        }
        self.say(claim, "write", (asked, {"error_code": error}))

    def read(
        self, claim: str, *rows: tuple[int, int, int, int], leader_epoch: int = 1, state_epoch: int = 1, start: int
    ) -> None:
        """Add a Read of partition 0 that succeeds."""
        answer = {
            "error_code": NONE,
            "state_epoch": state_epoch,
            "start_offset": start,
            "batches": [list(row) for row in rows],
        }
        self.say(claim, "read", ({"partition": 0, "leaderEpoch": leader_epoch}, answer))

    def read_refused(self, claim: str, *, leader_epoch: int, error: int) -> None:
        """Add a Read of partition 0 that fails."""
        reports = {"error_code": error, "state_epoch": 0, "start_offset": 0, "batches": []}
        self.say(claim, "read", ({"partition": 0, "leaderEpoch": leader_epoch}, reports))

    def summary(self, claim: str, *, state_epoch: int, leader_epoch: int, start: int, complete: int) -> None:
        """Add a ReadSummary of partition 0, asked without an epoch of our own."""
        answer = {
            "error_code": NONE,
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start,
            "delivery_complete_count": complete,
        }
        self.say(claim, "summary", ({"partition": 0, "leaderEpoch": 0}, answer))

    def delete(self, claim: str) -> None:
        """Add a Delete of partition 0."""
        self.say(claim, "delete", ({"partition": 0}, {"error_code": NONE}))


def life_of_a_share_partition(group_id: str, topic_id: str) -> list[Exchange]:
    """Initialise, deliver, acknowledge, move on, be taken over, be fenced, start again, and go."""
    talk = Talk(group_id, topic_id)
    talk.read_refused("nothing is read before Initialize", leader_epoch=0, error=INVALID_REQUEST)
    talk.write("nothing is written before Initialize", (100, 109, AVAILABLE, 1), error=INVALID_REQUEST)
    talk.summary(
        "an unknown share partition is summed up as such", state_epoch=0, leader_epoch=0, start=-1, complete=-1
    )
    talk.initialize("a share partition begins where it is told", state_epoch=1, start_offset=100)
    talk.read("it begins without batches", start=100)
    talk.write(
        "batches of unlike delivery count are kept apart",
        *((100, 109, AVAILABLE, 1), (110, 119, AVAILABLE, 2), (120, 129, AVAILABLE, 0)),
        start_offset=100,
    )
    talk.write("a write may move the start offset", (120, 129, ACKNOWLEDGED, 1), start_offset=110, complete=10)
    talk.read("what lay before the start is gone, the rest stays", (110, 119, 0, 2), (120, 129, 2, 1), start=110)
    talk.summary("the count of completed deliveries is kept", state_epoch=1, leader_epoch=1, start=110, complete=10)
    talk.write("a write in the middle of a batch splits it", (113, 115, ARCHIVED, 5), start_offset=110, complete=13)
    talk.read(
        "the parts of a split batch keep their state",
        *((110, 112, 0, 2), (113, 115, 4, 5), (116, 119, 0, 2), (120, 129, 2, 1)),
        start=110,
    )
    talk.read(
        "a Read with a higher leader epoch takes over",
        *((110, 112, 0, 2), (113, 115, 4, 5), (116, 119, 0, 2), (120, 129, 2, 1)),
        leader_epoch=3,
        start=110,
    )
    talk.write("an older leader cannot write", (130, 139, AVAILABLE, 1), error=FENCED_LEADER_EPOCH)
    talk.read_refused("an older leader cannot read", leader_epoch=2, error=FENCED_LEADER_EPOCH)
    talk.write(
        "another state epoch cannot write", (130, 139, 0, 1), leader_epoch=3, state_epoch=0, error=FENCED_STATE_EPOCH
    )
    talk.summary("the new leader's epoch is stored", state_epoch=1, leader_epoch=3, start=110, complete=13)
    talk.initialize("an older state epoch cannot initialise", state_epoch=0, start_offset=0, error=FENCED_STATE_EPOCH)
    talk.initialize("a higher state epoch starts again", state_epoch=2, start_offset=0)
    talk.read("after a new start the old batches are gone", leader_epoch=3, state_epoch=2, start=0)
    talk.write(
        "like neighbours become one batch",
        *((0, 9, ACKNOWLEDGED, 1), (10, 19, ACKNOWLEDGED, 1), (30, 39, ACKNOWLEDGED, 1)),
        state_epoch=2,
        leader_epoch=3,
    )
    talk.read("a hole keeps batches apart", (0, 19, 2, 1), (30, 39, 2, 1), leader_epoch=3, state_epoch=2, start=0)
    talk.delete("a share partition can be deleted")
    talk.delete("deleting what is not there is no error")
    talk.read_refused("a deleted share partition is not initialised", leader_epoch=3, error=INVALID_REQUEST)
    talk.initialize("it can be initialised again, with an epoch of its own", state_epoch=0, start_offset=7)
    talk.read("a new life remembers nothing of the old one", leader_epoch=0, state_epoch=0, start=7)
    return talk.exchanges


def late_calls(group_id: str, topic_id: str, *, is_former: bool) -> list[Exchange]:
    """Write what comes late, name epochs that are none, and archive by way of dead letters; 4.3.1 is the former release."""
    talk = Talk(group_id, topic_id)
    talk.initialize("a share partition begins", state_epoch=1, start_offset=100)
    talk.write("records are finished", (100, 109, ACKNOWLEDGED, 1), start_offset=100, complete=5)
    talk.write("a late write is taken", (92, 95, AVAILABLE, 1), start_offset=90, complete=9)
    if is_former:
        talk.read("it took the start offset back", (92, 95, 0, 1), (100, 109, 2, 1), start=90)
        talk.summary("and its count stays", state_epoch=1, leader_epoch=1, start=90, complete=9)
        return talk.exchanges
    talk.read("the start offset never goes back", (100, 109, 2, 1), start=100)
    talk.summary("nor does the count", state_epoch=1, leader_epoch=1, start=100, complete=5)
    talk.write("a count is lower", start_offset=100, complete=4)
    talk.write("a start offset is not named, so that the count is not either", start_offset=-1, complete=8)
    talk.summary("the larger count stays", state_epoch=1, leader_epoch=1, start=100, complete=5)
    talk.write("records go to a topic of dead letters", (110, 119, ARCHIVING, 5), start_offset=100, complete=6)
    talk.write("some of them are there", (110, 114, ARCHIVED, 5), start_offset=100, complete=11)
    talk.read("archived ranks above archiving", (100, 109, 2, 1), (110, 114, 4, 5), (115, 119, 3, 5), start=100)
    talk.write("a start offset goes on, and its count with it", start_offset=115, complete=0)
    talk.summary("a count belongs to its start offset", state_epoch=1, leader_epoch=1, start=115, complete=0)
    talk.write("no leader epoch is negative", leader_epoch=-1, error=INVALID_REQUEST)
    talk.write("no state epoch is negative", state_epoch=-1, error=INVALID_REQUEST)
    talk.read_refused("no leader epoch of a read is negative", leader_epoch=-1, error=INVALID_REQUEST)
    talk.initialize(
        "no state epoch of an initialize is negative", state_epoch=-1, start_offset=0, error=INVALID_REQUEST
    )
    return talk.exchanges


def many_share_partitions(group_id: str, topic_id: str, partitions: int) -> list[Exchange]:
    """Ask for many partitions at once; they live in many log partitions, and one that is fenced harms no other."""
    talk = Talk(group_id, topic_id)
    ids = range(partitions)
    talk.say(
        "all are initialised at once",
        "initialize",
        *(({"partition": i, "stateEpoch": 1, "startOffset": 10 * i}, {"error_code": NONE}) for i in ids),
    )
    writes = [
        {
            "partition": i,
            "stateEpoch": 1 if i % 3 else 0,
            "leaderEpoch": i,
            "startOffset": 10 * i,
            "deliveryCompleteCount": i,
            "stateBatches": batches((10 * i, 10 * i + i, AVAILABLE, 1 + i % 5)),
        }
        for i in ids
    ]
    talk.say(
        "each write stands for itself",
        "write",
        *((written, {"error_code": NONE if written["stateEpoch"] else FENCED_STATE_EPOCH}) for written in writes),
    )
    talk.say(
        "each partition keeps its own batches",
        "read",
        *(
            (
                {"partition": i, "leaderEpoch": i},
                {
                    "error_code": NONE,
                    "state_epoch": 1,
                    "start_offset": 10 * i,
                    "batches": [[10 * i, 10 * i + i, AVAILABLE, 1 + i % 5]] if i % 3 else [],
                },
            )
            for i in ids
        ),
    )
    talk.say(
        "each partition is summed up by itself",
        "summary",
        *(
            (
                {"partition": i, "leaderEpoch": 0},
                {
                    "error_code": NONE,
                    "state_epoch": 1,
                    "leader_epoch": i,
                    "start_offset": 10 * i,
                    "delivery_complete_count": i if i % 3 else 0,
                },
            )
            for i in ids
        ),
    )
    talk.say("all are deleted at once", "delete", *(({"partition": i}, {"error_code": NONE}) for i in ids))
    return talk.exchanges
