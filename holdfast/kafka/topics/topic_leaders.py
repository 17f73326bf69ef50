"""Who leads the partitions of users' topics, requested by the ids of the topics.

Source: Apache Kafka's message schema Metadata v12 (spoken by brokers from 3.1 to 4.x).
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeAlias

from kio.schema.metadata.v12.response import MetadataResponse

from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.exchange import exchange_with_any
from holdfast.kafka.metadata import RESERVED_IDS, TOPICS_PER_REQUEST_MAX, make_request, topic_by_id
from holdfast.kafka.protocol.error_codes import ErrorCode, error_name

#: A topic id and a partition.
Place: TypeAlias = tuple[bytes, int]


class Led(NamedTuple):
    """Who leads a partition, at an epoch."""

    address: Address
    leader_epoch: int
    #: Its name.
    topic: str


class FoundLeaders(NamedTuple):
    """What the cluster said of some topics."""

    #: Of each of their partitions; None: it has no leader.
    leaders: dict[Place, Led | None]
    #: Names by topic ids.
    names: dict[bytes, str]
    #: By topic id, why nothing is known of a topic.
    problems: dict[bytes, str]


class TopicLeaders:
    """Queries to any broker, over a connection that lasts for one request."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        timeout_ms: int,
        topics_per_request_max: int = TOPICS_PER_REQUEST_MAX,
        known_brokers: Callable[[], Iterable[Address]] = tuple,
    ) -> None:
        """Describe the cluster; nothing is connected before the first query.

        Args:
            options: how to connect.
            timeout_ms: bound of each answer of a broker.
            topics_per_request_max: more topics go into several requests.
            known_brokers: returns brokers beside the bootstrap ones.
        """
        self._options = options
        self._timeout_ms = timeout_ms
        self._topics_per_request_max = topics_per_request_max
        self._known_brokers = known_brokers

    async def find(self, topic_ids: Collection[bytes]) -> FoundLeaders:
        """Return who leads each partition of some topics.

        Raises:
            ConnectionFailed: no broker answered.
        """
        wanted = sorted(set(topic_ids))
        found = FoundLeaders({}, {}, dict.fromkeys(wanted, "the cluster knows no topic of this id"))
        # Kafka refuses a whole request because of one reserved id.
        unreserved = [topic_id for topic_id in wanted if topic_id not in RESERVED_IDS]
        size = self._topics_per_request_max
        for start in range(0, len(unreserved), size):
            _add(await self._request(unreserved[start : start + size]), found)
        return found

    async def _request(self, topic_ids: list[bytes]) -> MetadataResponse:
        request = make_request(map(topic_by_id, topic_ids))
        addresses = dict.fromkeys((*self._known_brokers(), *self._options.bootstrap))
        return await exchange_with_any(addresses, self._options, self._timeout_ms, request, MetadataResponse)


def _add(response: MetadataResponse, found: FoundLeaders) -> None:
    addresses = {broker.node_id: (broker.host, int(broker.port)) for broker in response.brokers}
    for topic in response.topics:
        topic_id = topic.topic_id.bytes if topic.topic_id else bytes(16)
        if int(topic.error_code) != ErrorCode.NONE or not topic.name:
            if int(topic.error_code) != ErrorCode.UNKNOWN_TOPIC_ID:
                why = error_name(topic.error_code.value)
                found.problems[topic_id] = f"Kafka returns nothing about the topic: {why}"
            continue
        del found.problems[topic_id]
        found.names[topic_id] = topic.name
        for each in topic.partitions:
            address = addresses.get(each.leader_id)
            led = Led(address, int(each.leader_epoch), topic.name) if address else None
            found.leaders[topic_id, int(each.partition_index)] = led
