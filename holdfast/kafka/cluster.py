"""One view of a cluster: its brokers, who leads the partitions of any topics, and connections to them by purpose.

A topic is named by its id or by its name. A broker that was frozen or cut off names leaders of the past, or does not know that a topic was
deleted and made again; such a leader returns an end of its log of the past. So each request goes to another broker first, and what a
broker says about a topic is doubted where it names

- a leader epoch below the highest that was seen of the same topic,
- another id than the one that is wanted or known, or
- no topic at all.

Other brokers are asked then. A lower leader epoch never counts, however many brokers name it: where a leader was lost, all brokers that
are left may not have heard of the next one yet. Another id, or no topic, counts where every broker that the answers name says the same.
In a cluster without ids, a topic that was made again is told from the same one only if all brokers missed it in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from holdfast.kafka.addresses import format_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.exchange import PATIENCE_S, exchange, first_answer
from holdfast.kafka.metadata import NO_TOPIC, TOPICS_PER_REQUEST_MAX, Answer, Leader, TopicRef, TopicView, query

#: Least time between two look-ups.
REFRESH_INTERVAL_S: Final = 0.1


class _Seen(NamedTuple):
    """A topic as it was seen; one that is missing or hidden now keeps it."""

    topic_id: bytes
    #: The highest under this id, by partition.
    leader_epochs: Mapping[int, int]


_UNSEEN: Final = _Seen(NO_TOPIC, {})


class _Word(NamedTuple):
    """An answer, and the topics about which it does not count alone."""

    answer: Answer
    doubted: frozenset[TopicRef]


#: The answers of brokers in one look-up, by their addresses.
_Words: TypeAlias = dict[Address, _Word]


class Cluster:
    """Brokers and topics of one cluster; look-ups go over connections that last for one request."""

    def __init__(
        self,
        options: ConnectionOptions,
        timeout_ms: int,
        *,
        may_lack_ids: bool = True,
        believes_one: bool = False,
    ) -> None:
        """Describe the cluster; nothing is connected before the first query.

        Args:
            options: how to connect.
            timeout_ms: bound of connecting, and of each answer of a broker.
            may_lack_ids: topics that are named by their names may be those of a cluster without ids.
            believes_one: one broker suffices to tell that a topic is missing or, if no id is wanted, that its name has another one.
        """
        self._may_lack_ids = may_lack_ids
        self._believes_one = believes_one
        #: Where the brokers are, by their ids, as the last answer that names any says.
        self.addresses: Mapping[int, Address] = {}
        #: As the last answer names it; empty where it does not.
        self.cluster_id = ""
        #: Of the topics that were looked up and are kept.
        self.topics: dict[TopicRef, TopicView] = {}
        #: Why nothing certain was said about some topics when that was so last.
        self.uncertainty = ""
        #: Returns who brokers take the next connection for.
        self.who = options.who
        self._seen: dict[TopicRef, _Seen] = {}
        self._wanted_ids: dict[TopicRef, bytes] = {}
        self._options = options
        self._timeout_ms = timeout_ms
        #: By the loop's clock: when the last look-up was answered, or failed.
        self._answered_s = -inf
        #: Look-ups so far.
        self._requests = 0
        #: By broker.
        self._confirmed_s: dict[int, float] = {}
        self._connections: dict[tuple[int, str], BrokerConnection] = {}
        self._opening: dict[tuple[int, str], asyncio.Future[BrokerConnection]] = {}
        self._is_closed = False

    # ---- topics ----------------------------------------------------------------------------------------------------

    def want(self, name: str, topic_id: bytes) -> None:
        """Doubt from now on all answers that name another id for the topic of a name; zeros: whichever has the name."""
        self._wanted_ids[name] = topic_id

    def forget(self, topic: TopicRef) -> None:
        """Drop what is known of a topic, and the id that is wanted of it."""
        self.topics.pop(topic, None)
        self._seen.pop(topic, None)
        self._wanted_ids.pop(topic, None)

    async def look_up(self, topics: Collection[TopicRef]) -> set[TopicRef]:
        """Look up topics, and return those about which nothing certain was said: they stay as they were known.

        Raises:
            ConnectionFailed: no broker answered; the topics looked up before that are kept.
        """
        loop = asyncio.get_running_loop()
        uncertain = set[TopicRef]()
        for number, part in enumerate(_parts(topics)):
            # The pause comes before the next query, not after this answer: the first callers of a start wait for no pause.
            await asyncio.sleep(0 if number else self._answered_s + REFRESH_INTERVAL_S - loop.time())
            try:
                uncertain |= await self._look_up_some(part)
            finally:
                self._answered_s = loop.time()
        return uncertain

    async def find(self, topics: Collection[TopicRef]) -> Answer:
        """Return what brokers say of topics, the first that answers each; nothing is doubted, and of topics nothing is kept.

        Raises:
            ConnectionFailed: no broker answered.
        """
        found = Answer("", {}, {})
        for part in _parts(topics):
            addresses = dict.fromkeys((*self.addresses.values(), *self._options.bootstrap))
            answer = await first_answer(addresses, partial(self._query, part))
            self.addresses = answer.brokers or self.addresses
            found = Answer(answer.cluster_id, found.brokers | answer.brokers, found.topics | answer.topics)
        return found

    async def is_known_everywhere(self, topic_id: bytes, partition_count: int) -> bool:
        """Tell whether every broker knows this topic, all of its partitions and a leader for each.

        Raises:
            ConnectionFailed: a broker gave no answer.
        """
        await self.find([topic_id])
        for address in self.addresses.values():
            found = (await self._query([topic_id], address)).topics.get(topic_id)
            if (
                found is None
                or found.error_code
                or not len(found.leaders) == len(found.leader_epochs) == partition_count
            ):
                return False
        return bool(self.addresses)

    async def topic_ids(self, name: str) -> Mapping[Address, bytes | None]:
        """Return the id that each broker has for the topic of a name, None: it knows no such topic. All are queried at once.

        Those that do not answer, or whose ACLs do not let them say, are left out.
        Brokers that the answers name are waited for until their time is over, any other bootstrap address not for long: it may be gone.

        Raises:
            ConnectionFailed: no broker said anything about the name.
        """

        async def query_one(address: Address) -> Answer | None:
            with suppress(ConnectionFailed):
                return await self._query([name], address)
            return None

        queries: dict[Address, asyncio.Task[Answer | None]] = {}
        answers: dict[Address, Answer] = {}
        wanted = {*self.addresses.values(), *self._options.bootstrap}
        try:
            while not all(address in queries and queries[address].done() for address in wanted):
                for address in wanted.difference(queries):
                    queries[address] = asyncio.create_task(query_one(address), name="holdfast-topic-ids")
                done, _ = await asyncio.wait(queries.values(), timeout=PATIENCE_S)
                found = {address: task.result() for address, task in queries.items() if task in done}
                answers = {address: answer for address, answer in found.items() if answer is not None}
                named = {place for answer in answers.values() for place in answer.brokers.values()}
                wanted = named or wanted
        finally:
            for task in queries.values():
                task.cancel()
        ids: dict[Address, bytes | None] = {}
        for address, answer in answers.items():
            view = answer.topics.get(name)
            if view is not None and (view.is_missing or not view.error_code):
                ids[address] = None if view.is_missing else view.topic_id
        if not ids:
            raise ConnectionFailed(f"no broker said which topic {name} is")
        return ids

    def confirmed_s(self, broker_id: int) -> float:
        """Return when the newest look-up began, by the loop's clock, in whose answer another broker than this one named it.

        In a cluster of one there is no other.
        """
        return self._confirmed_s.get(broker_id, -inf)

    # ---- connections -----------------------------------------------------------------------------------------------

    async def connection(self, broker_id: int, purpose: str) -> BrokerConnection:
        """Return an open connection; those of other purposes are others, so that a waiting fetch delays nothing else.

        Raises:
            ConnectionFailed: the broker is unknown or cannot be reached.
        """
        place = (broker_id, purpose)
        connection = self._connections.get(place)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(place)
        if opening is None:
            opening = asyncio.ensure_future(self._open(place))
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        return await asyncio.shield(opening)

    def open_connection(self, broker_id: int, purpose: str) -> BrokerConnection | None:
        """Return a connection that is open already, or None."""
        connection = self._connections.get((broker_id, purpose))
        return connection if connection is not None and connection.is_open else None

    async def connect(self, address: Address) -> BrokerConnection:
        """Return a new connection to a broker, which the caller closes.

        Raises:
            ConnectionFailed: it did not come about.
        """
        return await BrokerConnection.open(address, self._options, self._timeout_ms)

    def close(self) -> None:
        """Close all connections that are kept; requests in flight fail."""
        self._is_closed = True
        for opening in self._opening.values():
            opening.cancel()
        for connection in self._connections.values():
            connection.close()

    async def _open(self, place: tuple[int, str]) -> BrokerConnection:
        address = self.addresses.get(place[0])
        if address is None or self._is_closed:
            raise ConnectionFailed(f"broker {place[0]} is not known")
        connection = self._connections[place] = await self.connect(address)
        return connection

    # ---- look-ups --------------------------------------------------------------------------------------------------

    async def _query(self, topics: Collection[TopicRef], address: Address) -> Answer:
        with closing(await self.connect(address)) as connection:
            return await query(partial(exchange, connection), topics, may_lack_ids=self._may_lack_ids)

    async def _look_up_some(self, topics: list[TopicRef]) -> set[TopicRef]:
        began_s = asyncio.get_running_loop().time()
        addresses = deque(dict.fromkeys((*self.addresses.values(), *self._options.bootstrap)))
        addresses.rotate(-self._requests)
        self._requests += 1
        words: _Words = {}
        ask = partial(self._ask, topics, words)
        try:
            address = await first_answer(addresses, ask)
            self._believe(address, words[address].answer, set(), began_s)
            return set()
        except ConnectionFailed as failure:
            if not words:
                raise
            self.uncertainty = str(failure)
        # Brokers that are known under no bootstrap address were not asked yet.
        named = {place for word in words.values() for place in word.answer.brokers.values()}
        if unasked := sorted(named.difference(addresses)):
            with suppress(ConnectionFailed):
                await first_answer(unasked, ask)
        uncertain = set(topics)
        for address, word in words.items():
            contradicted = self._contradicted(word, words)
            self._believe(address, word.answer, contradicted, began_s)
            uncertain.intersection_update(contradicted)
        return uncertain

    async def _ask(self, topics: list[TopicRef], words: _Words, address: Address) -> Address:
        """Keep the answer of a broker in `words`, and return the address where nothing of it is doubted.

        Raises:
            ConnectionFailed: there is no answer, or something in it is doubted.
        """
        answer = await self._query(topics, address)
        if len(answer.topics) < len(topics):
            raise UnreadableAnswer(f"{format_address(*address)} left out topics that it was asked for")
        doubts = {topic: why for topic, view in answer.topics.items() if (why := self._doubt(topic, view))}
        words[address] = _Word(answer, frozenset(doubts))
        if doubts:
            raise ConnectionFailed(f"{format_address(*address)} {next(iter(doubts.values()))}")
        return address

    # ---- doubt -----------------------------------------------------------------------------------------------------

    def _doubt(self, topic: TopicRef, view: TopicView) -> str:
        """Return why a broker does not count alone, a clause; empty: it does."""
        if view.is_missing:
            return "" if self._believes_one else "knows no such topic"
        if self._is_outdated(topic, view):
            return "has not learned yet who leads now"
        if view.error_code:
            return ""
        wanted_id, seen = self._wanted_ids.get(topic, NO_TOPIC), self._seen.get(topic)
        if wanted_id == NO_TOPIC:
            if self._believes_one or seen is None or self.topics[topic].is_missing:
                return ""
            wanted_id = seen.topic_id
        return "" if view.topic_id == wanted_id else f"means another topic by the name {view.name}"

    def _is_outdated(self, topic: TopicRef, view: TopicView) -> bool:
        """Tell whether a view is one of the past."""
        seen = self._seen.get(topic, _UNSEEN)
        return view.topic_id == seen.topic_id and _is_older(view, seen.leader_epochs)

    def _contradicted(self, word: _Word, words: _Words) -> set[TopicRef]:
        """Return the topics whose doubted word is of the past, or not that of every broker that the answer names."""
        others = [words.get(place) for place in dict.fromkeys(word.answer.brokers.values())]
        return {
            topic
            for topic in word.doubted
            if self._is_outdated(topic, word.answer.topics[topic])
            or not others
            or any(other is None or not _is_confirmed(topic, word.answer, other.answer) for other in others)
        }

    def _believe(self, address: Address, answer: Answer, contradicted: set[TopicRef], began_s: float) -> None:
        """Keep what an answer says, but for some topics."""
        if contradicted and len(contradicted) == len(answer.topics):
            return
        if not any(self._is_outdated(topic, view) for topic, view in answer.topics.items()):
            # A broker that stops may name none at its end, not even itself; those known before are asked on.
            self.addresses = answer.brokers or self.addresses
            self.cluster_id = answer.cluster_id
            is_one, is_known = len(answer.brokers) == 1, address in answer.brokers.values()
            for broker_id, place in answer.brokers.items():
                if is_one or (is_known and place != address):
                    self._confirmed_s[broker_id] = began_s
        for topic, view in answer.topics.items():
            # Another answer of this look-up may have named later leaders meanwhile.
            if topic in contradicted or self._is_outdated(topic, view):
                continue
            known = self.topics.get(topic)
            if view.error_code and not view.is_missing and known is not None:
                # Who may not see a topic, or cannot say now, says nothing of its leaders.
                view = known._replace(error_code=view.error_code)
            self.topics[topic] = view
            seen = self._seen.get(topic, _UNSEEN)
            if not view.error_code:
                # A broker may know of some partitions only.
                before = seen.leader_epochs if seen.topic_id == view.topic_id else {}
                self._seen[topic] = _Seen(view.topic_id, {**before, **view.leader_epochs})
            elif view.is_missing and seen.topic_id == NO_TOPIC:
                self._seen.pop(topic, None)


class Brokers(Cluster):
    """A cluster, of which one topic is looked up, the log's; the leaders of its partitions are at hand.

    Here it is learned that a leader has moved; in `runtime/kafka_log`, `fetcher.py` gives a log partition to the loop of its new
    leader, `sender.py` sends to it what the old one refused, and `list_offsets.py` asks it for the ends that are awaited.
    """

    def __init__(self, options: ConnectionOptions, topic: str, timeout_ms: int, wanted_id: bytes = NO_TOPIC) -> None:
        """Prepare.

        Args:
            options: how to connect.
            topic: its name.
            timeout_ms: bound of each query.
            wanted_id: see `Cluster.want`.
        """
        # A node must start, without a config topic as a rule, while a broker is silent that others still name.
        super().__init__(options, timeout_ms, may_lack_ids=False, believes_one=True)
        self.topic = topic
        self.want(topic, wanted_id)
        #: By partition; empty while the topic is missing or hidden.
        self.leaders: dict[int, Leader] = {}
        #: Some broker has known the topic.
        self.has_topic = False
        #: The broker that answered last does not let this client know whether there is such a topic.
        self.is_hidden = False
        #: It says that there is no such topic.
        self.is_missing = False
        self._refreshing: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener after every look-up."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Look up who leads; callers meanwhile share one request. Failures leave what was known.

        Raises:
            ConnectionFailed: no broker answered, or none that knows what is known already.
        """
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._find_leaders(), name="holdfast-leaders")
        await asyncio.shield(self._refreshing)

    def close(self) -> None:
        """See `Cluster.close`."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        super().close()

    async def _find_leaders(self) -> None:
        if await self.look_up([self.topic]):
            raise ConnectionFailed(self.uncertainty)
        view = self.topics[self.topic]
        self.leaders = {} if view.error_code else view.leaders
        self.is_hidden, self.is_missing = view.is_hidden, view.is_missing
        self.has_topic |= not view.error_code
        for listener in self._listeners:
            listener()


def _parts(topics: Collection[TopicRef]) -> Iterator[list[TopicRef]]:
    """Yield what one request each asks for: ids and names never together, because brokers leave out the names then."""
    for kind in (bytes, str):
        some = [topic for topic in topics if isinstance(topic, kind)]
        yield from (
            some[start : start + TOPICS_PER_REQUEST_MAX] for start in range(0, len(some), TOPICS_PER_REQUEST_MAX)
        )


def _is_confirmed(topic: TopicRef, answer: Answer, other: Answer) -> bool:
    """Tell whether another broker says of a topic what a doubted answer says, and nothing later."""
    view, same = answer.topics[topic], other.topics[topic]
    return (
        same.is_missing == view.is_missing
        and same.topic_id == view.topic_id
        and not _is_older(view, same.leader_epochs)
    )


def _is_older(view: TopicView, epochs: Mapping[int, int]) -> bool:
    """Tell whether a view has a leader epoch below the known one of its partition."""
    return any(epoch < epochs.get(partition, epoch) for partition, epoch in view.leader_epochs.items())
