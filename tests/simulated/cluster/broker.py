"""One broker: what it believes, and what it answers. One that was frozen or cut off believes what was true before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tests.simulated.cluster import wire
from tests.simulated.cluster.replicated import Partition, Past
from tests.simulated.cluster.wire import FetchRequest, Found, Request, Target

if TYPE_CHECKING:
    import asyncio

    from tests.simulated.cluster.brokers import Cluster
    from tests.simulated.cluster.transport import Link


class Known(NamedTuple):
    """What a broker believes of a log partition."""

    partition: Partition
    leader: int
    epoch: int


class Pending:
    """A batch that was appended and is not answered yet."""

    def __init__(self, known: Known, base_offset: int, next_offset: int, settle: Callable[[int, int], None]) -> None:
        self.known = known
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.settle = settle


class Session:
    """A fetch session."""

    def __init__(self) -> None:
        self.epoch = 1
        self.targets: dict[int, Target] = {}
        self.told: dict[int, tuple[int, int]] = {}  #: (high watermark, log start) that the client knows


class Waiting:
    """A fetch that is held until there is something to tell."""

    def __init__(self, complete: Callable[[bool], bool]) -> None:
        self.complete = complete  #: takes whether time is up; returns whether it answered


class Broker:
    """A broker of the cluster."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.is_up = True
        self.is_frozen = False
        self.is_cut_off = False  #: from the other brokers and the controller, not from clients
        self.slowness = 1.0  #: factor of every latency
        self.throttle_ms = 0
        self.refuses = 0  #: error code of the next produce requests
        self.refusals_left = 0
        self.keeps_sessions = True
        self.known: dict[int, Known] = {}
        self.known_brokers: dict[int, tuple[str, int]] = {}
        self.links: dict[Link, None] = {}
        self.pending: list[Pending] = []
        self.waiting: list[Waiting] = []
        self.sessions: dict[int, Session] = {}
        self._sessions_made = 0
        self._inbox: list[Callable[[], None]] = []  #: what happens when it goes on

    # ---- its life ----------------------------------------------------------------------------------------------------

    @property
    def is_well(self) -> bool:
        """Tell whether it works and knows what the controller says."""
        return self.is_up and not self.is_frozen and not self.is_cut_off

    def latency_s(self) -> float:
        """Return how long the next message needs."""
        return self.cluster.latency_s() * self.slowness

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call now, or when it goes on; never if it dies before."""
        if self.is_frozen:
            self._inbox.append(call)
        elif self.is_up:
            call()

    def thaw(self) -> None:
        """Go on, with what it knew."""
        self.is_frozen = False
        inbox, self._inbox = self._inbox, []
        for call in inbox:
            self.when_awake(call)

    def die(self) -> None:
        """Lose everything that is not in the log."""
        self.is_up, self.is_frozen = False, False
        self._inbox.clear()
        self.pending.clear()
        self.waiting.clear()
        self.sessions.clear()
        for link in [*self.links]:
            link.cut()

    def let_in(self, opened: asyncio.Future[None]) -> None:
        """Accept a connection, or refuse it when it is down."""
        if not self.is_up:
            if not opened.done():
                opened.set_exception(ConnectionRefusedError("refused"))
            return
        self.when_awake(lambda: None if opened.done() else opened.set_result(None))

    def learn(self, known: dict[int, Known], brokers: dict[int, tuple[str, int]]) -> None:
        """Learn from the controller who leads what."""
        before, self.known, self.known_brokers = self.known, known, brokers
        for pending in [*self.pending]:
            if known.get(pending.known.partition.index) != pending.known:
                self.pending.remove(pending)
                pending.settle(wire.NOT_LEADER, -1)
        if before != known:
            self.look_again()

    def look_again(self) -> None:
        """Answer what can be answered now."""
        if self.is_frozen or not self.is_up:
            return
        for pending in [*self.pending]:
            if self._is_true(pending.known) and pending.known.partition.high_watermark >= pending.next_offset:
                self.pending.remove(pending)
                pending.settle(wire.NONE, pending.base_offset)
        self.waiting = [waiting for waiting in self.waiting if not waiting.complete(False)]

    def drop_sessions(self) -> None:
        """Evict all fetch sessions."""
        self.sessions.clear()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def receive(self, link: Link, request: Request) -> None:
        """Take a request off the wire."""
        self.when_awake(partial(self._queue, link, request))

    def _queue(self, link: Link, request: Request) -> None:
        link.queue.append(request)
        if not link.is_handling:
            self._handle_next(link)

    def _handle_next(self, link: Link) -> None:
        if not link.queue or not self.is_up:
            return
        request = link.queue.popleft()
        link.is_handling = True

        def respond(body: bytes, arrived: Callable[[], None] | None = None) -> None:
            link.is_handling = False
            link.answer(request, body, arrived)
            # A broker that throttles answers at once and then does not listen for a while.
            timeline = self.cluster.timeline
            timeline.after(self.throttle_ms / 1_000, lambda: self.when_awake(lambda: self._go_on(link)))

        self.cluster.count(f"request {request.api_key}")
        match request.api_key:
            case wire.PRODUCE:
                self._produce(link, request.body, respond)
            case wire.FETCH:
                self._fetch(request.body, respond)
            case wire.LIST_OFFSETS:
                self._list_offsets(link, request.body, respond)
            case wire.DELETE_RECORDS:
                self._delete(request.body, respond)
            case wire.METADATA:
                leaders = {index: (known.leader, known.epoch) for index, known in self.known.items()}
                topic = self.cluster.topic
                topic_id = self.cluster.topic_id_of(self)
                learn = partial(link.process.learn_leaders, topic_id, leaders)
                respond(wire.encode_metadata(topic.name, topic_id, self.known_brokers, leaders), learn)
            case other:
                raise AssertionError(f"API {other}")

    def _go_on(self, link: Link) -> None:
        if not link.is_handling:
            self._handle_next(link)

    # ---- what it knows of a partition ----------------------------------------------------------------------------------

    def _is_true(self, known: Known) -> bool:
        partition = known.partition
        return (partition.leader, partition.epoch) == (self.broker_id, known.epoch)

    def _is_of_a_deleted_topic(self, known: Known) -> bool:
        partition = known.partition
        return self.cluster.topic.partition(partition.index) is not partition

    def view(self, known: Known) -> Past:
        """Return (high watermark, end, log start) of a partition that it leads, as it knows them."""
        partition = known.partition
        if self._is_true(known) or known.epoch not in partition.pasts:
            return Past(partition.high_watermark, partition.end_offset, partition.log_start_offset)
        return partition.pasts[known.epoch]

    def _led(self, index: int, leader_epoch: int) -> tuple[Known | None, int]:
        """Return what it knows of a partition that it leads, or an error code."""
        known = self.known.get(index)
        if known is None:
            return None, wire.UNKNOWN_TOPIC
        if known.leader != self.broker_id:
            return None, wire.NOT_LEADER
        if leader_epoch not in (-1, known.epoch):
            return None, wire.FENCED_EPOCH if leader_epoch < known.epoch else wire.UNKNOWN_EPOCH
        return known, wire.NONE

    # ---- Produce -----------------------------------------------------------------------------------------------------

    def _produce(self, link: Link, body: bytes, respond: Callable[[bytes], None]) -> None:
        timeout_ms, batches = wire.decode_produce(body)
        outcomes: dict[int, tuple[int, int]] = {}
        topic = self.cluster.topic.name

        def settle(index: int, error_code: int, base_offset: int) -> None:
            if index in outcomes:
                return
            outcomes[index] = error_code, base_offset
            if len(outcomes) == len(batches):
                ordered = [(each, *outcomes[each]) for each in batches]
                respond(wire.encode_produced(topic, ordered, self.throttle_ms))

        pendings = []
        for index, data in batches.items():
            known, error_code = self._led(index, -1)
            refused = self._refuse()
            if known is None or refused == wire.FEW_REPLICAS:
                settle(index, error_code or refused, -1)
            elif len(data) > self.cluster.topic.message_bytes_max:
                settle(index, wire.TOO_LARGE, -1)
            elif not self._is_true(known):  # it goes into a log that will be truncated
                self.cluster.count("append to a leader of the past")
                end = self.view(known).end_offset
                pendings.append(Pending(known, end, 1 << 62, partial(settle, index)))
            else:
                base_offset = self.cluster.append(known.partition, data, link.process)
                if refused:
                    settle(index, refused, -1)
                    continue
                next_offset = known.partition.end_offset
                pendings.append(Pending(known, base_offset, next_offset, partial(settle, index)))
        self.pending += pendings

        def time_out() -> None:
            for pending in pendings:
                if pending in self.pending:
                    self.pending.remove(pending)
                    pending.settle(wire.TIMED_OUT, -1)

        if pendings:
            self.cluster.timeline.after(timeout_ms / 1_000, lambda: self.when_awake(time_out))
            self.look_again()

    def _refuse(self) -> int:
        if not self.refusals_left:
            return wire.NONE
        self.refusals_left -= 1
        self.cluster.disturb()
        return self.refuses

    # ---- Fetch -------------------------------------------------------------------------------------------------------

    def _fetch(self, body: bytes, respond: Callable[[bytes], None]) -> None:
        request = wire.decode_fetch(body)
        topic = self.cluster.topic.name
        session, session_id = Session(), 0
        if request.session_epoch > 0:
            held = self.sessions.get(request.session_id)
            if held is None or held.epoch != request.session_epoch:
                error_code = wire.SESSION_UNKNOWN if held is None else wire.SESSION_EPOCH_WRONG
                self.cluster.count("fetch session lost")
                respond(wire.encode_fetched(topic, 0, {}, self.throttle_ms, error_code))
                return
            session, session_id = held, request.session_id
            session.epoch += 1
        else:
            self.sessions.pop(request.session_id, None)
            if request.session_epoch == 0 and self.keeps_sessions:
                self._sessions_made += 1
                session_id = self.broker_id * 1_000_000 + self._sessions_made
                self.sessions[session_id] = session
        for index in request.forgotten:
            session.targets.pop(index, None)
            session.told.pop(index, None)
        for index, target in request.targets.items():
            session.targets.pop(index, None)
            session.targets[index] = target

        def complete(is_time_up: bool) -> bool:
            found = self._find(request, session)
            has_news = any(each.error_code or each.records or each.diverging for each in found.values())
            if not has_news and not is_time_up:
                return False
            if request.session_epoch > 0:
                found = {index: each for index, each in found.items() if self._is_news(session, index, each)}
            for index, each in found.items():
                session.told[index] = each.high_watermark, each.log_start
            respond(wire.encode_fetched(topic, session_id, found, self.throttle_ms))
            return True

        if not complete(request.wait_ms == 0):
            waiting = Waiting(complete)
            self.waiting.append(waiting)

            def time_out() -> None:
                if waiting in self.waiting:
                    self.waiting.remove(waiting)
                    complete(True)

            self.cluster.timeline.after(request.wait_ms / 1_000, lambda: self.when_awake(time_out))

    def _is_news(self, session: Session, index: int, each: Found) -> bool:
        if each.error_code or each.records or each.diverging:
            return True
        return session.told.get(index) != (each.high_watermark, each.log_start)

    def _find(self, request: FetchRequest, session: Session) -> dict[int, Found]:
        found, room = {}, request.bytes_max
        for index, target in session.targets.items():
            each = self._find_one(index, target, room)
            room -= len(each.records)
            found[index] = each
        return found

    def _find_one(self, index: int, target: Target, room: int) -> Found:
        known, error_code = self._led(index, target.leader_epoch)
        if known is None:
            return Found(error_code, -1, -1)
        partition = known.partition
        high_watermark, end, log_start = self.view(known)
        if target.last_epoch >= 0:
            epoch, epoch_end = partition.end_of_epoch(target.last_epoch, end)
            if epoch < target.last_epoch or epoch_end < target.offset:
                self.cluster.count("diverging")
                return Found(0, high_watermark, log_start, diverging=(epoch, epoch_end))
        if not log_start <= target.offset <= end:
            self.cluster.count("offset out of range")
            return Found(wire.OUT_OF_RANGE, -1, -1)
        if room <= 0 or target.offset >= high_watermark:
            return Found(0, high_watermark, log_start)
        records = partition.read(target.offset, high_watermark, min(room, target.bytes_max))
        if records and self.cluster.flips_left:
            self.cluster.flips_left -= 1
            self.cluster.count("batch that arrives damaged")
            records = self.cluster.flip(records)
        return Found(0, high_watermark, log_start, records)

    # ---- DeleteRecords -----------------------------------------------------------------------------------------------

    def _delete(self, body: bytes, respond: Callable[[bytes], None]) -> None:
        index, before_offset = wire.decode_delete(body)
        cluster = self.cluster
        known, error_code = self._led(index, -1)
        is_lost = cluster.deletions_lost > 0
        cluster.deletions_lost -= is_lost
        log_start = None
        if known is not None and self._is_true(known) and not (is_lost and cluster.random.random() < 0.5):
            log_start = cluster.delete_records(index, before_offset)
        if known is not None and (log_start is None or is_lost):
            error_code = wire.TIMED_OUT
        respond(wire.encode_deleted(cluster.topic.name, index, error_code, log_start or -1, self.throttle_ms))

    # ---- ListOffsets -------------------------------------------------------------------------------------------------

    def _list_offsets(self, link: Link, body: bytes, respond: Callable[..., None]) -> None:
        found: dict[int, tuple[int, int, int]] = {}
        pasts: list[tuple[int, int, bool]] = []
        for index, (leader_epoch, which) in wire.decode_list_offsets(body).items():
            known, error_code = self._led(index, leader_epoch)
            if known is None:
                found[index] = error_code, -1, -1
                continue
            is_true = self._is_true(known)
            if which == wire.LATEST and is_true and self.cluster.timeline.now_s < known.partition.may_answer_s:
                found[index] = wire.OFFSET_NOT_AVAILABLE, -1, -1
                continue
            high_watermark, _, log_start = self.view(known)
            is_deleted = self._is_of_a_deleted_topic(known)
            if is_deleted or not is_true:
                self.cluster.count("offset of the past told")
                pasts.append((index, known.epoch, is_deleted))
            found[index] = 0, high_watermark if which == wire.LATEST else log_start, known.epoch
        body = wire.encode_offsets(self.cluster.topic.name, found, self.throttle_ms)
        respond(body, partial(link.process.told_the_past, self.broker_id, pasts) if pasts else None)
