"""Topics by name, for the people and tools that know no ids.

Kafka is queried first, because a name says nothing about a topic that was deleted and recreated.
Only where Kafka cannot be reached, or is silent for too long, the answer is what it said before, and says so.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from holdfast.daemon.settings.declarations import MIB, MINUTE_MS
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import TOPICS_PER_REQUEST_MAX, is_topic_name
from holdfast.kafka.topics.metadata_client import Topic

#: What an entry takes beside its name: the id, the topic and its place in the table.
_ENTRY_BYTES: Final = 400


class NameBounds(NamedTuple):
    """Bounds of look-ups by name, and of what is remembered of them."""

    #: Names that wait for Kafka's answer; few admins look up names at once, and each name holds a request.
    waiting_max: int = 1_000
    #: Names in one query to Kafka.
    per_request_max: int = TOPICS_PER_REQUEST_MAX
    #: Memory of resolved names, which serve while Kafka cannot be reached: some 2,000 names.
    bytes_max: int = MIB
    #: A name may stand for another topic after a day without Kafka, and people should not rely on it.
    age_max_ms: int = 24 * 60 * MINUTE_MS


class NotATopicName(Exception):
    """Kafka allows no topic of this name."""


class TooManyNames(Exception):
    """Too many other names wait for Kafka's answer."""


class Resolved(NamedTuple):
    """What is known of a name."""

    #: None: Kafka knows no topic of this name.
    topic: Topic | None
    #: 0: Kafka said so now.
    age_ms: int
    #: Why Kafka could not be queried; empty when it was.
    problem: str


class _Answer(NamedTuple):
    topic: Topic | None
    #: Why there is no answer; empty when there is one.
    problem: str


class NameSource(Protocol):
    """The source of answers: `MetadataClient`, or a fake."""

    async def query_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        """Query topics by name, leaving out missing ones; raises ConnectionFailed."""

    def close(self) -> None:
        """Close the connection."""


class TopicNames:
    """Look-ups by name: one query at a time, shared by all callers that wait for it."""

    def __init__(
        self,
        source: NameSource,
        now_ms: Callable[[], int],
        *,
        timeout_ms: int,
        bounds: NameBounds = NameBounds(),  # noqa: B008 - immutable
    ) -> None:
        """Prepare; nothing is queried before the first look-up.

        Args:
            source: of the answers; has a connection of its own, so that no look-up of an admin delays another query.
            now_ms: monotonic.
            timeout_ms: how long a look-up waits for Kafka's answer, before what Kafka said earlier serves.
            bounds: how many names may wait and be remembered.
        """
        self._source = source
        self._timeout_ms = timeout_ms
        self._bounds = bounds
        self._now_ms = now_ms
        #: By name: the topic and when Kafka said so, the longest ago first.
        self._known: dict[str, tuple[Topic, int]] = {}
        self._known_bytes = 0
        #: By name: the answers that callers wait for.
        self._waiting: dict[str, asyncio.Future[_Answer]] = {}
        self._querying: asyncio.Task[None] | None = None

    async def resolve(self, name: str) -> Resolved:
        """Return the topic of this name.

        Raises:
            NotATopicName: there can be none.
            TooManyNames: too many others are being looked up.
            ConnectionFailed: Kafka gives no answer within the timeout, and has not spoken of this name before.
        """
        if not is_topic_name(name):
            raise NotATopicName
        answer = self._waiting.get(name)
        if answer is None:
            if len(self._waiting) >= self._bounds.waiting_max:
                raise TooManyNames
            answer = self._waiting[name] = asyncio.get_running_loop().create_future()
            if self._querying is None:
                self._querying = asyncio.create_task(self._query_waiting(), name="holdfast-topic-names")
        # The query goes on without this caller: its answer serves those who come later.
        await asyncio.wait([answer], timeout=self._timeout_ms / 1_000)
        if answer.done():
            topic, problem = answer.result()
        else:
            topic, problem = None, f"no broker answered within {self._timeout_ms} ms"
        if not problem:
            return Resolved(topic, 0, "")
        known = self._recall(name)
        if known is None:
            raise ConnectionFailed(problem)
        topic, queried_ms = known
        return Resolved(topic, max(1, self._now_ms() - queried_ms), problem)

    async def close(self) -> None:
        """Send no more queries; look-ups in flight fail."""
        if self._querying is not None:
            self._querying.cancel()
            with suppress(asyncio.CancelledError):
                await self._querying
        self._source.close()

    async def _query_waiting(self) -> None:
        problem = "the look-up was given up"  # by the end of the node, or by a bug
        try:
            while self._waiting:
                queried = list(self._waiting)[: self._bounds.per_request_max]
                found = await self._source.query_names(queried)
                for name in queried:
                    self._answer(name, found.get(name))
        except ConnectionFailed as failure:
            problem = str(failure)
        finally:
            self._querying = None
            waiting, self._waiting = self._waiting, {}
            for answer in waiting.values():
                answer.set_result(_Answer(None, problem))

    def _answer(self, name: str, topic: Topic | None) -> None:
        self._forget(name)
        if topic is not None:
            self._remember(name, topic)
        self._waiting.pop(name).set_result(_Answer(topic, ""))

    def _remember(self, name: str, topic: Topic) -> None:
        self._known[name] = topic, self._now_ms()
        self._known_bytes += _ENTRY_BYTES + len(name)
        while self._known_bytes > self._bounds.bytes_max:
            self._forget(next(iter(self._known)))

    def _forget(self, name: str) -> None:
        if self._known.pop(name, None) is not None:
            self._known_bytes -= _ENTRY_BYTES + len(name)

    def _recall(self, name: str) -> tuple[Topic, int] | None:
        known = self._known.get(name)
        if known is not None and self._now_ms() - known[1] > self._bounds.age_max_ms:
            self._forget(name)
            return None
        return known
