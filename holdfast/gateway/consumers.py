"""ShareFetch and ShareAcknowledge: sessions of members, their acknowledgements, and the records that they get.

Source: KIP-932; Apache Kafka's `KafkaApis.handleShareFetchRequest` and `handleShareAcknowledgeRequest` for the order of the rules.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.api import share_acknowledge, share_fetch
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import NodeEndpoint
from holdfast.api.share_errors import OTHER_LEADER
from holdfast.api.share_fetch import FetchedPartition, Piece, ShareFetchRequest, ShareFetchResponse
from holdfast.daemon.access.audit import Client
from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.sessions import Place, Refusal, Session, ShareSessions, Turn
from holdfast.delivery.share_partition.values import AcquireMode
from holdfast.gateway.acknowledging import Acknowledgements, Batches, merge
from holdfast.gateway.fetch import Fetch, FetchBounds
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Acknowledged, Ended, Wanted
from holdfast.gateway.leading.unused import Unused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey

#: A fetch brings so much at most, even if it asks for more.
_FETCH_BYTES_MAX: Final = 50 << 20
#: It waits so long at most: a connection that says nothing for longer is taken for dead by what lies between.
_WAIT_MS_MAX: Final = 60_000

Answer: TypeAlias = Callable[[list[Piece]], None]


class LeaderPlace(NamedTuple):
    """The leader of a topic partition, as an answer names it."""

    node_id: int
    epoch: int
    endpoint: NodeEndpoint | None


class Topics(Protocol):
    """The topics that are offered."""

    def refuse_read(self, caller: Client, topic_id: bytes, partition: int) -> Ended | None:
        """Return why a client gets nothing of a topic partition; None: it may have it."""

    def rights(self, caller: Client) -> Hashable:
        """Return what `refuse_read` rests on besides the topics; while it is equal, so is what a client may have."""

    def leader(self, topic_id: bytes, partition: int) -> LeaderPlace:
        """Return the leader of a topic partition."""


class Caller(Client, Protocol):
    """A request, as far as it tells of its client."""

    @property
    def connection(self) -> Hashable:
        """Return what identifies its connection."""

    def wait(self, answer_now: Callable[[], None]) -> bool:
        """Let the request wait, unless too many do; `answer_now` is called when it may wait no longer."""


class ConsumerCalls:
    """The calls by which consumers get records and say what became of them.

    Args:
        leader: leads share partitions.
        sessions: of the members.
        topics: that are offered.
        config_of: returns the config of a group.
    """

    def __init__(
        self, leader: Leader, sessions: ShareSessions, topics: Topics, config_of: Callable[[str], GroupConfig]
    ) -> None:
        self._leader = leader
        self._sessions = sessions
        self._topics = topics
        self._config_of = config_of
        #: Fetches that wait, by member.
        self._waiting: dict[tuple[str, str], _PendingFetch] = {}
        self._unused = Unused(leader.find, lambda key: sessions.is_fetched(key.group_id, (key.topic_id, key.partition)))
        self._is_stopping = False

    # ---- ShareFetch --------------------------------------------------------------------------------------------------------

    def fetch(self, caller: Caller, request: ShareFetchRequest, respond: Answer) -> None:
        """Answer a ShareFetch whose group the client may READ; `respond` is called once, maybe before this returns."""
        fault = share_fetch.find_malformed_fetch(request)
        if fault is not None:
            respond(share_fetch.encode_response(ShareFetchResponse((), 0, *fault)))
            return
        group_id, member_id = request.group_id or "", request.member_id or ""
        key, named = (group_id, member_id), merge(request.topics)
        forgotten = [(topic_id, each) for topic_id, partitions in request.forgotten for each in partitions]
        turn = self._sessions.fetch(
            key,
            request.session_epoch,
            caller.connection,
            named,
            forgotten,
            has_acknowledgements=any(named.values()),
        )
        if isinstance(turn, Refusal):
            refusal = share_fetch.encode_response(ShareFetchResponse((), 0, turn.error_code, turn.text))
            if turn.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                self._answer_late(caller, request.max_wait_ms, partial(respond, refusal))
            else:
                respond(refusal)
            return
        self._end_before(key)
        session = turn.session
        if left := session.touched.difference(session.places) if turn.is_first else forgotten:
            self._leave(group_id, left)
        session.renew_rights(self._topics.rights(caller))
        pending = _PendingFetch(self, caller, key, turn, named, respond)
        self._waiting[key] = pending
        pending.begin(request)

    def _answer_late(self, caller: Caller, wait_ms: int, answer: Callable[[], None]) -> None:
        """Answer when a client has waited as for records: it asks again at once."""
        timer = asyncio.get_running_loop().call_later(max(0, min(wait_ms, _WAIT_MS_MAX)) / 1_000, answer)

        def answer_now() -> None:
            timer.cancel()
            answer()

        if self._is_stopping or not caller.wait(answer_now):
            answer_now()

    # ---- ShareAcknowledge --------------------------------------------------------------------------------------------------

    def acknowledge(
        self, caller: Caller, version: int, request: ShareAcknowledgeRequest, respond: Callable[[bytes], None]
    ) -> None:
        """Answer a ShareAcknowledge whose group the client may READ; `respond` is called once, maybe before this returns."""

        def refuse(error_code: int, text: str) -> None:
            answer = ShareAcknowledgeResponse((), 0, error_code, text)
            respond(share_acknowledge.encode_response(version, answer))

        group_id, member_id = request.group_id or "", request.member_id or ""
        fault = share_acknowledge.find_malformed_acknowledge(request)
        if fault is not None:
            refuse(*fault)
            return
        key, named = (group_id, member_id), merge(request.topics)
        turn = self._sessions.acknowledge(key, request.session_epoch, caller.connection)
        if isinstance(turn, Refusal):
            refuse(turn.error_code, turn.text)
            return
        if turn.is_last:
            self._end_before(key)

        def finish() -> None:
            answered: defaultdict[bytes, list[SettledPartition]] = defaultdict(list)
            endpoints: dict[int, NodeEndpoint] = {}
            for (topic_id, partition), batches in named.items():
                outcome = acknowledgements.outcomes.get((topic_id, partition)) or _nothing_said(batches)
                leader_id, epoch = self.name_leader(outcome.error_code, topic_id, partition, endpoints)
                answered[topic_id].append(
                    SettledPartition(partition, outcome.error_code, outcome.text or None, leader_id, epoch)
                )
            lock_ms = self.lock_ms(group_id)
            answer = ShareAcknowledgeResponse(list(answered.items()), lock_ms, endpoints=list(endpoints.values()))
            if turn.is_last:
                self.end_session(turn.session)
            respond(share_acknowledge.encode_response(version, answer))

        acknowledgements = Acknowledgements(finish)
        self.begin_acknowledgements(caller, acknowledgements, key, named, is_renew=request.is_renew)

    # ---- what both use -----------------------------------------------------------------------------------------------------

    def begin_acknowledgements(
        self,
        caller: Caller,
        acknowledgements: Acknowledgements,
        key: tuple[str, str],
        named: Mapping[Place, Batches],
        *,
        is_renew: bool,
    ) -> None:
        """Hand acknowledgements to the share partitions that the client may read."""
        allowed = dict[Place, Batches]()
        for place, batches in named.items():
            refusal = self._topics.refuse_read(caller, *place) if batches else None
            if refusal is None:
                allowed[place] = batches
            else:
                acknowledgements.outcomes[place] = Acknowledged(refusal.error_code, refusal.text)
        acknowledgements.begin(self._leader, *key, allowed, is_renew=is_renew)

    def name_leader(
        self, error_code: int, topic_id: bytes, partition: int, endpoints: dict[int, NodeEndpoint]
    ) -> tuple[int, int]:
        """Return leader and epoch for an answer, -1 where there is nothing to say."""
        if error_code not in OTHER_LEADER:
            return -1, -1
        node_id, epoch, endpoint = self._topics.leader(topic_id, partition)
        if endpoint is not None:
            endpoints[node_id] = endpoint
        return node_id, epoch

    def end_session(self, session: Session) -> None:
        """Release what the member of a session that is over holds, unless the member has begun another one since."""
        group_id, member_id = session.key
        self._sessions.closed(session)
        if self._sessions.find(session.key) is not None:
            return
        session.stay.is_over = True
        # In an order of their own, so that the same life takes the same course again.
        for place in sorted(session.touched):
            led = self._leader.find(SharePartitionKey(group_id, *place))
            if led is not None:
                led.release(member_id)
        if not self._sessions.has_sessions(group_id):
            self._leader.unload_group(group_id)
        else:
            self._leave(group_id, session.touched)

    def _leave(self, group_id: str, places: Iterable[Place]) -> None:
        """Unload soon what the group fetches no more, of some partitions that a member has left."""
        self._unused.look_at(SharePartitionKey(group_id, *place) for place in places)

    def connection_closed(self, connection: Hashable) -> None:
        """End the sessions of a connection and the fetches that wait on it, and release what their members hold."""
        for pending in [each for each in self._waiting.values() if each.caller.connection == connection]:
            pending.fetch.finish()
        for session in self._sessions.close_connection(connection):
            self._end_before(session.key)
            self.end_session(session)

    def forget(self, pending: _PendingFetch) -> None:
        """Note that a fetch waits no more."""
        if self._waiting.get(pending.key) is pending:
            del self._waiting[pending.key]

    def answer_waiting(self) -> None:
        """Answer all fetches that wait, and those to come, at once: the node stops."""
        self._is_stopping = True
        self._unused.close()
        for pending in list(self._waiting.values()):
            pending.fetch.finish()

    @property
    def waiting_count(self) -> int:
        """Return the number of fetches that wait."""
        return len(self._waiting)

    def _end_before(self, key: tuple[str, str]) -> None:
        before = self._waiting.pop(key, None)
        if before is not None:
            before.fetch.finish()

    def make_fetch(self, pending: _PendingFetch, request: ShareFetchRequest) -> Fetch:
        """Return the fetch of a request."""
        session = pending.session
        wanted = Wanted(
            pending.key[1],
            AcquireMode(request.acquire_mode),
            max(1, request.batch_size),
        )
        wait_ms = min(request.max_wait_ms, _WAIT_MS_MAX) if session.places and not self._is_stopping else 0
        records_max = request.max_records if pending.fetches else 0
        bounds = FetchBounds(records_max, min(request.max_bytes, _FETCH_BYTES_MAX), wait_ms)
        refused = self._find_refused(pending.caller, session.changed) if pending.fetches else {}
        return Fetch(self._leader, session, refused, wanted, bounds, pending.end_part)

    def _find_refused(self, caller: Caller, places: Iterable[Place]) -> dict[Place, Ended]:
        refuse = self._topics.refuse_read
        return {place: refused for place in places if (refused := refuse(caller, *place)) is not None}

    def lock_ms(self, group_id: str) -> int:
        """Return how long locks of a group last."""
        return self._config_of(group_id).record_lock_duration_ms


def _nothing_said(batches: Batches) -> Acknowledged:
    assert not batches
    return Acknowledged()


class _PendingFetch:
    """A ShareFetch until its acknowledgements and its fetch have both ended."""

    def __init__(
        self,
        calls: ConsumerCalls,
        caller: Caller,
        key: tuple[str, str],
        turn: Turn,
        named: Mapping[Place, Batches],
        respond: Answer,
    ) -> None:
        self.key: Final = key
        self.session: Final = turn.session
        self.fetch: Fetch
        #: It fetches until `begin` says otherwise.
        self.fetches = True
        self._calls = calls
        self.caller = caller
        self._turn = turn
        self._named = named
        self._respond = respond
        self._acknowledgements = Acknowledgements(self.end_part)
        self._parts_left = 2

    def begin(self, request: ShareFetchRequest) -> None:
        """Begin both parts; acknowledgements come first, for they make room for more records."""
        self.fetches = not (self._turn.is_last or request.is_renew)
        self.fetch = self._calls.make_fetch(self, request)
        self._calls.begin_acknowledgements(
            self.caller, self._acknowledgements, self.key, self._named, is_renew=request.is_renew
        )
        self.fetch.begin()
        if not self.fetch.is_done and not self.caller.wait(self.fetch.finish):
            self.fetch.finish()

    def end_part(self) -> None:
        """Answer when the other part has ended, too."""
        self._parts_left -= 1
        if self._parts_left:
            return
        self._calls.forget(self)
        answer = self._make_answer()
        if self._turn.is_last:
            self._calls.end_session(self.session)
        self._respond(share_fetch.encode_response(answer))

    def _make_answer(self) -> ShareFetchResponse:
        session, outcomes, ended = self.session, self._acknowledgements.outcomes, self.fetch.ended
        # This and its fetch refer to each other: records that it kept would be there until the collector comes.
        given = self.fetch.take_given()
        if session.stay.is_over:
            # While its acknowledgements were written, the member left: its records belong to others by now.
            given = {}
        acknowledged = [place for place, batches in self._named.items() if batches]
        # Nothing was fetched at the end of a session, or with renewals: then nothing is told of partitions that the request does not name.
        named = session.choose_answers(given, ended, acknowledged) if self.fetches else list(self._named)
        answered: defaultdict[bytes, list[FetchedPartition]] = defaultdict(list)
        endpoints: dict[int, NodeEndpoint] = {}
        for place in named:
            topic_id, partition = place
            records, end, outcome = given.get(place), ended.get(place), outcomes.get(place)
            error_code, text = (ErrorCode.NONE, "") if end is None else end
            acknowledge_error, acknowledge_text = (ErrorCode.NONE, "") if outcome is None else outcome
            leader_id, epoch = self._calls.name_leader(error_code or acknowledge_error, topic_id, partition, endpoints)
            answered[topic_id].append(
                FetchedPartition(
                    partition,
                    () if records is None else [batch.data for batch in records.batches],
                    () if records is None else records.ranges,
                    error_code,
                    text or None,
                    acknowledge_error,
                    acknowledge_text or None,
                    leader_id,
                    epoch,
                )
            )
        return ShareFetchResponse(
            list(answered.items()), self._calls.lock_ms(self.key[0]), endpoints=list(endpoints.values())
        )
