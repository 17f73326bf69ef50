"""Which topics exist in the cluster: known by topic id, cached, refreshed every so often and when an unknown id turns up.

What is not clear is no evidence: a topic keeps its last answer until a broker says that it exists or that its id is unknown.
The answers of another cluster than the first one are refused, for they would make every topic look deleted.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.context import NodeContext
from holdfast.daemon.settings.models import MetadataSettings
from holdfast.daemon.topics.look_ups import LookUp, LookUps, Then
from holdfast.daemon.topics.metadata_image import MetadataImage, keep_only, merge
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import TOPICS_PER_REQUEST_MAX
from holdfast.kafka.topics.metadata_client import RequestRefused, Topic, TopicAnswers

_log = structlog.get_logger(__name__)

_BACKOFF_FIRST_MS: Final = 100
_PROBLEMS_PER_MINUTE_MAX: Final = 1


class QueryBounds(NamedTuple):
    """Bounds of the cache's queries."""

    #: Topic ids in one query.
    topics_per_query_max: int = TOPICS_PER_REQUEST_MAX
    #: Ids of one request that Kafka is queried for: ten queries, a second with the pause between them.
    unknown_per_request_max: int = 1_000
    #: Shortest time between two queries for unknown ids; clients can cause them, so brokers get ten in a second at most.
    pause_ms: int = 100
    #: Longest pause after queries that failed; clients wait for unknown topics meanwhile.
    backoff_max_ms: int = 10_000


class Refresh(NamedTuple):
    """The result of one refresh; each id that was requested is in one of the three sets."""

    #: Monotonic.
    at_ms: int
    cluster_id: str
    existing_ids: frozenset[bytes]
    #: Answered UNKNOWN_TOPIC_ID.
    unknown_ids: frozenset[bytes]
    #: Any other answer, or none: no evidence.
    unclear_ids: frozenset[bytes]
    #: It requested all topics in use, not only for those that callers wait for.
    is_full: bool = True


class TopicSource(Protocol):
    """The source of answers: `MetadataClient`, or a fake."""

    async def query_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        """Query topics by id; raises ConnectionFailed."""

    def move_on(self) -> None:
        """Query another broker next."""

    def close(self) -> None:
        """Close the connection."""


class TopicUser(Protocol):
    """A user of topics of the cluster, notified of each refresh."""

    def topics_in_use(self) -> Collection[bytes]:
        """Return the ids of all topics of which state is kept; each full refresh queries them."""

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """Take in a refresh that succeeded, with the image that it made."""


class ClusterMetadata:
    """The node's cache of topics; lives on the event loop and never blocks it."""

    def __init__(
        self,
        source: TopicSource,
        settings: MetadataSettings,
        context: NodeContext,
        *,
        random: Random,
        bounds: QueryBounds = QueryBounds(),  # noqa: B008 - immutable
        report_after_ms: int = 0,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            source: of the answers.
            settings: how often topics are queried again, and how many are remembered.
            context: of the node.
            random: jitter of the back-off.
            bounds: of its queries.
            report_after_ms: a problem is logged when it has lasted for so long.
        """
        self._report_after_s = report_after_ms / 1_000
        self._limiter = context.limiter
        self._source = source
        self._internal_errors = context.internal_errors
        self._settings = settings
        self._bounds = bounds
        self._users: list[TopicUser] = []
        self._random = random
        self._look_ups = LookUps[bytes](settings.metadata_topics_max, bounds.unknown_per_request_max)
        self._timers: dict[LookUp[bytes], asyncio.TimerHandle] = {}
        self._is_wanted = asyncio.Event()
        #: Ids that were wanted since the last full refresh began, and exist; the next one queries them again.
        self._recent: set[bytes] = set()
        #: The full refresh that was begun and is not complete.
        self._round: _Round | None = None
        #: When the next one begins, on the loop's clock.
        self._full_refresh_s = 0.0
        #: Ids in one query: halved when there is no answer, so that an id that spoils a query soon spoils only its own.
        self._query_size = bounds.topics_per_query_max
        self._has_image = asyncio.Event()
        #: None before the first answer
        self.image: MetadataImage | None = None
        #: Why the last query failed; empty after one that succeeded.
        self.problem = "no broker has answered yet"
        #: On the loop's clock; None: there is none.
        self._problem_since_s: float | None = None
        #: The problem for which it was decided last whether to log it.
        self._judged = ""
        #: Whether the problem was logged.
        self._is_reported = False

    def add_user(self, user: TopicUser) -> None:
        """Query the topics of this user, too, and notify it of all refreshes from now on."""
        self._users.append(user)

    def look_up(self, topic_ids: Collection[bytes], caller: str, then: Then[bytes], timeout_ms: int) -> None:
        """Query a broker about unknown topics for the client at address `caller`.

        `then` is called once and soon: when a broker was queried about all of them after now and has answered, or in `timeout_ms`,
        or at once where there is no room; it gets those that no broker was queried about.
        """
        loop = asyncio.get_running_loop()
        look_up, dropped = self._look_ups.add(caller, topic_ids, then)
        for each in dropped:
            self._finish(each)
        if look_up is None:
            loop.call_soon(then, tuple(topic_ids))
            return
        self._timers[look_up] = loop.call_later(timeout_ms / 1_000, self._give_up, look_up)
        self._is_wanted.set()

    def refresh_soon(self) -> None:
        """Query all topics in use now, and not only when it is time."""
        self._full_refresh_s = 0.0
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
        """Send queries for ever; ends by being cancelled, and then closes the connection."""
        settings, loop = self._settings, asyncio.get_running_loop()
        backoff = Backoff(_BACKOFF_FIRST_MS, self._bounds.backoff_max_ms, self._random.random)
        try:
            while True:
                if self._round is None and loop.time() >= self._full_refresh_s:
                    self._round = _Round(self._recent.union(*(user.topics_in_use() for user in self._users)))
                    self._recent = set()
                    self._full_refresh_s = loop.time() + settings.metadata_refresh_interval_ms / 1_000
                if self._round is None and not self._look_ups:
                    self._is_wanted.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(self._full_refresh_s):
                            await self._is_wanted.wait()
                    continue
                try:
                    await self._send_query()
                except Exception as error:  # a bug in one turn, too, must not be the last of them
                    if not isinstance(error, ConnectionFailed):
                        self._internal_errors.note_bug("metadata_refresh_crashed", error)
                    self._report_problem(str(error) or repr(error))
                    if isinstance(error, RequestRefused):
                        backoff.reset()  # the broker is there, and the next query is a smaller one
                    await asyncio.sleep(backoff.next_pause_ms() / 1_000)
                    continue
                self._report_problem("")
                backoff.reset()
                if self._round is None:
                    await asyncio.sleep(self._bounds.pause_ms / 1_000)
        finally:
            self._source.close()

    async def _send_query(self) -> None:
        """Send one query: what callers wait for, and the next part of a full refresh."""
        whole = self._round
        size = self._query_size
        query = self._look_ups.next_query(size if whole is None or not whole.left else (size + 1) // 2)
        part = [] if whole is None else whole.next_part(size - len(query))
        try:
            answers = await self._source.query_ids({*query, *part})
            self._check_cluster(answers)
        except ConnectionFailed as failure:
            self._query_size = max(1, size // 2)
            if isinstance(failure, RequestRefused) and whole is not None and len(part) == 1 and not query:
                whole.pass_over(part)  # refused for its own sake: no answer is no evidence, and the others go on
            raise
        self._query_size = min(2 * size, self._bounds.topics_per_query_max)
        image = merge(self.image, answers)
        self._show(image)
        if len(self._recent) + len(query) <= self._settings.metadata_topics_max:
            self._recent.update({topic.topic_id for topic in answers.topics} & query.keys())
        if query:
            self._notify(image, answers, query, is_full=False)
        for look_up in self._look_ups.answered(query):
            self._finish(look_up)
        if whole is not None:
            whole.learn(part, answers)
            if not whole.left:
                self._complete(image, whole, answers.cluster_id)

    def _check_cluster(self, answers: TopicAnswers) -> None:
        if self.image is not None and answers.cluster_id != self.image.cluster_id:
            self._source.close()
            raise ConnectionFailed(
                f"a broker of cluster {answers.cluster_id} answered where cluster {self.image.cluster_id} did before; "
                "check kafka.bootstrap.servers"
            )

    def _show(self, image: MetadataImage) -> None:
        self.image = image
        self._has_image.set()

    def _complete(self, image: MetadataImage, whole: "_Round", cluster_id: str) -> None:
        """End a full refresh: topics that were not wanted since it began, and that it did not query, are forgotten."""
        kept = keep_only(image, whole.requested | self._recent)
        self._show(kept)
        self._notify(kept, whole.answers(cluster_id), whole.requested, is_full=True)
        self._round = None
        self._source.move_on()  # a broker that is cut off answers with the past, again and again

    def _notify(
        self, image: MetadataImage, answers: TopicAnswers, requested: Collection[bytes], *, is_full: bool
    ) -> None:
        existing = frozenset(topic.topic_id for topic in answers.topics)
        refresh = Refresh(
            at_ms=int(asyncio.get_running_loop().time() * 1_000),
            cluster_id=answers.cluster_id,
            existing_ids=existing.intersection(requested),
            unknown_ids=answers.unknown_ids.intersection(requested),
            unclear_ids=frozenset(requested).difference(existing, answers.unknown_ids),
            is_full=is_full,
        )
        for user in self._users:
            user.refreshed(image, refresh)

    def _give_up(self, look_up: LookUp[bytes]) -> None:
        self._look_ups.remove(look_up)
        self._finish(look_up)

    def _finish(self, look_up: LookUp[bytes]) -> None:
        """Notify the caller that waits, not before the loop's next turn."""
        self._timers.pop(look_up).cancel()
        asyncio.get_running_loop().call_soon(look_up.then, look_up.left())

    def _report_problem(self, problem: str) -> None:
        """Keep the problem, and log it when it differs from the one before; every broker may word its failure differently."""
        self.problem = problem
        now_s = asyncio.get_running_loop().time()
        if not problem:
            if self._is_reported:
                _log.info("metadata_refresh_recovered")
            self._problem_since_s, self._judged, self._is_reported = None, "", False
            return
        if self._problem_since_s is None:
            self._problem_since_s = now_s
        is_new = problem != self._judged and now_s - self._problem_since_s >= self._report_after_s
        if is_new and not self._limiter.leave_out():
            self._judged = problem
            left_out = self._limiter.admit("metadata_refresh_failed", _PROBLEMS_PER_MINUTE_MAX)
            if left_out is not None:
                self._is_reported = True
                _log.warning("metadata_refresh_failed", problem=problem, **left_out)


class _Round:
    """A full refresh, queried in parts; it ends when each id was queried."""

    def __init__(self, topic_ids: set[bytes]) -> None:
        self.requested = frozenset(topic_ids)
        self.left = deque(topic_ids)
        self._topics: dict[bytes, Topic] = {}
        self._unknown_ids: set[bytes] = set()

    def next_part(self, count_max: int) -> list[bytes]:
        """Return what is queried next; it is queried again until it was answered or passed over."""
        return list(islice(self.left, count_max))

    def pass_over(self, part: list[bytes]) -> None:
        """Go on behind a part."""
        for _ in part:
            self.left.popleft()

    def learn(self, part: list[bytes], answers: TopicAnswers) -> None:
        """Go on behind a part, and take in what its answer says of the ids of this refresh."""
        self.pass_over(part)
        self._topics |= {topic.topic_id: topic for topic in answers.topics if topic.topic_id in self.requested}
        self._unknown_ids |= answers.unknown_ids & self.requested

    def answers(self, cluster_id: str) -> TopicAnswers:
        """Return what all answers say; of two about one topic, that it exists."""
        return TopicAnswers(
            cluster_id, tuple(self._topics.values()), frozenset(self._unknown_ids - self._topics.keys())
        )
