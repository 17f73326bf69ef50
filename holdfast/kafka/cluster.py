"""Brokers, and who leads the partitions of any topics, each of them named by its id or by its name.

A broker that was frozen or cut off names leaders of the past, or does not know that a topic was deleted and made again. So what it says
about a topic is doubted where it names

- a leader epoch below the highest that was seen of the same topic,
- another id than the one that is known, or
- no topic at all.

Other brokers are asked then. A lower leader epoch never counts, however many brokers name it: where a leader was lost, all brokers that
are left may not have heard of the next one yet. Another id, or no topic, counts where every broker that the answers name says the same.
Where a cluster has no ids, a topic that was made again is told from the same one only if all brokers missed it in between.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.metadata.v7.request import MetadataRequest as NamesRequest
from kio.schema.metadata.v7.request import MetadataRequestTopic as NamedTopic
from kio.schema.metadata.v7.response import MetadataResponse as NamesResponse
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName

from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.exchange import exchange_with, first_answer
from holdfast.kafka.leaders import NO_TOPIC, REFRESH_INTERVAL_S, Leader
from holdfast.kafka.metadata import RESERVED_IDS, make_request, topic_by_id, topic_by_name
from holdfast.kafka.protocol.error_codes import ErrorCode

#: More topics go into several requests: kio takes milliseconds for so many, in which the loop does nothing else.
TOPICS_PER_REQUEST: Final = 200

#: A topic by its id of 16 bytes, or by its name.
TopicRef: TypeAlias = bytes | str

_UNKNOWN: Final = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID))


class TopicView(NamedTuple):
    """A topic as brokers know it."""

    name: str
    #: Zeros: the cluster has no ids, or there is no such topic.
    topic_id: bytes
    #: By partition; without those that have no leader.
    leaders: Mapping[int, Leader]
    #: Of all partitions.
    leader_epochs: Mapping[int, int]
    #: Kafka's; 0: the topic is there.
    error_code: int = 0

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such topic."""
        return self.error_code in _UNKNOWN


class _Answer(NamedTuple):
    """What one broker says."""

    brokers: dict[int, Address]
    topics: dict[TopicRef, TopicView]
    #: Those about which it does not count alone.
    doubted: frozenset[TopicRef]


class Cluster:
    """Brokers, and leaders of the partitions of some topics; queries go over connections that last for one request."""

    def __init__(self, options: ConnectionOptions, timeout_ms: int) -> None:
        """Describe the cluster; nothing is connected before the first query.

        Args:
            options: how to connect.
            timeout_ms: bound of each answer of a broker.
        """
        #: By id, as the last answer that names any says.
        self.brokers: Mapping[int, Address] = {}
        #: Of the topics that were looked up and are kept.
        self.topics: dict[TopicRef, TopicView] = {}
        #: The id of each topic that was seen, and the highest leader epochs under this id; a topic that is missing keeps them.
        self._seen: dict[TopicRef, tuple[bytes, Mapping[int, int]]] = {}
        self._options = options
        self._timeout_ms = timeout_ms
        self._answered_s = -inf
        self._requests = 0

    def forget(self, topic: TopicRef) -> None:
        """Drop what is known of a topic."""
        self.topics.pop(topic, None)
        self._seen.pop(topic, None)

    async def refresh(self, topics: Collection[TopicRef]) -> None:
        """Look up topics; a topic about which nothing certain was said stays as it was known.

        Raises:
            ConnectionFailed: no broker answered; the topics looked up before that are kept.
        """
        loop = asyncio.get_running_loop()
        wanted = list(topics)
        for start in range(0, len(wanted), TOPICS_PER_REQUEST):
            await asyncio.sleep(self._answered_s + REFRESH_INTERVAL_S - loop.time() if start == 0 else 0)
            try:
                await self._look_up(wanted[start : start + TOPICS_PER_REQUEST])
            finally:
                self._answered_s = loop.time()

    async def _look_up(self, topics: list[TopicRef]) -> None:
        addresses = deque(dict.fromkeys((*self.brokers.values(), *self._options.bootstrap)))
        addresses.rotate(-self._requests)
        self._requests += 1
        heard: dict[Address, _Answer] = {}
        query = partial(self._query, topics, heard)
        try:
            self._believe(await first_answer(addresses, query), ())
            return
        except ConnectionFailed:
            if not heard:
                raise
        # Brokers that are known under no bootstrap address were not asked yet.
        named = {place for answer in heard.values() for place in answer.brokers.values()}
        if unasked := sorted(named.difference(addresses)):
            with suppress(ConnectionFailed):
                await first_answer(unasked, query)
        for answer in heard.values():
            self._believe(answer, self._contradicted(answer, heard))

    async def _query(self, topics: list[TopicRef], heard: dict[Address, _Answer], address: Address) -> _Answer:
        """Return what a broker says, where nothing of it is doubted.

        Raises:
            ConnectionFailed: there is no answer, or something in it is doubted; then it is kept in `heard`.
        """
        response = await self._request(topics, address)
        brokers = {int(broker.node_id): (str(broker.host), int(broker.port)) for broker in response.brokers}
        found = _views(topics, response, brokers)
        doubted = frozenset(topic for topic, view in found.items() if self._is_doubted(topic, view))
        heard[address] = answer = _Answer(brokers, found, doubted)
        if doubted:
            raise ConnectionFailed(f"{format_address(*address)} says something else than is known")
        return answer

    async def _request(self, topics: list[TopicRef], address: Address) -> Any:  # noqa: ANN401  # of two versions
        # Kafka refuses a whole request because of one reserved id.
        asked = [
            topic_by_id(topic) if isinstance(topic, bytes) else topic_by_name(topic)
            for topic in topics
            if topic not in RESERVED_IDS
        ]
        try:
            return await exchange_with(address, self._options, self._timeout_ms, make_request(asked), MetadataResponse)
        except VersionUnsupported:
            names = [topic for topic in topics if isinstance(topic, str)]
            if len(names) < len(topics):
                raise
            request = NamesRequest(
                topics=tuple(NamedTopic(name=TopicName(name)) for name in names), allow_auto_topic_creation=False
            )
            return await exchange_with(address, self._options, self._timeout_ms, request, NamesResponse)

    def _is_doubted(self, topic: TopicRef, view: TopicView) -> bool:
        if view.is_missing or self._is_outdated(topic, view):
            return True
        known = self.topics.get(topic)
        if view.error_code or known is None or known.is_missing:
            return False
        return view.topic_id != known.topic_id

    def _is_outdated(self, topic: TopicRef, view: TopicView) -> bool:
        """Tell whether a view is one of the past."""
        topic_id, epochs = self._seen.get(topic, (NO_TOPIC, {}))
        return view.topic_id == topic_id and _is_older(view, epochs)

    def _believe(self, answer: _Answer, contradicted: Collection[TopicRef]) -> None:
        """Keep what an answer says, but for some topics."""
        # A broker that stops may name none at its end, not even itself; those known before are asked on.
        self.brokers = answer.brokers or self.brokers
        for topic, view in answer.topics.items():
            known = self.topics.get(topic)
            # Who may not see a topic, or cannot say now, says nothing of its leaders.
            if topic in contradicted or (view.error_code and not view.is_missing and known is not None):
                continue
            # Another answer of this look-up may have named later leaders meanwhile.
            if topic not in answer.doubted and self._is_doubted(topic, view):
                continue
            self.topics[topic] = view
            topic_id, epochs = self._seen.get(topic, (NO_TOPIC, {}))
            if not view.error_code:
                # A broker may know of some partitions only.
                before = epochs if topic_id == view.topic_id else {}
                self._seen[topic] = view.topic_id, {**before, **view.leader_epochs}
            elif view.is_missing and topic_id == NO_TOPIC:
                self._seen.pop(topic, None)

    def _contradicted(self, answer: _Answer, heard: Mapping[Address, _Answer]) -> set[TopicRef]:
        """Return the topics whose doubted word is of the past, or not that of every broker that the answers name."""
        others = [heard.get(place) for place in dict.fromkeys(answer.brokers.values())]
        return {
            topic
            for topic in answer.doubted
            if self._is_outdated(topic, answer.topics[topic])
            or not others
            or any(other is None or not _is_confirmed(topic, answer, other) for other in others)
        }


def _is_confirmed(topic: TopicRef, answer: _Answer, other: _Answer) -> bool:
    """Tell whether another broker says of a topic what a doubted answer says, and nothing later."""
    view, same = answer.topics[topic], other.topics.get(topic)
    return (
        same is not None
        and same.is_missing == view.is_missing
        and same.topic_id == view.topic_id
        and not _is_older(view, same.leader_epochs)
    )


def _is_older(view: TopicView, epochs: Mapping[int, int]) -> bool:
    """Tell whether a view has a leader epoch below the known one of its partition."""
    return any(epoch < epochs.get(partition, epoch) for partition, epoch in view.leader_epochs.items())


def _views(topics: Iterable[TopicRef], response: Any, brokers: Mapping[int, Address]) -> dict[TopicRef, TopicView]:  # noqa: ANN401
    """Return what an answer says about the topics that were requested; a reserved id names none."""
    by_id, by_name = {}, {}
    for topic in response.topics:
        found = getattr(topic, "topic_id", None)
        topic_id = found.bytes if found else NO_TOPIC
        epochs = {int(each.partition_index): int(each.leader_epoch) for each in topic.partitions}
        leaders = {
            int(each.partition_index): Leader(int(each.leader_id), int(each.leader_epoch))
            for each in topic.partitions
            if each.leader_id in brokers
        }
        view = TopicView(str(topic.name or ""), topic_id, leaders, epochs, int(topic.error_code))
        by_id[topic_id] = by_name[view.name] = view
    reserved = TopicView("", NO_TOPIC, {}, {}, int(ErrorCode.UNKNOWN_TOPIC_ID))
    views: dict[TopicRef, TopicView] = {}
    for wanted in topics:
        said = by_id.get(wanted) if isinstance(wanted, bytes) else by_name.get(wanted)
        if wanted in RESERVED_IDS:
            said = reserved
        if said is not None:
            views[wanted] = said
    return views
