"""Where the logs of users' topics begin and end, queried from their leaders; for people, who compare it with delivery states.

Source: Apache Kafka's message schema ListOffsets v5 (spoken by brokers from 3.1 to 4.x).
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

from kio.schema.list_offsets.v5.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from holdfast.kafka import metadata
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import Address
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import exchange
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import STALE_LEADER, ErrorCode, error_name
from holdfast.kafka.protocol.requests import EARLIEST, LATEST

_CONSUMER: Final = BrokerId(-1)
_READ_UNCOMMITTED: Final = i8(0)

#: How often leaders are queried: after an election the second answer is right, and a partition without a leader delays no other.
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
#: kio takes a millisecond for as many, in which the loop does nothing else.
_PARTITIONS_PER_REQUEST: Final = 500
#: Each query that waits holds a connection to a broker; admins and the metrics of groups send few.
QUERIES_WAITING_MAX: Final = 100
#: Partitions in one query: about a second of a busy broker's time, and 20 requests.
PARTITIONS_PER_QUERY_MAX: Final = 10_000


#: The problem of a partition whose topic was deleted, or never was.
NO_SUCH_ID: Final = "the cluster knows no topic of this id"

#: A topic id and a partition.
Place: TypeAlias = tuple[bytes, int]


class Led(NamedTuple):
    """A partition as its leader is asked about it."""

    leader_epoch: int
    #: The name of its topic.
    topic: str


def led_by(said: metadata.Answer, places: Iterable[Place]) -> dict[Address, dict[Place, Led]]:
    """Return the partitions that have a leader, by its address."""
    found: defaultdict[Address, dict[Place, Led]] = defaultdict(dict)
    for place in places:
        view = said.topics.get(place[0])
        leader = None if view is None else view.leaders.get(place[1])
        if view is not None and leader is not None:
            found[said.brokers[leader.broker_id]][place] = Led(leader.epoch, view.name)
    return found


class TooManyQueries(Exception):
    """A refusal: as many other queries wait as may."""


class Ends(NamedTuple):
    """Where one partition begins and ends."""

    #: Of the oldest record that is there; -1: not known.
    first_offset: int
    #: The high watermark, behind the last record; -1: not known.
    end_offset: int
    #: Why they are not known; empty when they are.
    problem: str = ""


class TopicEnds(NamedTuple):
    """What was found about one topic."""

    #: None: not known.
    name: str | None
    #: Each that was wanted.
    partitions: dict[int, Ends]


class Answer(NamedTuple):
    """An answer about one partition."""

    ends: Ends
    #: Another query may find more.
    is_passing: bool


class Leaders(NamedTuple):
    """The brokers that may be asked about some partitions."""

    by_address: dict[Address, dict[Place, Led]]
    #: About those that have no leader.
    others: dict[Place, Answer]


class TopicEndSource:
    """Queries to brokers over connections that last for one query; one that waits for a silent broker keeps no other waiting."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int, waiting_max: int = QUERIES_WAITING_MAX) -> None:
        """Connect nowhere before the first query.

        Args:
            cluster: finds the leaders, and connects to them.
            timeout_ms: bound of a query in all.
            waiting_max: queries that may wait for brokers at once.
        """
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._waiting_max = waiting_max
        #: Queries in flight.
        self._waiting = 0

    async def look_up(
        self, wanted: Mapping[bytes, Collection[int]], since_ms: int | None = None
    ) -> dict[bytes, TopicEnds]:
        """Return first and end offsets of partitions by topic id; what cannot be found says why.

        Args:
            wanted: partitions by topic id.
            since_ms: in ms since 1970; the first offset is then that of the first record as new as that, and the end where none is.

        Raises:
            TooManyQueries: `waiting_max` others wait.
        """
        if self._waiting >= self._waiting_max:
            raise TooManyQueries
        missing = {(topic_id, partition) for topic_id, partitions in wanted.items() for partition in partitions}
        names: dict[bytes, str] = {}
        found: dict[Place, Ends] = {}
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                for number in range(_TRIES):
                    await asyncio.sleep(number * _PAUSE_S)
                    missing = await self._query(missing, EARLIEST if since_ms is None else since_ms, names, found)
                    if not missing:
                        break
        except TimeoutError:
            silence = Ends(-1, -1, f"no broker answered within {self._timeout_ms} ms")
            found |= dict.fromkeys(missing - found.keys(), silence)
        finally:
            self._waiting -= 1
        return {
            topic_id: TopicEnds(names.get(topic_id), {each: found[topic_id, each] for each in sorted(set(partitions))})
            for topic_id, partitions in wanted.items()
        }

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        """Return who leads partitions; those that have no leader have an answer already."""
        leaders, _ = await self._find_leaders(places)
        return leaders

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        """Return what one broker answers about partitions that it leads.

        Args:
            address: of the broker.
            led: the partitions.
            first: EARLIEST, or a time: the first offset is then that of the first record as new as that.
        """
        answers: dict[Place, Answer] = {}
        places = list(led)
        try:
            with closing(await self._cluster.connect(address)) as connection:
                for start in range(0, len(places), _PARTITIONS_PER_REQUEST):
                    part = {place: led[place] for place in places[start : start + _PARTITIONS_PER_REQUEST]}
                    answers |= await _query_part(connection, part, first, self._cluster.who())
        except ConnectionFailed as failure:
            silence = Answer(Ends(-1, -1, f"its leader cannot be reached: {failure}"), is_passing=True)
            answers |= dict.fromkeys(led.keys() - answers.keys(), silence)
        return answers

    async def _query(
        self, places: set[Place], first: int, names: dict[bytes, str], found: dict[Place, Ends]
    ) -> set[Place]:
        """Query `places` once, fill `found`, and return those about which another query may find more."""
        (by_address, others), known_names = await self._find_leaders(places)
        names |= known_names
        queries = (self.query_leader(address, led, first) for address, led in by_address.items())
        again = set[Place]()
        found |= {place: answer.ends for place, answer in others.items()}
        for answers in (others, *await asyncio.gather(*queries)):
            for place, (ends, is_passing) in answers.items():
                found[place] = ends
                if is_passing:
                    again.add(place)
        return again

    async def _find_leaders(self, places: Collection[Place]) -> tuple[Leaders, dict[bytes, str]]:
        """Return who leads partitions, and the names of their topics."""
        try:
            said = await self._cluster.find({topic_id for topic_id, _ in places})
        except ConnectionFailed as failure:
            silence = Answer(Ends(-1, -1, f"Kafka cannot be reached: {failure}"), is_passing=True)
            return Leaders({}, dict.fromkeys(places, silence)), {}
        names = {view.topic_id: view.name for view in said.topics.values() if not view.error_code}
        by_address = led_by(said, sorted(places))
        others: dict[Place, Answer] = {}
        for place in set(places).difference(*by_address.values()):
            topic_id, partition = place
            view, is_passing, problem = said.topics.get(topic_id), False, f"the topic has no partition {partition}"
            if view is None or view.is_missing:
                problem = NO_SUCH_ID
            elif view.error_code:
                remedy = acl_remedy(view.error_code, "Describe", "the topic of this id", self._cluster.who())
                problem = f"Kafka returns nothing about the topic: {error_name(view.error_code)}{remedy}"
            elif partition in view.leader_epochs:
                is_passing, problem = True, "the partition has no leader"
            others[place] = Answer(Ends(-1, -1, problem), is_passing)
        return Leaders(by_address, others), names


async def _query_part(
    connection: BrokerConnection, led: Mapping[Place, Led], first_timestamp: int, who: str
) -> dict[Place, Answer]:
    """Return what a broker answers about some partitions.

    Raises:
        ConnectionFailed: it gives no answer.
    """
    first, end = await asyncio.gather(
        *(exchange(connection, _request(led, which), ListOffsetsResponse) for which in (first_timestamp, LATEST))
    )
    firsts, ends = _offsets(first), _offsets(end)
    answers = {}
    for place, (_, topic) in led.items():
        unanswered = (int(ErrorCode.UNKNOWN_SERVER_ERROR), -1)
        both = [offsets.get((topic, place[1]), unanswered) for offsets in (firsts, ends)]
        error = next((code for code, _ in both if code != ErrorCode.NONE), None)
        if error is None:
            first_offset, end_offset = both[0][1], both[1][1]
            ends_of_it = Ends(end_offset if first_offset < 0 else first_offset, end_offset)
            answers[place] = Answer(ends_of_it, is_passing=False)
        else:
            remedy = acl_remedy(error, "Describe", f"topic {topic}", who)
            problem = f"its leader does not return its offsets: {error_name(error)}{remedy}"
            answers[place] = Answer(Ends(-1, -1, problem), error in STALE_LEADER)
    return answers


def _request(led: Mapping[Place, Led], which: int) -> ListOffsetsRequest:
    topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (_, partition), (leader_epoch, topic) in led.items():
        topics[topic].append(
            ListOffsetsPartition(
                partition_index=i32(partition), current_leader_epoch=i32(leader_epoch), timestamp=i64(which)
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=_READ_UNCOMMITTED,
        topics=tuple(ListOffsetsTopic(name=TopicName(name), partitions=tuple(named)) for name, named in topics.items()),
    )


def _offsets(response: ListOffsetsResponse) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, int(each.partition_index)): (each.error_code.value, int(each.offset))
        for topic in response.topics
        for each in topic.partitions
    }
