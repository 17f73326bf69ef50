"""Which topics exist in the cluster: known by topic id, cached, refreshed every so often and when an unknown id turns up.

What is not clear is no evidence: a topic keeps its last answer until a broker says that it exists or that its id is unknown.
The answers of another cluster than the first one are refused, for they would make every topic look deleted.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.daemon.logs import LineLimit
from holdfast.daemon.metadata_client import TopicAnswers
from holdfast.daemon.settings import MetadataSettings
from holdfast.runtime.broker_connection import ConnectionFailed

_log = structlog.get_logger(__name__)

_BACKOFF_FIRST_MS: Final = 100
_PROBLEMS_PER_MINUTE_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """What was known of the cluster at one moment."""

    version: int  #: grows with every image of a process
    cluster_id: str
    topics: Mapping[bytes, int] = field(default_factory=dict)  #: partition count by topic id

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return how many partitions a topic has, or None if it is not known to exist."""
        return self.topics.get(topic_id)


class Refresh(NamedTuple):
    """What one refresh learned; each id that was asked for is in one of the three sets."""

    at_ms: int  #: monotonic
    cluster_id: str
    existing_ids: frozenset[bytes]
    unknown_ids: frozenset[bytes]  #: answered UNKNOWN_TOPIC_ID
    unclear_ids: frozenset[bytes]  #: any other answer, or none: no evidence
    is_full: bool = True  #: it asked for all topics in use, not only for those that somebody waits for


class TopicSource(Protocol):
    """Who is asked: `MetadataClient`, or a fake."""

    async def ask_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        """Ask for topics by id; raises ConnectionFailed."""

    def move_on(self) -> None:
        """Ask another broker next."""

    def close(self) -> None:
        """Hang up."""


class ClusterMetadata:
    """The node's cache of topics; lives on the event loop and never blocks it."""

    def __init__(
        self,
        source: TopicSource,
        settings: MetadataSettings,
        *,
        topics_in_use: Callable[[], Collection[bytes]],
        on_refresh: Callable[[MetadataImage, Refresh], None],
        random: Random,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            source: who is asked.
            settings: intervals and bounds.
            topics_in_use: the ids of all topics of which this node holds state; asked at each full refresh.
            on_refresh: told of every refresh that succeeded, with the image that it made.
            random: jitter of the back-off.
        """
        self._source = source
        self._settings = settings
        self._topics_in_use = topics_in_use
        self._on_refresh = on_refresh
        self._random = random
        #: by topic id, then by number: who waits for an answer, and the timer that ends the wait
        self._waiters: dict[bytes, dict[int, tuple[Callable[[], None], asyncio.TimerHandle]]] = {}
        self._waiter_numbers = count()
        self._waiting_count = 0  #: over all ids
        self._is_wanted = asyncio.Event()
        #: ids that were wanted since the last full refresh; the next one asks for them again
        self._recent: set[bytes] = set()
        self._has_image = asyncio.Event()
        #: None before the first answer
        self.image: MetadataImage | None = None
        #: why the last refresh failed; empty after one that succeeded
        self.problem = "no broker has answered yet"
        self._has_told = False  #: that there is a problem
        self._line_limit = LineLimit(_PROBLEMS_PER_MINUTE_MAX)

    def want(self, topic_id: bytes, then: Callable[[], None], timeout_ms: int) -> None:
        """Call `then` once and soon: when a broker was asked about this id after now and has answered, or in `timeout_ms`.

        All who come before the next refresh share it. Where too many wait already, `then` is called without a refresh.
        """
        loop = asyncio.get_running_loop()
        if self._waiting_count >= self._settings.metadata_topics_max:
            loop.call_soon(then)
            return
        number = next(self._waiter_numbers)
        timer = loop.call_later(timeout_ms / 1_000, self._give_up, topic_id, number)
        self._waiters.setdefault(topic_id, {})[number] = (then, timer)
        self._waiting_count += 1
        self._is_wanted.set()

    async def wait_for_first_image(self, timeout_ms: int) -> MetadataImage:
        """Wait until a broker has answered for the first time.

        Raises:
            ConnectionFailed: none did in time; the text says why.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self._has_image.wait()
        except TimeoutError:
            raise ConnectionFailed(f"no metadata came within {timeout_ms} ms: {self.problem}") from None
        assert self.image is not None
        return self.image

    async def run(self) -> None:
        """Refresh for ever; ends by being cancelled, and then hangs up."""
        settings, loop = self._settings, asyncio.get_running_loop()
        backoff_ms = _BACKOFF_FIRST_MS
        full_refresh_at = loop.time()
        try:
            while True:
                is_full = loop.time() >= full_refresh_at
                try:
                    await self._refresh(is_full=is_full)
                except Exception as error:  # a bug in one turn, too, must not be the last of them
                    if not isinstance(error, ConnectionFailed):
                        _log.exception("a refresh of metadata failed")
                    self._tell_problem(str(error) or repr(error))
                    await asyncio.sleep(backoff_ms * (1 + self._random.random()) / 2_000)
                    backoff_ms = min(2 * backoff_ms, settings.metadata_reconnect_backoff_max_ms)
                    continue
                self._tell_problem("")
                backoff_ms = _BACKOFF_FIRST_MS
                if is_full:
                    self._source.move_on()  # a broker that is cut off tells the past, again and again
                    full_refresh_at = loop.time() + settings.metadata_refresh_interval_ms / 1_000
                await asyncio.sleep(settings.metadata_refresh_backoff_ms / 1_000)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(full_refresh_at):
                        await self._is_wanted.wait()
        finally:
            self._source.close()

    async def _refresh(self, *, is_full: bool) -> None:
        self._is_wanted.clear()
        first_later = next(self._waiter_numbers)
        wanted = set(self._waiters)
        asked = wanted.union(self._recent, self._topics_in_use()) if is_full else wanted
        answers = await self._source.ask_ids(asked)
        if self.image is not None and answers.cluster_id != self.image.cluster_id:
            self._source.close()
            raise ConnectionFailed(
                f"a broker of cluster {answers.cluster_id} answered where cluster {self.image.cluster_id} did before; "
                "check kafka.bootstrap.servers"
            )
        existing = {topic.topic_id: topic.partition_count for topic in answers.topics}
        before = {} if self.image is None else self.image.topics
        topics = {topic_id: before[topic_id] for topic_id in asked if topic_id in before} if is_full else before
        if not answers.unknown_ids.isdisjoint(topics) or any(topics.get(key) != size for key, size in existing.items()):
            topics = {key: size for key, size in topics.items() if key not in answers.unknown_ids} | existing
        if self.image is None or topics != before:
            version = 1 if self.image is None else self.image.version + 1
            self.image = MetadataImage(version, answers.cluster_id, MappingProxyType(dict(topics)))
            self._has_image.set()
        if is_full:
            self._recent = set()
        if len(self._recent) + len(wanted) <= self._settings.metadata_topics_max:
            self._recent |= wanted
        refresh = Refresh(
            at_ms=int(asyncio.get_running_loop().time() * 1_000),
            cluster_id=answers.cluster_id,
            existing_ids=frozenset(existing),
            unknown_ids=answers.unknown_ids,
            unclear_ids=frozenset(asked).difference(existing, answers.unknown_ids),
            is_full=is_full,
        )
        self._on_refresh(self.image, refresh)
        self._release(wanted, first_later)

    def _release(self, topic_ids: Collection[bytes], first_later: int) -> None:
        """Call those who waited before the refresh began; who came later waits for the next one."""
        loop = asyncio.get_running_loop()
        for topic_id in topic_ids:
            waiters = self._waiters.get(topic_id, {})
            for number in [number for number in waiters if number < first_later]:
                then, timer = waiters.pop(number)
                timer.cancel()
                self._waiting_count -= 1
                loop.call_soon(then)
            if not waiters:
                self._waiters.pop(topic_id, None)

    def _give_up(self, topic_id: bytes, number: int) -> None:
        waiters = self._waiters[topic_id]
        then, _ = waiters.pop(number)
        if not waiters:
            del self._waiters[topic_id]
        self._waiting_count -= 1
        then()

    def _tell_problem(self, problem: str) -> None:
        """Keep the problem, and log it when it is another than before, for brokers fail in as many words as there are brokers."""
        if problem != self.problem and problem:
            left_out = self._line_limit.admit("problem")
            if left_out is not None:
                self._has_told = True
                _log.warning("metadata cannot be refreshed", problem=problem, **left_out)
        elif self._has_told and not problem:
            self._has_told = False
            _log.info("metadata is refreshed again")
        self.problem = problem
