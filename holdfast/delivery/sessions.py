"""Share sessions: which partitions each member fetches from this node, request after request.

A session belongs to the connection that its member used last. When that ends, the session ends, and the member's records are released.

Source: KIP-932; Apache Kafka 4.3.1 `ShareSessionCache`, `SharePartitionManager.newContext`, `ShareSessionContext`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: The epochs of a request that begins a session, and of one that ends it.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1

SHARE_SESSION_NOT_FOUND: Final = 122
INVALID_SHARE_SESSION_EPOCH: Final = 123
SHARE_SESSION_LIMIT_REACHED: Final = 133

#: A topic id and a partition.
Place: TypeAlias = tuple[bytes, int]
#: A group id and a member id.
MemberKey: TypeAlias = tuple[str, str]


class Refusal(NamedTuple):
    """Why a request is not served."""

    error_code: int
    text: str


class Session:
    """The partitions that one member fetches from this node."""

    __slots__ = ("connection", "epoch", "key", "places", "touched", "unanswered")

    def __init__(self, key: MemberKey, connection: Hashable) -> None:
        self.key: Final = key
        self.connection = connection
        #: Epoch of the next request.
        self.epoch = 1
        #: Partitions that it fetches, in the order in which they were added.
        self.places: dict[Place, None] = {}
        #: All that it ever had: to forget a partition does not release what the member holds of it.
        self.touched: set[Place] = set()
        #: Those that no answer has named yet.
        self.unanswered: set[Place] = set()


class Turn(NamedTuple):
    """One request of a session."""

    session: Session
    #: Partitions to fetch, in the order in which they get their turn.
    places: Sequence[Place]
    #: An answer names all that the request fetches.
    is_first: bool = False
    #: The session is over; the member's records are released after the answer.
    is_last: bool = False


class ShareSessions:
    """The sessions of a node.

    Args:
        sessions_max: a new one beyond it is refused; none is ended for another.
    """

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[MemberKey, Session] = {}
        self._by_connection: defaultdict[Hashable, set[Session]] = defaultdict(set)
        #: Sessions of each group.
        self._counts: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def find(self, key: MemberKey) -> Session | None:
        """Return the session of a member."""
        return self._sessions.get(key)

    def has_sessions(self, group_id: str) -> bool:
        """Tell whether a member of the group has a session."""
        return self._counts.get(group_id, 0) > 0

    def fetch(
        self,
        key: MemberKey,
        epoch: int,
        connection: Hashable,
        added: Iterable[Place],
        forgotten: Collection[Place],
    ) -> Turn | Refusal:
        """Take a ShareFetch: begin a session, go on with one, or end it."""
        if epoch == INITIAL_EPOCH:
            if key not in self._sessions and len(self._sessions) >= self._sessions_max:
                return Refusal(
                    SHARE_SESSION_LIMIT_REACHED,
                    f"this node has {self._sessions_max} share sessions, as many as it may; close idle consumers",
                )
            self.end(key)
            session = Session(key, connection)
            session.places = dict.fromkeys(added)
            session.unanswered = set(session.places)
            session.touched = set(session.places)
            self._sessions[key] = session
            self._by_connection[connection].add(session)
            self._counts[key[0]] += 1
            return Turn(session, tuple(session.places), is_first=True)
        turn = self._go_on(key, epoch, connection)
        if isinstance(turn, Refusal) or turn.is_last:
            return turn
        session = turn.session
        for place in added:
            if place not in session.places:
                session.places[place] = None
                session.unanswered.add(place)
                session.touched.add(place)
        for place in forgotten:
            session.places.pop(place, None)
            session.unanswered.discard(place)
        return Turn(session, rotate(tuple(session.places), epoch))

    def acknowledge(self, key: MemberKey, epoch: int, connection: Hashable) -> Turn | Refusal:
        """Take a ShareAcknowledge: go on with a session, or end it."""
        if epoch == INITIAL_EPOCH:
            return Refusal(
                INVALID_SHARE_SESSION_EPOCH,
                "a ShareAcknowledge cannot begin a session; send a ShareFetch with epoch 0 before it",
            )
        return self._go_on(key, epoch, connection)

    def end(self, key: MemberKey) -> Session | None:
        """End the session of a member, and return it."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._leave(session)
            self._counts[key[0]] -= 1
            if not self._counts[key[0]]:
                del self._counts[key[0]]
        return session

    def close_connection(self, connection: Hashable) -> list[Session]:
        """End the sessions that belong to a connection, and return them."""
        ended = list(self._by_connection.get(connection, ()))
        for session in ended:
            self.end(session.key)
        return ended

    def _go_on(self, key: MemberKey, epoch: int, connection: Hashable) -> Turn | Refusal:
        session = self._sessions.get(key)
        if session is None:
            return Refusal(
                SHARE_SESSION_NOT_FOUND, f"member {key[1]} has no share session here; begin one with epoch 0"
            )
        if epoch == FINAL_EPOCH:
            self.end(key)
            return Turn(session, (), is_last=True)
        if epoch != session.epoch:
            return Refusal(
                INVALID_SHARE_SESSION_EPOCH,
                f"the share session epoch is {epoch}, and {session.epoch} is next; begin a session with epoch 0",
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        if connection != session.connection:
            self._leave(session)
            session.connection = connection
            self._by_connection[connection].add(session)
        return Turn(session, ())

    def _leave(self, session: Session) -> None:
        of_connection = self._by_connection.get(session.connection)
        if of_connection is not None:
            of_connection.discard(session)
            if not of_connection:
                del self._by_connection[session.connection]


def rotate(places: Sequence[Place], epoch: int) -> Sequence[Place]:
    """Return partitions in the order of a request: each request begins with another one."""
    count = len(places)
    start = epoch % count if count else 0
    return (*places[start:], *places[:start]) if start else places
