"""Topic ids, or names, that callers wait for, and whose turn it is; pure, and driven by its owner.

A query to a broker has room for a bounded number of ids. It is filled in turns: an id of each address, of an address an id of
each connection, of a connection an id of each request. So one honest id is in the next query, whatever other clients request.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Generic, TypeVar

from holdfast.kafka.addresses import find_host

K = TypeVar("K")
V = TypeVar("V")
#: A topic: its id, or what else it is looked up by.
Ref = TypeVar("Ref")

#: Called at the end of a look-up, with those of its ids that no broker was queried about.
Then = Callable[[Collection[Ref]], None]
#: One query: by topic id, the look-ups that waited for it before the query was sent.
Query = dict[Ref, list["LookUp[Ref]"]]


class LookUp(Generic[Ref]):
    """The unknown topic ids of one request."""

    __slots__ = ("_turns", "caller", "host", "is_over", "passed_over", "then", "waiting")

    def __init__(self, caller: str, topic_ids: Collection[Ref], count_max: int, then: Then[Ref]) -> None:
        """Wait for the first `count_max` of the ids; the others are passed over, and reported as such at the end."""
        #: Address of the client, `host:port`.
        self.caller = caller
        self.host = find_host(caller)
        #: Not answered yet.
        self.waiting = dict.fromkeys(islice(topic_ids, count_max))
        self.passed_over = tuple(islice(topic_ids, count_max, None))
        self.then = then
        self.is_over = False
        #: The ids in the order of their turns; may hold some that were answered.
        self._turns = deque(self.waiting)

    def turns(self, excluded: Collection[Ref]) -> Iterator[Ref]:
        """Yield the ids that wait and are not among `excluded`, each once; those whose turn it was come last in the next round."""
        turns, waiting = self._turns, self.waiting
        for _ in range(len(turns)):
            topic_id = turns.popleft()
            if topic_id in waiting:
                turns.append(topic_id)
                if topic_id not in excluded:
                    yield topic_id

    def left(self) -> Collection[Ref]:
        """Return the ids that no broker was queried about."""
        return (*self.waiting, *self.passed_over)


class LookUps(Generic[Ref]):
    """All look-ups of a node."""

    def __init__(self, waiting_max: int, per_request_max: int) -> None:
        """Hold at most `waiting_max` ids that wait, and of one request at most `per_request_max`."""
        self._waiting_max = waiting_max
        self._per_request_max = per_request_max
        #: Ids over all look-ups.
        self._waiting_count = 0
        #: By host, then by connection: the look-ups in the order of their turns.
        self._hosts: dict[str, dict[str, dict[LookUp[Ref], None]]] = {}
        #: Ids that wait, by host, then by connection.
        self._counts: dict[str, dict[str, int]] = {}
        self._by_id: dict[Ref, dict[LookUp[Ref], None]] = {}

    def __bool__(self) -> bool:
        return self._waiting_count > 0

    def add(
        self, caller: str, topic_ids: Collection[Ref], then: Then[Ref]
    ) -> tuple[LookUp[Ref] | None, list[LookUp[Ref]]]:
        """Take a look-up, and drop those for which there is no room any more.

        Where too many ids wait, the address that waits for the most of them loses a look-up: the newest of that of its connections
        that waits for the most.

        Returns:
            the look-up, None where it is itself of that connection; and the look-ups that were dropped.
        """
        look_up = LookUp(caller, topic_ids, self._per_request_max, then)
        host, size = look_up.host, len(look_up.waiting)
        dropped: list[LookUp[Ref]] = []
        while self._waiting_count + size > self._waiting_max:
            greediest = self._greediest(host, caller, size)
            if greediest is None:
                return None, dropped
            self.remove(greediest)
            dropped.append(greediest)
        self._hosts.setdefault(host, {}).setdefault(caller, {})[look_up] = None
        counts = self._counts.setdefault(host, {})
        counts[caller] = counts.get(caller, 0) + size
        self._waiting_count += size
        for topic_id in look_up.waiting:
            self._by_id.setdefault(topic_id, {})[look_up] = None
        return look_up, dropped

    def _greediest(self, host: str, caller: str, size: int) -> LookUp[Ref] | None:
        """Return the look-up that makes room for `size` ids of a connection of an address; None: no other is greedier."""
        sums = {each: sum(counts.values()) for each, counts in self._counts.items()}
        greediest = max(sums, key=sums.__getitem__, default=host)
        if sums.get(greediest, 0) <= sums.get(host, 0) + size:
            greediest = host
        counts = self._counts.get(greediest, {})
        connection = max(counts, key=counts.__getitem__, default=caller)
        if greediest == host and counts.get(connection, 0) <= counts.get(caller, 0) + size:
            return None
        return next(reversed(self._hosts[greediest][connection]))

    def remove(self, look_up: LookUp[Ref]) -> None:
        """Forget a look-up, whatever it waits for."""
        look_up.is_over = True
        host, caller = look_up.host, look_up.caller
        connections = self._hosts[host]
        del connections[caller][look_up]
        if not connections[caller]:
            del connections[caller]
            if not connections:
                del self._hosts[host]
        for topic_id in look_up.waiting:
            self._no_longer(topic_id, look_up)

    def next_query(self, count_max: int) -> Query[Ref]:
        """Return the next query, of at most `count_max` ids, and move their look-ups behind the others."""
        query: Query[Ref] = {}
        turns = self._all_turns(query)
        while len(query) < count_max and (topic_id := next(turns, None)) is not None:
            query[topic_id] = list(self._by_id[topic_id])
        return query

    def answered(self, query: Query[Ref]) -> list[LookUp[Ref]]:
        """Take in that all ids of a query were answered; returns the look-ups that wait for nothing more, and forgets them."""
        done = []
        for topic_id, look_ups in query.items():
            for look_up in look_ups:
                if not look_up.is_over:
                    self._no_longer(topic_id, look_up)
                    del look_up.waiting[topic_id]
                    if not look_up.waiting:
                        self.remove(look_up)
                        done.append(look_up)
        return done

    def _no_longer(self, topic_id: Ref, look_up: LookUp[Ref]) -> None:
        look_ups = self._by_id[topic_id]
        del look_ups[look_up]
        if not look_ups:
            del self._by_id[topic_id]
        self._waiting_count -= 1
        host, caller = look_up.host, look_up.caller
        counts = self._counts[host]
        counts[caller] -= 1
        if not counts[caller]:
            del counts[caller]
            if not counts:
                del self._counts[host]

    def _all_turns(self, excluded: Collection[Ref]) -> Iterator[Ref]:
        def of_connection(look_ups: dict[LookUp[Ref], None]) -> Iterator[Ref]:
            return _in_turns(look_ups, lambda look_up: look_up.turns(excluded))

        def of_host(connections: dict[str, dict[LookUp[Ref], None]]) -> Iterator[Ref]:
            return _in_turns(connections, lambda caller: of_connection(connections[caller]))

        return _in_turns(self._hosts, lambda host: of_host(self._hosts[host]))


def _in_turns(branches: dict[K, V], open_branch: Callable[[K], Iterator[Ref]]) -> Iterator[Ref]:
    """Yield of each branch in turn, until none has anything more; a branch that had a turn is moved to the end of `branches`."""
    round_of: deque[tuple[K, Iterator[Ref] | None]] = deque((name, None) for name in branches)
    while round_of:
        name, turns = round_of.popleft()
        if turns is None:
            turns = open_branch(name)
        topic_id = next(turns, None)
        if topic_id is not None:
            round_of.append((name, turns))
            branches[name] = branches.pop(name)
            yield topic_id
