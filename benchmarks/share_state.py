"""The share partitions under load, what is written to them, and what must be read back.

Two mixes. *steady*: every write acknowledges the next batch of `BATCH_SIZE` offsets; every `WINDOW`-th also moves the
start offset, so that a state holds between 1 and 2 × `WINDOW` - 1 batches however long the run is. Neighbouring batches
differ in their delivery count, as after redelivery, so they stay apart in the state.
*spread*: every write acknowledges what the one before released, releases the next offsets, and moves the start offset.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import ClassVar, Final

from benchmarks.client import Address, BenchmarkError, Client, wait_until
from holdfast.api.results import (
    InitializePartition,
    PartitionRequest,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    SummaryPartition,
    SummaryResult,
)
from holdfast.api.share_state import INITIALIZE, READ, SUMMARY
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey, format_key

BATCH_SIZE: Final = 10
WINDOW: Final = 3
STATE_EPOCH: Final = 1
LEADER_EPOCH: Final = 5
#: Share partitions of one connection; they are those of one group and one topic.
KEYS_PER_CONNECTION: Final = 16
#: Partitions of the topic; in a cluster of three each coordinator has about a third of them.
TOPIC_PARTITIONS: Final = 96

_GROUPS_TRIED_MAX: Final = 1_000

#: Number of the place of a share partition, such as the broker that leads its log partition.
Placement = Callable[[SharePartitionKey], int]
_Place = tuple[int, Address]  #: and its coordinator


def anywhere(_key: SharePartitionKey) -> int:
    """Put all share partitions in one place."""
    return 0


class WrittenState:
    """What one share partition of the mix *steady* must hold: the outcome of its first `writes` writes."""

    __slots__ = ("partition", "start_offset", "writes")

    #: State batches of one write.
    batches: ClassVar[int] = 1

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.writes = 0
        self.start_offset = 0

    def next_write(self) -> tuple[int, ...]:
        """Advance by one write.

        Returns: start offset, as a leader repeats it, delivery complete count, `batches` + 1 (the array of them), and the batches.
        """
        number = self.writes
        self.writes = number + 1
        first_offset = number * BATCH_SIZE
        if number % WINDOW == WINDOW - 1:
            self.start_offset = first_offset - (WINDOW - 1) * BATCH_SIZE
        last_offset = first_offset + BATCH_SIZE - 1
        complete_count = last_offset + 1 - self.start_offset
        return self.start_offset, complete_count, 2, first_offset, last_offset, ACKNOWLEDGED, 1 + number % WINDOW

    def expected_read(self) -> ReadResult:
        """Return what Read must answer."""
        numbers = range(self.start_offset // BATCH_SIZE, self.writes)
        batches = tuple(
            StateBatch(n * BATCH_SIZE, n * BATCH_SIZE + BATCH_SIZE - 1, ACKNOWLEDGED, 1 + n % WINDOW) for n in numbers
        )
        return ReadResult(0, None, STATE_EPOCH, self.start_offset, batches)

    def expected_summary(self) -> SummaryResult:
        """Return what ReadSummary must answer."""
        complete_count = self.writes * BATCH_SIZE - self.start_offset
        return SummaryResult(0, None, STATE_EPOCH, LEADER_EPOCH, self.start_offset, complete_count)


class ReleasedState(WrittenState):
    """The same of the mix *spread*."""

    __slots__ = ()

    batches = 2

    def next_write(self) -> tuple[int, ...]:
        """See `WrittenState.next_write`: the second batch was released by the write before, the first is the next one to be."""
        start_offset = self.start_offset = self.writes * BATCH_SIZE
        self.writes += 1
        end_offset = start_offset + BATCH_SIZE
        acknowledged = (start_offset, end_offset - 1, ACKNOWLEDGED, 2)
        return start_offset, BATCH_SIZE, 3, *acknowledged, end_offset, end_offset + BATCH_SIZE - 1, AVAILABLE, 1

    def expected_read(self) -> ReadResult:
        """Return what Read must answer."""
        if not self.writes:
            return super().expected_read()
        first_offset, end_offset = self.start_offset, self.start_offset + BATCH_SIZE
        acknowledged = StateBatch(first_offset, end_offset - 1, ACKNOWLEDGED, 2)
        released = StateBatch(end_offset, end_offset + BATCH_SIZE - 1, AVAILABLE, 1)
        return ReadResult(0, None, STATE_EPOCH, first_offset, (acknowledged, released))

    def expected_summary(self) -> SummaryResult:
        """Return what ReadSummary must answer."""
        complete_count = BATCH_SIZE if self.writes else 0
        return SummaryResult(0, None, STATE_EPOCH, LEADER_EPOCH, self.start_offset, complete_count)


#: What is written, by mix.
MIXES: Final[dict[str, type[WrittenState]]] = {"steady": WrittenState, "spread": ReleasedState}


class ConnectionKeys:
    """The share partitions that one connection writes and reads; all have one coordinator."""

    def __init__(
        self, address: Address, group_id: str, topic_id: bytes, partitions: Sequence[int], mix: str = "steady"
    ) -> None:
        self.address = address
        self.group_id = group_id
        self.topic_id = topic_id
        self.states = [MIXES[mix](partition) for partition in partitions]
        #: What the same caller writes and reads over connections to other coordinators; one request of all is in flight.
        self.elsewhere: list[ConnectionKeys] = []

    def request(self, partitions: list[PartitionRequest]) -> StateRequest:
        """Return a request over some of the share partitions."""
        return StateRequest(self.group_id, [(self.topic_id, partitions)])

    def initialise(self, client: Client) -> bool:
        """Make the state of every share partition and raise its leader epoch; returns whether all answered success."""
        initialised = self._call(
            client, INITIALIZE, [InitializePartition(state.partition, STATE_EPOCH, 0) for state in self.states]
        )
        return all(result.error_code == 0 for result in initialised.values()) and all(
            result.error_code == 0 for result in self._read(client).values()
        )

    def check(self, client: Client) -> None:
        """Read everything back.

        Raises:
            BenchmarkError: a state is not what was written.
        """
        read = self._read(client)
        summaries = self._call(client, SUMMARY, [SummaryPartition(state.partition, -1) for state in self.states])
        for state in self.states:
            expected = state.expected_read(), state.expected_summary()
            found = read[state.partition], summaries[state.partition]
            if found != expected:
                raise BenchmarkError(
                    f"Partition {state.partition} of {self.group_id} holds {found} in place of {expected}."
                )

    def _read(self, client: Client) -> dict[int, PartitionResult]:
        return self._call(client, READ, [ReadPartition(state.partition, LEADER_EPOCH) for state in self.states])

    def _call(self, client: Client, api_key: int, partitions: list[PartitionRequest]) -> dict[int, PartitionResult]:
        response = client.share_state(api_key, self.request(partitions))
        return {partition: result for _, results in response for partition, result in results}


def find_keys(
    first: Address,
    topic_id: bytes,
    connections: int,
    prefix: str,
    placement: Placement = anywhere,
    mix: str = "steady",
    coordinators: int = 1,
) -> list[ConnectionKeys]:
    """Choose share partitions for so many callers, which are spread evenly over the coordinators and leaders.

    Waits until all coordinators are there, then initialises the states.

    Args:
        first: a server that finds coordinators.
        topic_id: of the topic that the share partitions belong to.
        connections: how many callers.
        prefix: of the groups' ids.
        placement: those of one connection have one place.
        mix: what is to be written.
        coordinators: over connections to so many each caller sends in turn.

    Raises:
        BenchmarkError: it takes too long.
    """
    chosen: list[ConnectionKeys] = []
    taken: Counter[_Place] = Counter()
    with Client(first) as client:
        for group_id in _group_ids(prefix):
            by_address = wait_until("Finding coordinators", partial(_coordinators, client, group_id, topic_id))
            by_place: dict[_Place, list[int]] = {}
            for address, partitions in by_address.items():
                for partition in partitions:
                    number = placement(SharePartitionKey(group_id, topic_id, partition))
                    by_place.setdefault((number, address), []).append(partition)
            place = take_place(by_place, taken)
            if place is not None:
                partitions = by_place[place][:KEYS_PER_CONNECTION]
                chosen.append(ConnectionKeys(place[1], group_id, topic_id, partitions, mix))
            if len(chosen) == connections * coordinators:
                break
    for keys in chosen:
        wait_until(f"Initialising the states of {keys.group_id}", partial(_initialise, keys))
    return make_callers(chosen, coordinators)


def make_callers(chosen: Sequence[ConnectionKeys], coordinators: int) -> list[ConnectionKeys]:
    """Give each caller the share partitions of so many neighbours, which lie with different coordinators.

    Each begins with another coordinator than the caller before it, so that they do not all go to the same one at a time.

    Raises:
        BenchmarkError: two of a caller's have one coordinator, because a leader has moved.
    """
    callers: list[ConnectionKeys] = []
    for number in range(0, len(chosen), coordinators):
        neighbours = chosen[number : number + coordinators]
        if len({keys.address for keys in neighbours}) < coordinators:
            raise BenchmarkError(f"Coordinators of {neighbours[0].group_id} and its neighbours are the same.")
        begin = len(callers) % coordinators
        first, *others = (*neighbours[begin:], *neighbours[:begin])
        first.elsewhere = others
        callers.append(first)
    return callers


def take_place(by_place: dict[_Place, list[int]], taken: Counter[_Place]) -> _Place | None:
    """Take the place that was taken least so far, the lowest number first; None: it has too few share partitions."""
    place = min(by_place, key=lambda place: (taken[place], place))
    if len(by_place[place]) < KEYS_PER_CONNECTION:
        return None
    taken[place] += 1
    return place


def _group_ids(prefix: str) -> Iterator[str]:
    for number in count():
        if number == _GROUPS_TRIED_MAX:
            raise BenchmarkError(f"{number} groups have too few share partitions at one coordinator.")
        yield f"{prefix}-{number}"


def _coordinators(client: Client, group_id: str, topic_id: bytes) -> dict[Address, list[int]] | None:
    """Return the partitions of a group by coordinator, or None while one of them has no coordinator."""
    names = [format_key(SharePartitionKey(group_id, topic_id, partition)) for partition in range(TOPIC_PARTITIONS)]
    by_address: dict[Address, list[int]] = {}
    for partition, (error_code, address) in enumerate(client.find_coordinators(names)):
        if error_code:
            return None
        by_address.setdefault(address, []).append(partition)
    return by_address


def _initialise(keys: ConnectionKeys) -> bool | None:
    with Client(keys.address) as client:
        return keys.initialise(client) or None


def check_all(all_keys: Sequence[ConnectionKeys]) -> int:
    """Read the states of all callers back and return how many share partitions were compared.

    Raises:
        BenchmarkError: a state is not what was written.
    """
    everywhere = [each for keys in all_keys for each in (keys, *keys.elsewhere)]
    for keys in everywhere:
        with Client(keys.address) as client:
            keys.check(client)
    return sum(len(keys.states) for keys in everywhere)
