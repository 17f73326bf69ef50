"""What a process may put on the wire, and what its log may tell it: rules between the Kafka log, its brokers and its node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.states import State
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.cluster import inside, wire
from tests.simulated.cluster.replicated import read_batch
from tests.simulated.cluster.wire import Request
from tests.simulated.memory_log import Append, MemoryPartition

if TYPE_CHECKING:
    from tests.simulated.cluster.process import Process

#: Requests of one process in one second that brought nothing; more is a loop without a pause.
IDLE_REQUESTS_MAX = {
    wire.DELETE_RECORDS: 60,
    wire.METADATA: 60,
    wire.FETCH: 400,
    wire.LIST_OFFSETS: 400,
    wire.PRODUCE: 400,
}
CONNECTIONS_MAX = 400
#: The least time between two times that one batch is sent.
RETRY_PAUSE_S = 0.03
#: How much longer than `message_timeout_ms` a batch may be sent again.
RETRY_SLACK_S = 3.5
#: For how long what was learned of the leaders counts as new.
METADATA_AGE_S = 0.15


class SentBatch:
    """One batch that a process sent, maybe several times; its time runs from some moment between `appended_s` and `first_s` on."""

    def __init__(self, now_s: float, first_header: bytes | None) -> None:
        self.first_s = self.last_s = self.appended_s = now_s
        self.first_header = first_header
        self.failed_s = -1.0  #: when its last error came
        self.is_settled = False
        self.is_read_back = False

    @property
    def is_known(self) -> bool:
        """Tell whether its owner waits for no answer any more."""
        return self.is_settled or self.is_read_back


class Reading:
    """What was told of one partition to one instance."""

    def __init__(self, log: MemoryPartition, end_offset: int) -> None:
        self.log = log
        self.end_offset = end_offset
        self.next_offset = -1  #: -1: nothing was told
        self.has_caught_up = False


class Watch:
    """Looks at each request of one process, at each answer that it gets, and at all that its log tells."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._instances: dict[Append, int] = {}
        self._appended_s: dict[Append, float] = {}
        self._numbers: dict[int, int] = {}  #: of the newest record that was sent, by log partition
        self._batches: dict[tuple[int, bytes], SentBatch] = {}
        self._newest: dict[int, SentBatch] = {}  #: by log partition
        self._made_before_stop: set[int] = (
            set()
        )  #: log partitions with a batch that was made and waits for a connection
        self._leaders_learned_s = -1.0
        self._second = -1
        self._idle: Counter[int] = Counter()
        self._connections = 0
        self._readings: dict[int, tuple[int, Reading]] = {}
        self._asked: dict[
            int, tuple[int, float, MemoryPartition]
        ] = {}  #: high watermark and time when it was asked for

    @property
    def _now_s(self) -> float:
        return self._process.cluster.timeline.now_s

    def _turn_second(self) -> None:
        if int(self._now_s) != self._second:
            self._second = int(self._now_s)
            self._idle.clear()
            self._connections = 0

    # ---- what goes out -----------------------------------------------------------------------------------------------

    def appended(self, append: Append) -> None:
        """Learn of a record that was handed to the log."""
        self._appended_s[append] = self._now_s
        self._instances[append] = self._process.node.runtime.partitions[append.partition].reading.instance

    def stopping(self, index: int) -> None:
        """Learn that the owner of a log partition is about to be gone; a batch that was made may wait for its connection."""
        newest = self._newest.get(index)
        if inside.has_batch(self._process.log.kafka, index) and (newest is None or newest.is_known):
            self._made_before_stop.add(index)

    def connecting(self, broker_id: int) -> None:
        """Learn that a connection is asked for."""
        self._turn_second()
        self._connections += 1
        if self._connections > CONNECTIONS_MAX:
            violate(
                Invariant.NO_BUSY_LOOP, f"{self._process.client_id} opens {CONNECTIONS_MAX} connections in a second"
            )
        self._see_open("connects")

    def _see_open(self, what: str) -> None:
        if self._process.is_closed:
            violate(Invariant.SILENT_AFTER_CLOSE, f"{self._process.client_id} {what} after its log is closed")

    def sent(self, broker_id: int, request: Request) -> None:
        """Look at a request."""
        self._see_open(f"sends a request {request.api_key}")
        if request.api_key == wire.PRODUCE:
            for index, data in wire.decode_produce(request.body)[1].items():
                self._send_batch(index, data)

    def _send_batch(self, index: int, data: bytes) -> None:
        now_s, name = self._now_s, self._process.client_id
        held = self._batches.get((index, data))
        if held is not None:
            self._process.cluster.count("batch sent again")
            self._check_again(held, f"{name} sends a batch of log partition {index} again")
            held.last_s = now_s
            return
        newest = self._newest.get(index)
        if newest is not None and not newest.is_known:
            violate(Invariant.ONE_BATCH_AT_A_TIME, f"{name} sends the next batch of log partition {index} too early")
        partition = self._process.node.runtime.partitions[index]
        records = read_batch(data)
        batch = self._newest[index] = self._batches[index, data] = SentBatch(now_s, records[0].header)
        was_made_before = index in self._made_before_stop
        self._made_before_stop.discard(index)
        for record in records:
            append = self._process.cluster.origins.find(name, index, record)
            batch.appended_s = min(batch.appended_s, self._appended_s[append])
            if append.number <= self._numbers.get(index, -1):
                violate(Invariant.SENT_IN_ORDER, f"{name} sends {record} of log partition {index} late")
            self._numbers[index] = append.number
            is_serving = partition.state in (State.LOADING, State.ACTIVE)
            is_dropped = self._instances[append] != partition.reading.instance or not is_serving
            if is_dropped and not was_made_before:
                violate(Invariant.DROPPED_IS_UNSENT, f"{name} sends {record} for an owner that dropped it")

    def _check_again(self, held: SentBatch, what: str) -> None:
        if held.is_settled:
            violate(Invariant.SETTLED_IS_SETTLED, f"{what}, and it is settled")
        if self._now_s - held.last_s < RETRY_PAUSE_S:
            violate(Invariant.NO_BUSY_LOOP, f"{what} after {self._now_s - held.last_s:.3f} s")
        limit_s = self._process.log.bounds["message_timeout_ms"] / 1_000 + RETRY_SLACK_S
        if self._now_s - held.first_s > limit_s:
            violate(Invariant.GIVEN_UP_IN_TIME, f"{what} after {self._now_s - held.first_s:.1f} s")
        if self._leaders_learned_s < held.failed_s - METADATA_AGE_S:
            violate(Invariant.RETRIED_WHERE_IT_IS_LED, f"{what} without a question who leads")

    # ---- what comes in -----------------------------------------------------------------------------------------------

    def answered(self, broker_id: int, request: Request, frame: bytes) -> None:
        """Look at an answer just before it is taken."""
        self._turn_second()
        api_key = request.api_key
        if api_key == wire.METADATA:
            self._leaders_learned_s = self._now_s
            self._idle[api_key] += 1
        elif api_key == wire.PRODUCE:
            self._take_produced(request, frame)
        elif len(frame) < 90:  # an error, or nothing
            self._idle[api_key] += 1
        if self._idle[api_key] > IDLE_REQUESTS_MAX[api_key]:
            text = f"{self._process.client_id} sent {self._idle[api_key]} requests {api_key} in a second for nothing"
            violate(Invariant.NO_BUSY_LOOP, text)

    def _take_produced(self, request: Request, frame: bytes) -> None:
        batches = wire.decode_produce(request.body)[1]
        for index, error_code, _ in wire.decode_produced(frame[8:]):
            held = self._batches[index, batches[index]]
            if error_code == 0:
                held.is_settled = True
            else:
                held.failed_s = self._now_s
                self._idle[wire.PRODUCE] += 1

    def given_up(self, index: int) -> None:
        """Learn that the node is told that its newest batch failed."""
        newest = self._newest.get(index)
        if newest is not None and not newest.is_settled:  # else the batch never went out
            newest.is_settled = True
            age_s = self._now_s - newest.appended_s
            if age_s < self._process.log.bounds["message_timeout_ms"] / 1_000 - 0.001:
                violate(Invariant.GIVEN_UP_LATE, f"log partition {index} of {self._process.client_id}: after {age_s} s")
        cluster = self._process.cluster
        quiet_s = self._now_s - cluster.disturbed_s
        bounds = self._process.log.bounds
        # A connection that died without a word shows it only when a request has waited for its whole time.
        limit_s = (bounds["message_timeout_ms"] + bounds["request_timeout_ms"]) / 1_000
        if newest is not None and cluster.is_well and quiet_s > limit_s:
            text = f"log partition {index} of {self._process.client_id} loses a batch, and nothing was wrong for {quiet_s} s"
            violate(Invariant.HEALTHY_APPENDS_LAND, text)

    # ---- what is told ------------------------------------------------------------------------------------------------

    def read_started(self, index: int, instance: int, log: MemoryPartition, end_offset: int) -> None:
        """Learn that reading began."""
        self._readings[index] = instance, Reading(log, end_offset)

    def read_before(self, index: int, ghost: MemoryPartition) -> None:
        """Learn that a log partition lost something: what was asked of it and told of it before is judged no more."""
        if index in self._readings:
            self._readings[index][1].log = ghost
        if index in self._asked:
            self._asked[index] = 0, self._now_s, ghost

    def told(self, index: int, instance: int, offset: int, next_offset: int, records: list[LogRecord] | None) -> None:
        """Look at records that are told, or at a position (then `offset` is `next_offset`)."""
        for record in records or ():
            self._see_read_back(index, record.header)
        held = self._readings.get(index)
        if held is None or held[0] != instance:
            violate(Invariant.TOLD_ONCE, f"log partition {index} is told instance {instance} before its bounds")
        reading = held[1]
        where = f"{self._process.client_id}/{index} is told {offset} to {next_offset}"
        log = reading.log
        topic = self._process.cluster.topic
        if topic.partitions[index] is not log or topic.times_made > 1:
            return  # it lost something, or was recreated under its name
        position = reading.next_offset
        if position >= 0:
            if records is not None and offset < position:
                violate(Invariant.TOLD_ONCE, f"{where} after {position}")
            left_out = [at for at in range(position, min(offset, log.high_watermark)) if at not in log.holes]
            if left_out:
                violate(Invariant.NOTHING_IS_LEFT_OUT, f"{where} without {left_out}")
        if next_offset > log.high_watermark:
            violate(Invariant.TOLD_IS_COMMITTED, f"{where}, and the high watermark is {log.high_watermark}")
        for record in records or ():
            if record.offset < len(log.records) and log.records[record.offset] != record:
                violate(Invariant.TOLD_IS_THE_LOG, f"{where}: {record} in place of {log.records[record.offset]}")
        reading.next_offset = max(position, next_offset)

    def told_own(self, index: int, base_offset: int, count: int, first_header: bytes) -> None:
        """Look at records that are taken for this process's own."""
        self._see_read_back(index, first_header)
        log = self._readings[index][1].log
        topic = self._process.cluster.topic
        if topic.partitions[index] is not log or topic.times_made > 1:
            return  # it was recreated under its name, of which a leader may not know that told the bounds
        found = log.origins[base_offset : base_offset + count]
        if (
            len(found) < count
            or found[0].header != first_header
            or any(each.log is not self._process.log for each in found)
        ):
            text = f"{self._process.client_id}/{index} takes {base_offset} to {base_offset + count} for its own"
            violate(Invariant.TOLD_IS_THE_LOG, text)

    def _see_read_back(self, index: int, header: bytes | None) -> None:
        newest = self._newest.get(index)
        if newest is not None and header == newest.first_header:
            newest.is_read_back = True

    def caught_up(self, index: int, instance: int, next_offset: int) -> None:
        """Look at the end of a load."""
        held = self._readings.get(index)
        assert held is not None
        if held[0] == instance and (held[1].has_caught_up or next_offset < held[1].end_offset):
            violate(Invariant.TOLD_ONCE, f"{self._process.client_id}/{index} caught up at {next_offset}")
        held[1].has_caught_up = True

    def asked_latest(self, partitions: list[int]) -> None:
        """Learn which read indexes are asked for."""
        for index in partitions:
            if index in self._asked:
                violate(
                    Invariant.READ_INDEX_ONCE, f"{self._process.client_id}/{index} is asked for while it is asked for"
                )
            log = self._process.cluster.topic.partitions[index]
            self._asked[index] = log.high_watermark, self._now_s, log

    def told_latest(self, offsets: dict[int, int | None]) -> None:
        """Look at read indexes."""
        for index, offset in offsets.items():
            where = f"{self._process.client_id}/{index}"
            if index not in self._asked:
                violate(Invariant.READ_INDEX_ONCE, f"{where} is told {offset}, which nobody asked for")
            floor, asked_s, log = self._asked.pop(index)
            node, topic = self._process.node, self._process.cluster.topic
            if offset is None or log is not topic.partitions[index] or self._is_of_a_deleted_topic:
                continue
            is_excused = node.past_told_ms.get(index, -1) >= 1_000 + int(asked_s * 1_000)
            if offset < floor and not is_excused:
                violate(Invariant.READ_INDEX, f"{where} is told {offset}, and {floor} was committed before")

    @property
    def _is_of_a_deleted_topic(self) -> bool:
        """Tell whether the process's log had the topic's name before; what it is told of that one is no lie about this one."""
        return self._process.node.runtime.config.log.topic_id != self._process.cluster.topic.identity.topic_id

    def check_backlogs(self) -> None:
        """See that no more is kept than waits for an answer."""
        node = self._process.node
        for index, backlog in inside.backlogs(self._process.log.kafka).items():
            partition = node.runtime.partitions.get(index)
            if partition is None:
                continue
            held = backlog.lingering + backlog.sent
            bound = len(partition.parking.records) if partition.state is State.ACTIVE else 0
            if partition.state is State.LOADING:
                bound = 1
            if held > bound:
                text = f"{self._process.client_id}/{index} is {partition.state.value}: {backlog}, and {bound} may wait"
                violate(Invariant.BACKLOG_IS_BOUNDED, text)
