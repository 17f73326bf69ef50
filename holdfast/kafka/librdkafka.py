"""The clients of librdkafka, made in one place, and a topic as its admin client describes it.

What librdkafka says goes to a function of ours, never to standard error. It gives its lines out only while it is polled, so a client that
is not polled is made for as long as it is used, and no longer; then nothing talks in between either.

Nothing here, and no user of it, makes librdkafka ask a coordinator for a group or for a transaction: `kafka/group_offsets.py` has
the reason, and does that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.kafka.connection_options import LiveProperties, connection_options
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.librdkafka_types import NewTopic, TopicDescription, topic_id_bytes
from holdfast.kafka.oauth.sources import MECHANISM, TokenFile, parse_bearer
from holdfast.kafka.oauth.tokens import TokenKeeper
from holdfast.kafka.protocol.denials import UNNAMED
from holdfast.kafka.security import mechanism_of, parse_security, principal_of

#: Takes a line of librdkafka: its level by Python's numbers, its kind (`FAIL`), the name of the client, and the text.
Say: TypeAlias = Callable[[int, str, str, str], None]

#: Of a producer whose records keep their order. Without idempotence, because an error that ends a producer of that kind, such as a missing
#: ACL, is raised by confluent-kafka in the middle of a delivery report, which breaks that; what is written twice here is harmless.
IN_ORDER: Final[Mapping[str, Any]] = {"acks": "all", "enable.idempotence": False, "max.in.flight": 1}

#: What a consumer with `check.crcs` says of a record batch that is damaged, so that another fetch shows nothing else.
DAMAGE: Final = frozenset(
    (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD)
)


#: An address of a broker that is silent has so long, login included, before the next address of the same name is tried. With librdkafka's
#: own half minute, whoever waits for a client gives up first.
_SETUP_TIMEOUT: Final = {"socket.connection.setup.timeout.ms": "5000"}


def unsaid(level: int, kind: str, client: str, text: str) -> None:
    """Leave a line out, where an exception says all that is needed."""


class Record(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    key: bytes
    #: None: a tombstone.
    value: bytes | None


class NamedAdmin(AdminClient):
    """A client for topics that knows as whom it logs in."""

    principal = UNNAMED


def who(admin: AdminClient) -> str:
    """Return who brokers take a client for, as far as it is known (`security.principal_of`)."""
    return admin.principal if isinstance(admin, NamedAdmin) else UNNAMED


class KafkaClients:
    """The maker of clients of one cluster."""

    def __init__(self, properties: Mapping[str, str] | LiveProperties, say: Say = unsaid) -> None:
        """Connect nowhere yet.

        Args:
            properties: librdkafka's; `bootstrap.servers` at least. A client has those of the time at which it is made.
            say: takes its lines, on the thread that polls.

        Raises:
            PropertyRefused: one about tokens is wrong.
        """
        self._live = properties if isinstance(properties, LiveProperties) else LiveProperties(properties)
        self._properties, self._renewals = _with_tokens(self._live.current), self._live.renewals
        self._lines = _Lines(say)

    @property
    def renewals(self) -> int:
        """How often the properties were renewed: a client that was made before has former ones."""
        return self._live.renewals

    @property
    def bootstrap_servers(self) -> str:
        """The brokers to begin with, as in `bootstrap.servers`."""
        return self._live.current["bootstrap.servers"]

    @property
    def principal(self) -> str:
        """Who brokers take these clients for, as far as it is known."""
        try:
            return principal_of(parse_security(self._live.current))
        except PropertyRefused:  # librdkafka alone may understand it
            return UNNAMED

    def _now(self) -> dict[str, Any]:
        if self._renewals != self._live.renewals:
            self._properties, self._renewals = _with_tokens(self._live.current), self._live.renewals
        return {**_SETUP_TIMEOUT, **self._properties}

    @contextmanager
    def admin(self) -> Iterator[AdminClient]:
        """Give a client for topics and their settings, for a while; then its lines are handed over, and it is gone.

        Raises:
            KafkaException: a property is wrong.
        """
        client = NamedAdmin(self._now(), logger=self._lines)
        client.principal = self.principal
        try:
            yield client
        finally:
            client.poll(0)

    def consumer(self, name: str, settings: Mapping[str, Any]) -> Consumer:
        """Return a consumer for partitions that the caller assigns; it joins no group and commits nothing.

        Args:
            name: what it puts in the place of a group id, which librdkafka insists on.
            settings: beside the properties.

        Raises:
            KafkaException: a property is wrong.
        """
        ours = {"group.id": name, "enable.auto.commit": False, "enable.auto.offset.store": False}
        return Consumer({**self._now(), **settings, **ours}, logger=self._lines)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """Return a producer.

        Raises:
            KafkaException: a property is wrong.
        """
        return Producer({**self._now(), **settings}, logger=self._lines)


def write_in_order(producer: Producer, records: Iterable[Record], timeout_ms: int) -> KafkaError | None:
    """Write records one after the other; returns why one was not acknowledged in time, those before may be there; None: all are."""
    problems: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            problems.append(error)

    try:
        for topic, partition, key, value in records:
            producer.produce(topic, value, key, partition, on_delivery=delivered)
    except KafkaException as refused:
        problems.append(refused.args[0])
    left = producer.flush(timeout_ms / 1_000)
    if left and not problems:
        problems.append(KafkaError(KafkaError._TIMED_OUT, f"{left} are not acknowledged after {timeout_ms} ms"))
    return problems[0] if problems else None


def _with_tokens(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties as librdkafka takes them, which fetches tokens itself and reads none from files."""
    if properties.get("sasl.mechanism", properties.get("sasl.mechanisms")) != MECHANISM:
        return dict(properties)
    bearer = parse_bearer(properties)
    if not isinstance(bearer.source, TokenFile):
        return dict(properties)
    tokens = TokenKeeper(bearer)

    def read(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = tokens.token(0)
        return token.text, token.expires_s, "", dict(tokens.extensions)

    others = {name: value for name, value in properties.items() if not name.startswith("sasl.oauthbearer.")}
    return {**others, "oauth_cb": read}


class _Lines:
    """What librdkafka takes for a logger of Python's."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def log(self, level: int, form: str, kind: str, client: str, text: str) -> None:
        """Take a line."""
        self._say(level, kind, client, text)


class DescribedTopic(NamedTuple):
    """Id and size of a topic."""

    topic_id: bytes
    partition_count: int
    #: The lowest of all partitions.
    replication_factor: int


def create_topic(admin: AdminClient, topic: NewTopic, timeout_ms: int) -> KafkaError | None:
    """Create a topic; returns why it was not created, None also where it exists already."""
    timeout_s = timeout_ms / 1_000
    future = admin.create_topics([topic], operation_timeout=timeout_s, request_timeout=timeout_s)[topic.topic]
    try:
        future.result()
    except KafkaException as error:
        refusal: KafkaError = error.args[0]
        return None if refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS else refusal
    return None


def find_topic(admin: AdminClient, name: str, timeout_ms: int) -> DescribedTopic | None:
    """Return a topic by its name, None when there is none.

    Raises:
        KafkaException: no broker describes it, which says nothing about it.
    """
    try:
        # The future has no name here: it holds its exception, whose traceback holds this frame, which would hold the future. The
        # client would live on until that circle is collected, and with it what librdkafka says in an outage.
        found: TopicDescription = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_ms / 1_000)[
            name
        ].result()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return DescribedTopic(
        topic_id_bytes(found.topic_id),
        len(found.partitions),
        min((len(partition.replicas) for partition in found.partitions), default=0),
    )


def check_properties(properties: Mapping[str, str]) -> None:
    """Check librdkafka's properties by its own rules and by ours, without a word to any broker.

    Raises:
        PropertyRefused: one is unknown, or a value is wrong.
    """
    connection_options(properties)
    try:
        KafkaClients(_without_tokens(properties)).consumer("holdfast-check", {}).close()
    except KafkaException as refused:
        raise PropertyRefused(f"The Kafka client refuses a `kafka.` property: {refused.args[0].str()}.") from None


def _without_tokens(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Leave out a login by tokens, which we have parsed ourselves: librdkafka would fetch one as soon as a client is made."""
    protocol, _, tls = properties.get("security.protocol", "").upper().rpartition("_")
    if protocol != "SASL" or mechanism_of(properties) != MECHANISM:
        return properties
    others = {name: value for name, value in properties.items() if not name.startswith(("sasl.", "https."))}
    return others | {"security.protocol": tls}
