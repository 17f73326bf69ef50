"""Topics read partition by partition as they are now, by a consumer that joins no group and commits nothing."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_futures
from functools import cached_property
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)

from holdfast.console.outcomes import Exit, Failure, exit_unanswered
from holdfast.console.show.waiting import waiting_for
from holdfast.console.sources.brokers_or_nodes import find_denied_login, has_share_groups, node_instead
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.group_offsets import BlockingGroupOffsets, GroupRefused
from holdfast.kafka.librdkafka import DAMAGE, KafkaClients
from holdfast.kafka.librdkafka_types import topic_id_bytes
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.topic_ids import InvalidTopicId, parse_topic_id

T = TypeVar("T")

#: How long a broker may be silent before reading is given up.
READ_TIMEOUT_S: Final = 30.0

#: Errors of a consumer whose offset the log no longer has; it may not choose another offset by itself.
_CUT: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_POLL_S: Final = 0.1
#: Errors of requests for which librdkafka found no broker, or had no answer, in the time of one try. The last two are those of a query for
#: offsets whose broker went away.
_UNANSWERED: Final = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._DESTROY,
)
#: Errors of a login that a broker refuses; where a request waited for it, the line about the connection says so.
_REFUSED_LOGINS: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_REFUSED_LOGIN: Final = "SASL authentication error"
#: Around the reason stand the thread, the broker's address, a guess at its version, the state of the connection, and how often it was said.
_FAILED_CONNECTION: Final = re.compile(
    r"\[thrd:.*?\]: (?:\S+: )?(.+?)(?:: probably due to .+?)?(?: \(after \d+ms in state \w+.*)?", re.DOTALL
)
#: How long one try may take, at first and at most: another broker may have the answer.
_TRY_FIRST_S: Final = 0.25
_TRY_MAX_S: Final = 5.0
_MESSAGES_PER_POLL: Final = 1_000


class OffsetRange(NamedTuple):
    """The offsets that a partition holds."""

    start: int  #: offset of the first record
    end: int  #: offset after the last record


class LogCut(Failure):
    """The log lost its start while it was read, as pruning has it do."""


class Stopped(Failure):
    """The caller wanted no more, and brokers had not answered yet."""


class KafkaReader:
    """A reader of topics of one cluster; a context manager that closes its connections at its end."""

    def __init__(self, properties: Mapping[str, Any], is_stopped: Event | None = None) -> None:
        """Connect lazily.

        Args:
            properties: librdkafka's; `bootstrap.servers` at least.
            is_stopped: when it is set, reading ends where it is.
        """
        self._is_stopped = is_stopped or Event()
        self._properties = dict(properties)
        self._clients = KafkaClients(properties, self._note)
        #: The last words of librdkafka about a connection that failed.
        self._connection_failure = ""
        self._has_read = False
        #: The last request to the consumer, which may not have ended.
        self._request: Future[Any] | None = None
        wait = {} if "fetch.wait.max.ms" in properties else {"fetch.wait.max.ms": 20}
        self._consumer = self._clients.consumer(
            "holdfast-console",
            {
                **wait,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
                "allow.auto.create.topics": False,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the brokers, unless an interrupt left a request there."""
        # librdkafka may not be closed under it; the process is about to end, which closes them as well.
        if self._request is None or self._request.done():
            self._consumer.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic.

        Raises:
            Failure: no broker answers, a node does, or the topic does not exist.
        """
        found = self._list_topics(topic)[topic]
        if found.error is not None:
            if failure := self._node_instead:
                raise failure
            if remedy := acl_remedy(found.error.code(), "Describe", f"topic {topic}", self._clients.principal):
                raise Failure(f"The topic {topic} cannot be read ({found.error.str()}){remedy}.", Exit.DENIED)
            raise Failure(
                f"The topic {topic} cannot be read ({found.error.str()}); name a topic of this cluster.",
                Exit.NOT_FOUND,
            )
        return sorted(found.partitions)

    def has_topic(self, topic: str) -> bool:
        """Tell whether the cluster has a topic.

        Raises:
            Failure: no broker answers, a node does, or the topic cannot be read.
        """
        try:
            return bool(self.partitions(topic))
        except Failure as refusal:
            if refusal.exit_code != Exit.NOT_FOUND:
                raise
            return False

    def has_share_groups(self) -> bool:
        """Tell whether brokers are new enough for share groups; they are believed to be where that cannot be asked."""
        return self._interruptible(lambda _: has_share_groups(self._properties), 0.0)

    def topic_names(self) -> dict[bytes, str]:
        """Return the names of all topics that Kafka lists, by their ids.

        Raises:
            Failure: no broker answers.
        """
        names = list(self._list_topics())
        try:
            with self._clients.admin() as admin, waiting_for(self._clients.bootstrap_servers):
                named = TopicCollection(names)
                futures = admin.describe_topics(named, request_timeout=READ_TIMEOUT_S) if names else {}
                self._wait(futures.values())
        except KafkaException as error:
            raise self._unreachable(error) from None
        answered = {name: future for name, future in futures.items() if future.exception() is None}
        return {topic_id_bytes(future.result().topic_id): name for name, future in answered.items()}

    def topic_id(self, topic: str) -> bytes:
        """Return the 16 bytes of a topic's id.

        Raises:
            Failure: no broker answers, or the topic does not exist.
        """
        self.partitions(topic)
        try:
            with self._clients.admin() as admin, waiting_for(self._clients.bootstrap_servers):
                named = TopicCollection([topic])
                future = admin.describe_topics(named, request_timeout=READ_TIMEOUT_S)[topic]
                self._wait([future])
                described = future.result()
        except KafkaException as error:
            raise self._unreachable(error) from None
        return topic_id_bytes(described.topic_id)

    def find_topic_id(self, name_or_id: str) -> bytes:
        """Return the 16 bytes of a topic given by its name or its id; a name that could be an id is a name first.

        Raises:
            Failure: no broker answers, or it is neither.
        """
        try:
            return self.topic_id(name_or_id)
        except Failure as refusal:
            if refusal.exit_code != Exit.NOT_FOUND:
                raise
            try:
                return parse_topic_id(name_or_id)
            except InvalidTopicId:
                raise refusal from None

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets that a consumer group has committed, by partition of the topic.

        Raises:
            Failure: no broker answers, Kafka refuses, or a property has no counterpart in connections of our own.
        """
        try:
            offsets = BlockingGroupOffsets(connection_options(self._properties), int(READ_TIMEOUT_S * 1_000))
            return offsets.fetch_offsets(group, topic, self.partitions(topic))
        except PropertyRefused as error:
            raise Failure(str(error), Exit.WRONG_USAGE) from None
        except GroupRefused as refusal:
            raise Failure(str(refusal)) from None
        except ConnectionFailed as failure:
            text = f"Kafka cannot be read ({failure}); see --bootstrap-server."
            raise Failure(text, exit_unanswered(failure)) from None

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the id of the broker that leads each partition of a topic; -1: none does.

        Raises:
            Failure: no broker answers.
        """
        found = self._list_topics(topic)[topic]
        return {index: partition.leader for index, partition in found.partitions.items()}

    def bounds(self, topic: str, partition: int) -> OffsetRange:
        """Return from where to where a partition goes.

        Raises:
            Failure: no broker answers.
        """
        place = TopicPartition(topic, partition)
        return OffsetRange(*self._answer(lambda try_s: self._consumer.get_watermark_offsets(place, timeout=try_s)))

    def read(
        self, topic: str, partition: int, end: int, from_offset: int = OFFSET_BEGINNING
    ) -> Iterator[tuple[int, Message]]:
        """Yield offset and message of what lies below `end`, offsets ascending; what compaction removed is missing.

        Raises:
            LogCut: the brokers do not have it any more.
            Failure: they are silent, or a record batch of theirs is damaged.
        """
        self._has_read = True
        self._consumer.assign([TopicPartition(topic, partition, from_offset)])
        silent_since_s = monotonic()
        missing = end - max(from_offset, 0)
        while not self._is_stopped.is_set():
            # It waits until there are as many, so no more are requested than there can be.
            messages = self._consumer.consume(min(missing, _MESSAGES_PER_POLL), timeout=_POLL_S)
            if messages:
                silent_since_s = monotonic()
            elif monotonic() - silent_since_s > READ_TIMEOUT_S:
                raise Failure(
                    f"No broker gave the rest of {topic} partition {partition} in {READ_TIMEOUT_S:.0f} s; "
                    "see whether it has a leader.",
                    Exit.UNREACHABLE,
                )
            for message in messages:
                problem, offset = message.error(), message.offset()
                if problem is None:
                    assert offset is not None, "a record that a consumer returns has an offset"
                    if self._is_stopped.is_set():
                        return
                    missing = end - 1 - offset
                    if offset < end:
                        yield offset, message
                    if offset >= end - 1:
                        return
                elif problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # librdkafka looks up the coordinator of the group that this consumer is in by name only.
                    continue
                elif problem.code() == KafkaError._PARTITION_EOF:
                    # The last offsets may be gone, or belong to control records, which no consumer is shown.
                    return
                elif problem.code() in _CUT:
                    raise LogCut(
                        f"{topic} partition {partition} was cut while it was read ({problem.str()}); "
                        "run the command again."
                    )
                elif problem.code() in DAMAGE:
                    raise Failure(
                        f"{topic} partition {partition} cannot be read on: the record batch at offset {offset} is damaged "
                        f"({problem.str()}); let another broker lead it, and run the command again."
                    )
                elif remedy := acl_remedy(problem.code(), "Read", f"topic {topic}", self._clients.principal):
                    raise Failure(f"The topic {topic} cannot be read ({problem.str()}){remedy}.", Exit.DENIED)
                elif problem.fatal() or not problem.retriable():
                    raise self._unreachable(KafkaException(problem))

    @cached_property
    def _node_instead(self) -> Failure | None:
        """Return the failure if a node listens in the place of a broker; looked for once, because a silent address takes long."""
        return node_instead(self._properties)

    def _list_topics(self, topic: str | None = None) -> Mapping[str, Any]:
        """Return one topic by its name; None: all."""
        topics: Mapping[str, Any] = self._answer(lambda try_s: self._consumer.list_topics(topic, timeout=try_s)).topics
        return topics

    def _answer(self, request: Callable[[float], T]) -> T:
        """Return the answer to a request, which is given the time of one try in s and made again until all time is over."""
        ends_s, try_s, has_looked = monotonic() + READ_TIMEOUT_S, _TRY_FIRST_S, False
        with waiting_for(self._clients.bootstrap_servers):
            while not self._is_stopped.is_set():
                begun_s = monotonic()
                left_s = ends_s - begun_s
                try:
                    return self._interruptible(request, max(0.0, min(try_s, left_s)))
                except KafkaException as error:
                    code = error.args[0].code()
                    if code not in _UNANSWERED or left_s <= try_s:
                        raise self._unreachable(error) from None
                    if not has_looked:
                        has_looked = True
                        self._check_login()
                    if code == KafkaError._TIMED_OUT:
                        # A broker has the request, and may be slower than a try is long.
                        try_s = min(2 * try_s, _TRY_MAX_S)
                    # If the broker went away, a try takes no time.
                    self._is_stopped.wait(max(0.0, begun_s + _TRY_FIRST_S - monotonic()))
        raise self._stopped()

    def _check_login(self) -> None:
        """Look whether brokers let us in, where librdkafka got no answer.

        Raises:
            Failure: they do not, and will not.
            Stopped: the caller wants no more.
        """
        if denied := self._interruptible(lambda _: find_denied_login(self._properties), 0.0):
            raise Failure(f"Kafka cannot be read ({denied}); see --bootstrap-server.", Exit.DENIED)

    def _interruptible(self, request: Callable[[float], T], time_s: float) -> T:
        """Return the answer to a request that is given so much time, in a thread: no signal is heard where it waits."""
        self._request = answer = Future[T]()

        def send() -> None:
            try:
                answer.set_result(request(time_s))
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=send, name="holdfast-kafka-request", daemon=True).start()
        self._wait([answer])
        return answer.result()

    def _wait(self, answers: Collection[Future[Any]]) -> None:
        """Wait until each has come or failed, which the time of its request bounds.

        Raises:
            Stopped: the caller wants no more.
        """
        while wait_futures(answers, _POLL_S).not_done:
            if self._is_stopped.is_set():
                raise self._stopped()

    def _stopped(self) -> Stopped:
        return Stopped(f"Kafka at {self._clients.bootstrap_servers} did not answer until this was interrupted.")

    def _note(self, level: int, kind: str, client: str, text: str) -> None:
        """Keep what a line of librdkafka says of a connection that failed, without its threads and states."""
        if kind == "FAIL" and (found := _FAILED_CONNECTION.fullmatch(text)):
            self._connection_failure = found[1]

    def _unreachable(self, error: KafkaException) -> Failure:
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError._UNSUPPORTED_FEATURE and (failure := self._node_instead):
            return failure
        if not self._has_read:
            # This poll makes librdkafka give its log lines. A later poll might take a record that must be read, and earlier
            # reads have given the lines already.
            self._consumer.poll(0)
        # The error of a request that found no broker says nothing of the reason.
        why = self._connection_failure if cause.code() in _UNANSWERED else ""
        is_denied = cause.code() in _REFUSED_LOGINS or _REFUSED_LOGIN in why
        return Failure(
            f"Kafka at {self._clients.bootstrap_servers} cannot be read ({why or cause.str()}); see --bootstrap-server.",
            Exit.DENIED if is_denied else Exit.UNREACHABLE,
        )
