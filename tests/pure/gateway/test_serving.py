"""Share partitions that give records and end: nobody is left waiting, no lock outlives its leader, no state is read too early."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest
from holdfast.api.share_consumer import ACCEPT, AcknowledgedRange, NamedPartition
from holdfast.api.share_errors import acknowledge_code
from holdfast.api.share_fetch import FetchedPartition, Piece, ShareFetchRequest, decode_response
from holdfast.daemon.access.audit import Client
from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.sessions import ShareSessions, Turn
from holdfast.delivery.share_partition.values import AcquireMode
from holdfast.gateway.consumers import ConsumerCalls, LeaderPlace
from holdfast.gateway.fetch import Fetch, FetchBounds
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Acknowledged, Ended, LedPartition, Wanted
from holdfast.gateway.leading.starts import Starts
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.connection_options import Address
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.partition_reader import OffsetOutOfRange, PartitionReader, RecordsUnreadable
from holdfast.kafka.records.transactions import AbortedTransaction
from holdfast.kafka.topics.topic_ends import Answer, Leaders, Led, Place
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from tests.waiting import wait_until
from tests.world.samples import TOPIC

KEY = SharePartitionKey("group", TOPIC, 0)
WANTED = Wanted("member", AcquireMode.BATCH_OPTIMIZED, 500)
TRANSACTIONAL = 0x10


class State:
    """State of a group that began at 0; its Writes are answered when the test says so (`ShareStateAccess`)."""

    def __init__(self) -> None:
        self.loads = 0
        self.writes: list[WritePartition] = []
        self._responds: list[Callable[[WriteResult], None]] = []

    def log_partition_of(self, topic_id: bytes, partition: int) -> int | None:
        return 0

    def read_or_initialize(self, *call: Any) -> None:
        self.loads += 1
        call[-1](ReadOrInitializeResult(0, None, 1, 0, (), has_state=True))

    def write(
        self, group_id: str, topic_id: bytes, write: WritePartition, respond: Callable[[WriteResult], None]
    ) -> None:
        self.writes.append(write)
        self._responds.append(respond)

    def answer(self, error_code: int = 0) -> None:
        self._responds.pop(0)(WriteResult(error_code, None))


class Leadership:
    """Owner epochs that the test sets (`leader.Leadership`)."""

    def __init__(self) -> None:
        self.epoch: int | Ended = 3

        #: Questions.
        self.asked = 0

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        return partition

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        self.asked += 1
        return self.epoch


class Readers:
    """Readers of a log that the test feeds (`leader.Reader`, `partition_reader.ReadingOwner`)."""

    def __init__(self) -> None:
        self.opened: list[PartitionReader] = []

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        reader = PartitionReader(self, topic, partition, offset, last_epoch)
        self.opened.append(reader)
        return reader

    def settle(self, reader: PartitionReader) -> None:
        """Do nothing: nothing is fetched."""

    def drop(self, reader: PartitionReader) -> None:
        """Do nothing: nothing is fetched."""


class NoEnds:
    """Log ends that nobody asks for (`starts.EndSource`)."""

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        raise AssertionError("nobody asks")

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        raise AssertionError("nobody asks")


class World:
    """A leader with all that is around it."""

    def __init__(self, config: GroupConfig = GroupConfig()) -> None:  # noqa: B008 - immutable
        self.state, self.leadership, self.readers = State(), Leadership(), Readers()
        metrics = GatewayMetrics(Registry(), LineLimiter())
        starts = Starts(NoEnds(), lambda: 0)
        self.config = config
        self.sessions = ShareSessions(10)
        self.leader = Leader(
            self.state, self.leadership, lambda _: self.readers, starts, lambda _: config, 10, metrics, self.sessions
        )

    def lead(self) -> LedPartition:
        led = self.leader.lead(KEY)
        assert isinstance(led, LedPartition)
        return led

    def fetch(self, wait_ms: int = 60_000, records_max: int = 500) -> tuple[Fetch, asyncio.Event]:
        """Begin a fetch; the event tells of its end."""
        done = asyncio.Event()
        turn = self.sessions.fetch(
            (KEY.group_id, WANTED.member_id), 0, "connection", [(KEY.topic_id, KEY.partition)], ()
        )
        assert isinstance(turn, Turn)
        bounds = FetchBounds(records_max, 1 << 20, wait_ms)
        fetch = Fetch(self.leader, turn.session, {}, WANTED, bounds, done.set)
        fetch.begin()
        return fetch, done


def make_batch(first: int, last: int, producer_id: int = -1, data: bytes = b"records", epoch: int = 0) -> Batch:
    attributes = 0 if producer_id < 0 else TRANSACTIONAL
    return Batch(first, last, epoch, attributes, producer_id, 0, last - first + 1, memoryview(data))


# ---- nobody is left waiting --------------------------------------------------------------------------------------------


async def test_a_fetch_goes_on_by_itself_after_records_that_nobody_gets() -> None:
    world = World()
    world.lead()
    aborted = make_batch(0, 599, producer_id=7)
    world.readers.opened[0].put((aborted, make_batch(600, 609)), (AbortedTransaction(7, 0),))
    fetch, done = world.fetch()
    await asyncio.wait_for(done.wait(), 1.0)
    [given] = fetch.take_given().values()
    assert [(each.first_offset, each.last_offset) for each in given.ranges] == [(600, 609)]


async def test_a_fetch_goes_on_by_itself_where_the_log_begins_now() -> None:
    world = World()
    world.lead()
    fetch, done = world.fetch()
    world.readers.opened[0].fail(OffsetOutOfRange(0, 50, 100))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reader = world.readers.opened[1]
    assert reader.position == 50
    reader.put((make_batch(50, 59),), ())
    await asyncio.wait_for(done.wait(), 1.0)
    assert [each.ranges[0].first_offset for each in fetch.take_given().values()] == [50]


async def test_least_bytes_of_a_fetch_hold_no_record_back() -> None:
    world, answers = World(), list[list[Piece]]()
    calls = make_calls(world)
    world.lead()
    world.readers.opened[0].put((make_batch(0, 0),), ())
    calls.fetch(Caller(), make_fetch(0)._replace(min_bytes=1 << 20), answers.append)
    [(_, [partition])] = decode_response(b"".join(answers[0])).topics
    assert [tuple(each) for each in partition.acquired] == [(0, 0, 1)]


# ---- the end of a share partition --------------------------------------------------------------------------------------


async def test_a_share_partition_that_has_ended_ends_no_locks() -> None:
    world = World()
    led = world.lead()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    led.acknowledge("member", [AcknowledgedRange(0, 4, bytes([ACCEPT]))], lambda _: None)
    world.leadership.epoch = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
    world.leader.look_at_leadership(0)
    world.state.answer()
    assert led.next_deadline_ms is None
    led.tick(world.leader.now_ms() + 1e9)
    assert len(world.state.writes) == 1, "another leader may have given the records to others"


async def test_a_change_of_one_log_partition_looks_at_its_share_partitions_alone() -> None:
    world = World()
    led = [world.leader.lead(KEY._replace(partition=each)) for each in range(5)]
    world.leadership.epoch, world.leadership.asked = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere"), 0
    world.leader.look_at_leadership(3)
    assert world.leadership.asked == 1
    assert [each.ended is not None for each in led if isinstance(each, LedPartition)] == [False] * 3 + [True, False]
    world.leader.look_at_leadership(7)
    for each in (0, 1, 2, 4):
        world.leader.look_at_leadership(each)
    assert (len(world.leader), world.leader._by_log_partition) == (0, {})


async def test_a_load_waits_for_the_writes_before_it() -> None:
    world = World()
    led, outcomes = world.lead(), list[Acknowledged]()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    led.acknowledge("member", [AcknowledgedRange(0, 4, bytes([ACCEPT]))], outcomes.append)
    led.acknowledge("member", [AcknowledgedRange(5, 9, bytes([ACCEPT]))], outcomes.append)
    # The epoch is the same afterwards, so no fence keeps the second Write out of the log.
    led.end(Ended(ErrorCode.KAFKA_STORAGE_ERROR, "the records cannot be read"))
    assert isinstance(world.leader.lead(KEY), Ended)
    world.state.answer()
    assert isinstance(world.leader.lead(KEY), Ended)
    world.state.answer()
    assert [each.error_code for each in outcomes] == [0, 0]
    assert isinstance(world.leader.lead(KEY), LedPartition)
    assert world.state.loads == 2


async def test_a_reader_that_fell_behind_the_log_is_no_alarm() -> None:
    world = World()
    led = world.lead()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    # Its reader is still at 4 when the log begins at 8; 10 is next.
    world.readers.opened[0].fail(OffsetOutOfRange(4, 8, 100))
    assert led.give(WANTED, 10, 1 << 20) is None
    assert led.ended is None
    assert world.readers.opened[-1].position == 10


async def test_deleted_state_is_read_again() -> None:
    world = World()
    led, outcomes = world.lead(), list[Acknowledged]()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    led.acknowledge("member", [AcknowledgedRange(0, 9, bytes([ACCEPT]))], outcomes.append)
    # Nothing fences a state that is not there: a Write to it is one that is not allowed.
    world.state.answer(ErrorCode.INVALID_REQUEST)
    assert [acknowledge_code(each.error_code) for each in outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.lead() is not led
    assert world.state.loads == 2


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
async def test_refused_write_of_a_former_leader_ends_it_at_once(code: ErrorCode) -> None:
    """Another leader has read the state: what is acquired after that may be given twice."""
    world = World()
    led, outcomes = world.lead(), list[Acknowledged]()
    world.readers.opened[0].put((make_batch(0, 9), make_batch(10, 19)), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    led.acknowledge("member", [AcknowledgedRange(0, 4, bytes([ACCEPT]))], outcomes.append)
    world.state.answer(code)
    assert [acknowledge_code(each.error_code) for each in outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert led.ended is not None
    assert led.ended.error_code == code
    assert led.give(WANTED, 10, 1 << 20) is None
    assert (world.leader.find(KEY), len(world.leader)) == (None, 0)


async def test_refused_write_of_a_former_leader_has_fetches_read_the_state() -> None:
    world = World()
    led = world.lead()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    led.release("member")
    fetch, done = world.fetch()
    # Nobody may have what was released before the log has said who leads.
    world.state.answer(ErrorCode.FENCED_LEADER_EPOCH)
    assert led.ended is not None
    for _ in range(3):
        await asyncio.sleep(0)
    assert (world.state.loads, done.is_set(), fetch.take_given()) == (2, False, {})
    fetch.finish()


async def test_records_that_cannot_be_read_end_it() -> None:
    world = World()
    led = world.lead()
    world.readers.opened[0].fail(RecordsUnreadable("no"))
    assert led.give(WANTED, 10, 1 << 20) is None
    assert led.ended == Ended(ErrorCode.KAFKA_STORAGE_ERROR, "no")


# ---- sessions ----------------------------------------------------------------------------------------------------------


class Topics:
    """All topics, for all clients (`consumers.Topics`)."""

    def refuse_read(self, caller: object, topic_id: bytes, partition: int) -> Ended | None:
        return None

    def rights(self, caller: Client) -> str:
        return caller.principal

    def leader(self, topic_id: bytes, partition: int) -> LeaderPlace:
        return LeaderPlace(1, 3, None)


class Caller:
    """A client (`consumers.Caller`)."""

    principal, client_address, client_id = "User:ANONYMOUS", "127.0.0.1", "client"

    def __init__(self, connection: str = "connection") -> None:
        self.connection = connection
        self.answer_now: Callable[[], None] | None = None

    def wait(self, answer_now: Callable[[], None]) -> bool:
        self.answer_now = answer_now
        return True


def make_fetch(epoch: int, member: str = "member", wait_ms: int = 60_000) -> ShareFetchRequest:
    topics = [(TOPIC, [NamedPartition(0)])] if epoch == 0 else []
    return ShareFetchRequest("group", member, epoch, topics, [], wait_ms, 1, 1 << 20, 500, 500)


def make_calls(world: World, sessions_max: int = 10) -> ConsumerCalls:
    world.sessions._sessions_max = sessions_max
    return ConsumerCalls(world.leader, world.sessions, Topics(), lambda _: world.config)


async def test_a_session_that_an_acknowledgement_ends_fetches_no_more() -> None:
    world, answers = World(), list[object]()
    calls = make_calls(world)
    calls.fetch(Caller(), make_fetch(0), answers.append)
    assert calls.waiting_count == 1
    calls.acknowledge(Caller(), 1, ShareAcknowledgeRequest("group", "member", -1, []), answers.append)
    assert (calls.waiting_count, len(answers)) == (0, 2)


class FetchOfTwoParts:
    """A fetch that was given 10 records, in answer to a request whose acknowledgement is on its way to the log."""

    def __init__(self) -> None:
        self.world, self.answers = World(), list[list[Piece]]()
        self.calls = make_calls(self.world)
        self.led = self.world.lead()
        reader = self.world.readers.opened[0]
        reader.put((make_batch(0, 9),), ())
        self.calls.fetch(Caller(), make_fetch(0), self.answers.append)
        reader.put((make_batch(10, 19),), ())
        accepted = NamedPartition(0, (AcknowledgedRange(0, 9, bytes([ACCEPT])),))
        request = make_fetch(1)._replace(topics=[(TOPIC, [accepted])])
        self.calls.fetch(Caller(), request, self.answers.append)
        assert len(self.answers) == 1, "the acknowledgement is not in the log yet"

    def answer(self) -> FetchedPartition:
        """Have the acknowledgement in the log; returns what the answer says of the partition."""
        self.world.state.answer()
        [_, answer] = self.answers
        [(_, [partition])] = decode_response(b"".join(answer)).topics
        return partition


async def test_records_are_in_an_answer_that_waited_for_acknowledgements() -> None:
    partition = FetchOfTwoParts().answer()
    assert [tuple(each) for each in partition.acquired] == [(10, 19, 1)]
    assert (partition.records, partition.acknowledge_error_code) != ((), 0)


async def test_records_of_a_member_that_left_meanwhile_are_not_in_an_answer() -> None:
    waiting = FetchOfTwoParts()
    leave = ShareAcknowledgeRequest("group", "member", -1, [])
    waiting.calls.acknowledge(Caller(), 1, leave, list[object]().append)
    partition = waiting.answer()
    assert (partition.acquired, partition.records, partition.acknowledge_error_code) == ([], (), 0)


async def test_records_of_an_ended_share_partition_are_not_in_an_answer() -> None:
    waiting = FetchOfTwoParts()
    waiting.led.end(Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads"))
    partition = waiting.answer()
    assert (partition.acquired, partition.records, partition.acknowledge_error_code) == ([], (), 0)


async def test_a_session_too_many_is_refused_when_the_client_has_waited() -> None:
    world, answers = World(), list[list[Piece]]()
    calls = make_calls(world, sessions_max=0)
    calls.fetch(Caller(), make_fetch(0, wait_ms=20), answers.append)
    assert not answers, "the client would ask again at once"
    await wait_until(lambda: len(answers) == 1)
    caller = Caller()
    calls.fetch(caller, make_fetch(0), answers.append)
    assert caller.answer_now is not None
    caller.answer_now()
    assert len(answers) == 2, "the node stops"


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("ack_code", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
async def test_records_of_a_dead_member_come_again_though_no_write_succeeds(code: int, ack_code: int) -> None:
    """Its last acknowledgement fails while it is gone, or the release does: both would lock records until the lock's time."""
    world, answers = World(), list[list[Piece]]()
    calls = make_calls(world)
    world.lead()
    world.readers.opened[0].put((make_batch(0, 9),), ())
    calls.fetch(Caller(), make_fetch(0), answers.append)
    accepted = NamedPartition(0, (AcknowledgedRange(0, 4, bytes([ACCEPT])),))
    calls.fetch(Caller(), make_fetch(1)._replace(topics=[(TOPIC, [accepted])]), answers.append)
    calls.fetch(Caller("other"), make_fetch(0, "other"), answers.append)
    calls.connection_closed("connection")
    world.state.answer(ack_code)
    world.state.answer(code)
    for _ in range(3):
        await asyncio.sleep(0)
    world.readers.opened[-1].put((make_batch(0, 9),), ())
    for _ in range(3):
        await asyncio.sleep(0)
    [(_, [partition])] = decode_response(b"".join(answers[-1])).topics
    assert [tuple(each) for each in partition.acquired] == [(0 if ack_code else 5, 9, 2)]


class Data(bytearray):
    """Bytes whose end can be seen."""


async def test_an_answer_that_was_taken_keeps_no_records() -> None:
    world, answers = World(), list[list[Piece]]()
    calls = make_calls(world)
    world.lead()
    data = Data(b"records")
    seen = weakref.ref(data)
    batch = make_batch(0, 9)._replace(data=memoryview(data))
    world.readers.opened[0].put((batch,), ())
    del data, batch
    gc.disable()
    try:
        calls.fetch(Caller(), make_fetch(0), answers.append)
        assert len(answers) == 1
        answers.clear()
        # The records below are forgotten with the next fetch.
        calls.fetch(Caller(), make_fetch(1), answers.append)
        assert seen() is None
    finally:
        gc.enable()


async def test_marker_that_cannot_be_read_ends_it_and_nothing_after_it_is_given() -> None:
    world = World()
    led = world.lead()
    marker = Batch(10, 10, 0, TRANSACTIONAL | 0x20, 7, 0, 1, memoryview(bytes(61)))
    reader = world.readers.opened[0]
    reader.put((make_batch(0, 9, producer_id=7), marker), (AbortedTransaction(7, 0),))
    reader.put((make_batch(11, 19),), ())
    assert led.give(WANTED, 10, 1 << 20) is None
    assert led.ended is not None
    assert led.ended.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_hole_of_the_state_that_has_no_records_costs_no_wait() -> None:
    world = World()
    settled = (StateBatch(10, 39, 2, 1),)
    world.state.read_or_initialize = lambda *call: call[-1](  # type: ignore[method-assign]
        ReadOrInitializeResult(0, None, 1, 0, settled, has_state=True)
    )
    led = world.lead()
    world.readers.opened[0].put((make_batch(10, 19), make_batch(20, 39), make_batch(40, 49)), ())
    fetch, done = world.fetch(records_max=10)
    await asyncio.wait_for(done.wait(), 1.0)
    [given] = fetch.take_given().values()
    assert [(each.first_offset, each.last_offset) for each in given.ranges] == [(40, 49)]
    assert led.ended is None


# ---- a process that was frozen ---------------------------------------------------------------------------------------------


async def test_leader_that_was_frozen_asks_the_log_before_it_gives_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    led, clock_ms = world.lead(), [world.leader.now_ms()]
    world.leader.look_at_clock()
    monkeypatch.setattr(world.leader, "now_ms", lambda: clock_ms[0])
    world.readers.opened[0].put((make_batch(0, 9), make_batch(10, 19)), ())
    assert led.give(WANTED, 10, 1 << 20) is not None
    clock_ms[0] += 10_000
    answers: list[Callable[[ReadOrInitializeResult], None]] = []
    monkeypatch.setattr(world.state, "read_or_initialize", lambda *call: answers.append(call[-1]))
    world.leader.look_at_clock()
    assert world.lead() is led
    assert led.give(WANTED, 10, 1 << 20) is None
    assert len(answers) == 1
    answers.pop()(ReadOrInitializeResult(0, None, 1, 0, (), has_state=True))
    assert led.give(WANTED, 10, 1 << 20) is not None
    clock_ms[0] += 10_000
    world.leader.look_at_clock()
    assert world.lead() is led
    assert led.give(WANTED, 10, 1 << 20) is None
    answers.pop()(ReadOrInitializeResult(ErrorCode.FENCED_LEADER_EPOCH, "another leader has read"))
    assert led.ended is not None
    assert led.ended.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_nothing_is_given_while_the_log_takes_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a consumer would work off all that is at hand for nothing, and each delivery would count."""
    world = World()
    led = world.lead()
    world.readers.opened[0].put((make_batch(0, 9), make_batch(10, 19), make_batch(20, 29)), ())
    codes: list[int] = []
    for first in (0, 10):
        assert led.give(WANTED, 10, 1 << 20) is not None
        led.acknowledge(
            WANTED.member_id,
            [AcknowledgedRange(first, first + 9, bytes([ACCEPT]))],
            lambda told: codes.append(told.error_code),
        )
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answers: list[Callable[[ReadOrInitializeResult], None]] = []
    monkeypatch.setattr(world.state, "read_or_initialize", lambda *call: answers.append(call[-1]))
    world.state.answer(unavailable)
    fetch, done = world.fetch()
    answers.pop()(ReadOrInitializeResult(unavailable, "the log does not answer"))
    assert led.give(WANTED, 10, 1 << 20) is None
    assert not answers, "the log has a pause"
    await wait_until(lambda: answers, "the log is asked again, though nothing else happens")
    assert not done.is_set()
    world.state.answer()
    answers.pop()(ReadOrInitializeResult(0, None, 1, 0, (), has_state=True))
    await asyncio.wait_for(done.wait(), 5)
    assert codes == [unavailable, 0]
    [given] = fetch.take_given().values()
    assert given.ranges[0].first_offset == 20
