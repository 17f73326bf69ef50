"""Share sessions: which partitions each member fetches from this node, request after request.

The epoch counts the requests of a member. A request with another epoch is refused: it is late or a duplicate, or one before it was
lost. Fetches and acknowledgements share the epoch.

A session belongs to the connection that its member used last. When that ends, the session ends, and the member's records are released.
The end of an older connection ends nothing: it may be noticed long after the member has come again.

A fetch asks only those partitions of its session that *may have changed* since they were asked in vain. All events that may give a
share partition records for somebody come to `ShareSessions.changed`, which notes the partition in the sessions that have it.

Source: KIP-932; Apache Kafka 4.3.1 `ShareSessionCache`, `SharePartitionManager.newContext`, `ShareSessionContext`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.kafka.protocol.error_codes import ErrorCode

#: The epochs of a request that begins a session, and of one that ends it.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1

#: Partitions of one session: a node leads no more share partitions, so a request that names more is for other nodes.
PLACES_PER_SESSION_MAX: Final = 20_000
#: Partitions of all sessions, some 200 MB. Assignments give each member one partition, or each partition to one member.
PLACES_MAX: Final = 500_000


#: A topic id and a partition.
Place: TypeAlias = tuple[bytes, int]
#: A group id and a member id.
MemberKey: TypeAlias = tuple[str, str]


class Refusal(NamedTuple):
    """Why a request is not served."""

    error_code: int
    text: str


class Waiter(Protocol):
    """A fetch that waits for records."""

    @property
    def since_s(self) -> float:
        """Return when it began, by any clock that all have."""

    def wake(self) -> None:
        """Ask again soon what may have changed."""


class Stay:
    """The sessions of a member that followed each other, each begun before the one before it had ended."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        #: The records of its member were given back; the owner's.
        self.is_over = False


class Session:
    """The partitions that one member fetches from this node."""

    __slots__ = ("changed", "connection", "epoch", "key", "places", "rights", "stay", "touched", "unanswered", "waiter")

    def __init__(self, key: MemberKey, connection: Hashable) -> None:
        self.key: Final = key
        self.connection = connection
        #: Epoch of the next request.
        self.epoch = 1
        #: Partitions that it fetches, in the order in which they were added.
        self.places: dict[Place, None] = {}
        #: Those that may have something for its member, in the order in which they get their turn. The others were asked in vain, and
        #: nothing has happened to them since.
        self.changed: dict[Place, None] = {}
        #: The fetch that waits; None: none does.
        self.waiter: Waiter | None = None
        #: The rights of its client when a fetch came last.
        self.rights: Hashable = None
        #: All that the member ever had, in the sessions before this one as well: to forget a partition, or to begin again, does not
        #: release what it holds of it.
        self.touched: set[Place] = set()
        #: Those that no answer has named yet, or only with an error.
        self.unanswered: set[Place] = set()
        self.stay = Stay()

    def renew_rights(self, rights: Hashable) -> None:
        """Have all partitions asked again if the client's rights may be others than they were."""
        if rights != self.rights:
            self.rights = rights
            self.changed.update(self.places)

    def choose_answers(
        self, with_records: Iterable[Place], with_errors: Collection[Place], acknowledged: Iterable[Place]
    ) -> list[Place]:
        """Return the partitions that the answer to a fetch names, each once.

        They are those that were added and never named (so all of them in the first answer), those with records, those with an error,
        and those that the request acknowledges, also outside of the session: a client takes a missing one for a failed acknowledgement.
        After an error a partition is named once more, which tells that the error is over.

        Args:
            with_records: records were acquired from them.
            with_errors: the fetch of them failed.
            acknowledged: the request has acknowledgements for them.
        """
        unanswered = self.unanswered
        chosen = dict.fromkeys(place for place in self.places if place in unanswered) if unanswered else {}
        chosen.update(dict.fromkeys(with_records))
        chosen.update(dict.fromkeys(with_errors))
        chosen.update(dict.fromkeys(acknowledged))
        self.unanswered = {place for place in with_errors if place in self.places}
        return list(chosen)


class Turn(NamedTuple):
    """One request of a session."""

    session: Session
    #: An answer names all that the request fetches.
    is_first: bool = False
    #: The session is over; the member's records are released after the answer.
    is_last: bool = False


class ShareSessions:
    """The sessions of a node.

    Args:
        sessions_max: a new one beyond it is refused; none is ended for another.
        places_per_session_max: a request that would give a session more partitions is refused.
        places_max: partitions of all sessions together.
    """

    def __init__(
        self,
        sessions_max: int,
        places_per_session_max: int = PLACES_PER_SESSION_MAX,
        places_max: int = PLACES_MAX,
    ) -> None:
        self._sessions_max = sessions_max
        self._places_per_session_max = places_per_session_max
        self._places_max = places_max
        #: Partitions that all sessions have touched.
        self.place_count = 0
        self._sessions: dict[MemberKey, Session] = {}
        #: Sessions that their members have ended, whose last request is not answered yet.
        self._closing: dict[MemberKey, Session] = {}
        self._by_connection: defaultdict[Hashable, dict[Session, None]] = defaultdict(dict)
        self._by_group: defaultdict[str, dict[Session, None]] = defaultdict(dict)
        #: The sessions that have a partition, by group; tuples, for most have one, and a dict takes four times the memory.
        self._by_place: defaultdict[str, dict[Place, tuple[Session, ...]]] = defaultdict(dict)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def find(self, key: MemberKey) -> Session | None:
        """Return the session of a member."""
        return self._sessions.get(key)

    def has_sessions(self, group_id: str) -> bool:
        """Tell whether a member of the group has a session."""
        return group_id in self._by_group

    def is_fetched(self, group_id: str, place: Place) -> bool:
        """Tell whether a member of the group fetches a partition."""
        return place in self._by_place.get(group_id, ())

    def changed(self, group_id: str, place: Place) -> None:
        """Have the sessions that have a partition ask it again, for it may have records for somebody; wake those that wait.

        The one that has waited longest comes first, so members of one partition share its records.
        """
        waiters = list[Waiter]()
        for session in self._having(group_id, place):
            session.changed[place] = None
            if session.waiter is not None:
                waiters.append(session.waiter)
        if len(waiters) > 1:
            waiters.sort(key=lambda waiter: waiter.since_s)
        for waiter in waiters:
            waiter.wake()

    def is_awaited(self, group_id: str, place: Place) -> bool:
        """Tell whether a fetch of a session that has a partition waits."""
        return any(session.waiter is not None for session in self._having(group_id, place))

    def _having(self, group_id: str, place: Place) -> tuple[Session, ...]:
        of_group = self._by_place.get(group_id)
        return () if of_group is None else of_group.get(place, ())

    def fetch(
        self,
        key: MemberKey,
        epoch: int,
        connection: Hashable,
        added: Iterable[Place],
        forgotten: Collection[Place],
        *,
        has_acknowledgements: bool = False,
    ) -> Turn | Refusal:
        """Take a ShareFetch: begin a session, go on with one, or end it.

        A partition that is named with acknowledgements, and that the session does not have, is fetched from then on, as with Kafka, unless
        the request forgets it. It would be nicer to fetch only what was added, but the bytes do not tell: Java names a partition once, and
        one that it was given again while it held records of it looks like one that it acknowledges after it was taken away. A partition
        left out would starve, because the client never names it again; one too many costs a little balance, because the client
        hands on any records that come.

        Args:
            key: of the member.
            epoch: 0 begins a session, -1 ends it, else that of the session.
            connection: over which the request came.
            added: partitions that it names, with acknowledgements or without; they may repeat.
            forgotten: partitions that leave the session.
            has_acknowledgements: for any partition.
        """
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                return Refusal(
                    ErrorCode.INVALID_REQUEST,
                    "ShareSessionEpoch is 0, and there are AcknowledgementBatches; begin the session first, then acknowledge",
                )
            return self._begin(key, connection, dict.fromkeys(added))
        session = self._find_current(key, epoch)
        if isinstance(session, Refusal):
            return session
        if epoch == FINAL_EPOCH:
            self._begin_end(session)
            return Turn(session, is_last=True)
        new = {place: None for place in added if place not in session.places}
        if new:
            refusal = self._find_too_many(len(session.places) + len(new), session.touched.union(new), session.touched)
            if refusal is not None:
                return refusal
            self._add(session, new)
            touched_count = len(session.touched)
            session.touched.update(new)
            self.place_count += len(session.touched) - touched_count
        self._remove(session, forgotten)
        self._go_on(session, connection)
        return Turn(session)

    def acknowledge(self, key: MemberKey, epoch: int, connection: Hashable) -> Turn | Refusal:
        """Take a ShareAcknowledge: go on with a session, or end it."""
        if epoch == INITIAL_EPOCH:
            return Refusal(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                "a ShareAcknowledge cannot begin a session; send a ShareFetch with epoch 0 before it",
            )
        session = self._find_current(key, epoch)
        if isinstance(session, Refusal):
            return session
        if epoch == FINAL_EPOCH:
            self._begin_end(session)
            return Turn(session, is_last=True)
        self._go_on(session, connection)
        return Turn(session)

    def end(self, key: MemberKey) -> Session | None:
        """End the session of a member, and return it."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._leave(session)
            self._let_go(session, session.places)
            self.place_count -= len(session.touched)
            of_group = self._by_group[key[0]]
            del of_group[session]
            if not of_group:
                del self._by_group[key[0]]
        return session

    def closed(self, session: Session) -> None:
        """Forget a session that its member has ended, whose last request is answered now."""
        if self._closing.get(session.key) is session:
            del self._closing[session.key]

    def close_connection(self, connection: Hashable) -> list[Session]:
        """End the sessions that belong to a connection, and return them."""
        ended = list(self._by_connection.get(connection, ()))
        for session in ended:
            self.end(session.key)
        return ended

    def _begin_end(self, session: Session) -> None:
        self.end(session.key)
        self._closing[session.key] = session

    def _begin(self, key: MemberKey, connection: Hashable, places: dict[Place, None]) -> Turn | Refusal:
        before = self._sessions.get(key)
        if before is None and len(self._sessions) >= self._sessions_max:
            return Refusal(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this node has {self._sessions_max} share sessions, as many as it may; close idle consumers",
            )
        touched_before = frozenset[Place]() if before is None else before.touched
        # The member may begin again while its last acknowledgements are on their way: what it holds is then of its new session.
        kept = before or self._closing.get(key)
        touched = touched_before.union(places) if kept is None else kept.touched.union(places)
        if len(touched) > self._places_per_session_max:
            # Records that the member holds beyond that are released when its locks end.
            touched = frozenset(places)
        refusal = self._find_too_many(len(places), touched, touched_before)
        if refusal is not None:
            return refusal
        self.end(key)
        session = Session(key, connection)
        if kept is not None and not kept.stay.is_over:
            session.stay = kept.stay
        self._add(session, places)
        session.touched = set(touched)
        self.place_count += len(touched)
        self._sessions[key] = session
        self._by_connection[connection][session] = None
        self._by_group[key[0]][session] = None
        return Turn(session, is_first=True)

    def _add(self, session: Session, places: dict[Place, None]) -> None:
        """Let a session have more partitions."""
        session.places.update(places)
        session.changed.update(places)
        session.unanswered.update(places)
        by_place = self._by_place[session.key[0]]
        for place in places:
            by_place[place] = (*by_place.get(place, ()), session)

    def _remove(self, session: Session, places: Iterable[Place]) -> None:
        """Take partitions away from a session."""
        had = {place: None for place in places if place in session.places}
        for place in had:
            del session.places[place]
            session.changed.pop(place, None)
            session.unanswered.discard(place)
        self._let_go(session, had)

    def _let_go(self, session: Session, places: Iterable[Place]) -> None:
        """Tell a session no more of partitions that it has."""
        group_id = session.key[0]
        by_place = self._by_place[group_id]
        for place in places:
            by_place[place] = tuple([each for each in by_place[place] if each is not session])
            if not by_place[place]:
                del by_place[place]
        if not by_place:
            del self._by_place[group_id]

    def _find_too_many(
        self, place_count: int, touched: Collection[Place], touched_before: Collection[Place]
    ) -> Refusal | None:
        """Return why a session may not fetch that many partitions, or touch these in place of those before."""
        limit = self._places_per_session_max
        if place_count > limit:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"the share session would have {place_count} partitions, and {limit} are allowed; subscribe to fewer topics",
            )
        if len(touched) > limit:
            return Refusal(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"the share session had {len(touched)} partitions in turn, and {limit} are allowed; begin a session with epoch 0",
            )
        growth = len(touched) - len(touched_before)
        if growth > 0 and self.place_count + growth > self._places_max:
            return Refusal(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"the share sessions of this node have {self.place_count} partitions, and {self._places_max} are allowed;"
                " close idle consumers",
            )
        return None

    def _find_current(self, key: MemberKey, epoch: int) -> Session | Refusal:
        session = self._sessions.get(key)
        if session is None:
            return Refusal(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {key[1]} has no share session here; begin one with epoch 0"
            )
        if epoch not in (session.epoch, FINAL_EPOCH):
            return Refusal(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session epoch is {epoch}, and {session.epoch} is next; begin a session with epoch 0",
            )
        return session

    def _go_on(self, session: Session, connection: Hashable) -> None:
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        if connection != session.connection:
            self._leave(session)
            session.connection = connection
            self._by_connection[connection][session] = None

    def _leave(self, session: Session) -> None:
        of_connection = self._by_connection.get(session.connection)
        if of_connection is not None:
            of_connection.pop(session, None)
            if not of_connection:
                del self._by_connection[session.connection]
