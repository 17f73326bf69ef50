"""Which topics exist in the cluster: known by topic id, cached, refreshed every so often and when an unknown id turns up.

What is not clear is no evidence: a topic keeps its last answer until a broker says that it exists or that its id is unknown.
The answers of another cluster than the first one are refused, for they would make every topic look deleted.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.daemon.brokers.silence import IsLeftOut, none_left_out
from holdfast.daemon.settings.models import MetadataSettings
from holdfast.daemon.topics.look_ups import LookUp, LookUps, Then
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import QuestionRefused, Topic, TopicAnswers
from holdfast.metrics.line_limit import LineLimit

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


def merge(image: MetadataImage | None, answers: TopicAnswers) -> MetadataImage:
    """Return what is known after some answers: `image` itself if they say nothing new, else the next version.

    A topic that a broker said exists is known with the partition count it said, one whose id is unknown is not known any more,
    and one that is unclear stays as it was. The cluster is that of the answers.
    """
    known = {} if image is None else image.topics
    existing = {topic.topic_id: topic.partition_count for topic in answers.topics}
    is_old = answers.unknown_ids.isdisjoint(known) and all(known.get(key) == size for key, size in existing.items())
    if image is not None and is_old:
        return image  # as a rule; a copy of all that is known would take its time
    kept = {key: count for key, count in known.items() if key not in answers.unknown_ids}
    return _next_image(image, kept | existing, answers.cluster_id)


def keep_only(image: MetadataImage, topic_ids: Collection[bytes]) -> MetadataImage:
    """Return an image that knows these topics at most: `image` itself if it knows no other, else the next version."""
    return _next_image(image, {key: count for key, count in image.topics.items() if key in topic_ids}, image.cluster_id)


def _next_image(image: MetadataImage | None, topics: Mapping[bytes, int], cluster_id: str) -> MetadataImage:
    if image is not None and topics == image.topics:
        return image
    return MetadataImage(1 if image is None else image.version + 1, cluster_id, MappingProxyType(dict(topics)))


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


class TopicUser(Protocol):
    """Uses topics of the cluster, and follows what becomes of them."""

    def topics_in_use(self) -> Collection[bytes]:
        """Return the ids of all topics of which state is kept; each full refresh asks about them."""

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """Take in a refresh that succeeded, with the image that it made."""


class ClusterMetadata:
    """The node's cache of topics; lives on the event loop and never blocks it."""

    def __init__(
        self,
        source: TopicSource,
        settings: MetadataSettings,
        *,
        random: Random,
        tell_after_ms: int = 0,
        is_left_out: IsLeftOut = none_left_out,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            source: who is asked.
            settings: intervals and bounds.
            random: jitter of the back-off.
            tell_after_ms: a problem is told when it has lasted for so long.
            is_left_out: see `IsLeftOut`.
        """
        self._tell_after_s = tell_after_ms / 1_000
        self._is_left_out = is_left_out
        self._source = source
        self._settings = settings
        self._users: list[TopicUser] = []
        self._random = random
        self._look_ups = LookUps(settings.metadata_topics_max, settings.unknown_topics_per_request_max)
        self._timers: dict[LookUp, asyncio.TimerHandle] = {}
        self._is_wanted = asyncio.Event()
        #: ids that were wanted since the last full refresh began, and exist; the next one asks for them again
        self._recent: set[bytes] = set()
        self._round: _Round | None = None  #: the full refresh that was begun and is not complete
        self._full_refresh_s = 0.0  #: when the next one begins, on the loop's clock
        #: ids in one question: halved when there is no answer, so that what spoils a question soon spoils only its own
        self._question_size = settings.metadata_topics_per_request_max
        self._has_image = asyncio.Event()
        #: None before the first answer
        self.image: MetadataImage | None = None
        #: why the last question failed; empty after one that succeeded
        self.problem = "no broker has answered yet"
        self._problem_since_s: float | None = None  #: on the loop's clock; None: there is none
        self._judged = ""  #: the problem for which it was decided last whether to tell it
        self._has_told = False  #: that there is a problem
        self._line_limit = LineLimit(_PROBLEMS_PER_MINUTE_MAX)

    def add_user(self, user: TopicUser) -> None:
        """Ask about the topics of this user, too, and let it follow all refreshes from now on."""
        self._users.append(user)

    def look_up(self, topic_ids: Collection[bytes], caller: str, then: Then, timeout_ms: int) -> None:
        """Ask a broker about unknown topics for the client at address `caller`.

        `then` is called once and soon: when a broker was asked about all of them after now and has answered, or in `timeout_ms`,
        or at once where there is no room; it is told those that no broker was asked about.
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
        """Ask for all topics in use now, and not only when it is time."""
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
        """Ask for ever; ends by being cancelled, and then closes the connection."""
        settings, loop = self._settings, asyncio.get_running_loop()
        backoff_ms = _BACKOFF_FIRST_MS
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
                    await self._ask()
                except Exception as error:  # a bug in one turn, too, must not be the last of them
                    if not isinstance(error, ConnectionFailed):
                        _log.exception("metadata_refresh_crashed")
                    self._tell_problem(str(error) or repr(error))
                    if isinstance(error, QuestionRefused):
                        backoff_ms = _BACKOFF_FIRST_MS  # the broker is there, and the next question is a smaller one
                    await asyncio.sleep(backoff_ms * (1 + self._random.random()) / 2_000)
                    backoff_ms = min(2 * backoff_ms, settings.metadata_reconnect_backoff_max_ms)
                    continue
                self._tell_problem("")
                backoff_ms = _BACKOFF_FIRST_MS
                if self._round is None:
                    await asyncio.sleep(settings.metadata_refresh_backoff_ms / 1_000)
        finally:
            self._source.close()

    async def _ask(self) -> None:
        """Ask one question: what callers wait for, and the next part of a full refresh."""
        whole = self._round
        size = self._question_size
        question = self._look_ups.next_question(size if whole is None or not whole.left else (size + 1) // 2)
        part = [] if whole is None else whole.next_part(size - len(question))
        try:
            answers = await self._source.ask_ids({*question, *part})
            self._check_cluster(answers)
        except ConnectionFailed as failure:
            self._question_size = max(1, size // 2)
            if isinstance(failure, QuestionRefused) and whole is not None and len(part) == 1 and not question:
                whole.pass_over(part)  # refused for its own sake: no answer is no evidence, and the others go on
            raise
        self._question_size = min(2 * size, self._settings.metadata_topics_per_request_max)
        self._show(merge(self.image, answers))
        if len(self._recent) + len(question) <= self._settings.metadata_topics_max:
            self._recent.update({topic.topic_id for topic in answers.topics} & question.keys())
        if question:
            self._tell(answers, question, is_full=False)
        for look_up in self._look_ups.answered(question):
            self._finish(look_up)
        if whole is not None:
            whole.learn(part, answers)
            if not whole.left:
                self._complete(whole, answers.cluster_id)

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

    def _complete(self, whole: "_Round", cluster_id: str) -> None:
        """End a full refresh: topics that nobody wanted since it began, and that it did not ask about, are forgotten."""
        assert self.image is not None
        self._show(keep_only(self.image, whole.asked | self._recent))
        self._tell(whole.answers(cluster_id), whole.asked, is_full=True)
        self._round = None
        self._source.move_on()  # a broker that is cut off tells the past, again and again

    def _tell(self, answers: TopicAnswers, asked: Collection[bytes], *, is_full: bool) -> None:
        assert self.image is not None
        existing = frozenset(topic.topic_id for topic in answers.topics)
        refresh = Refresh(
            at_ms=int(asyncio.get_running_loop().time() * 1_000),
            cluster_id=answers.cluster_id,
            existing_ids=existing.intersection(asked),
            unknown_ids=answers.unknown_ids.intersection(asked),
            unclear_ids=frozenset(asked).difference(existing, answers.unknown_ids),
            is_full=is_full,
        )
        for user in self._users:
            user.refreshed(self.image, refresh)

    def _give_up(self, look_up: LookUp) -> None:
        self._look_ups.remove(look_up)
        self._finish(look_up)

    def _finish(self, look_up: LookUp) -> None:
        """Tell who waits, not before the loop's next turn."""
        self._timers.pop(look_up).cancel()
        asyncio.get_running_loop().call_soon(look_up.then, look_up.left())

    def _tell_problem(self, problem: str) -> None:
        """Keep the problem, and log it when it is another than before, for brokers fail in as many words as there are brokers."""
        self.problem = problem
        now_s = asyncio.get_running_loop().time()
        if not problem:
            if self._has_told:
                _log.info("metadata_refresh_recovered")
            self._problem_since_s, self._judged, self._has_told = None, "", False
            return
        if self._problem_since_s is None:
            self._problem_since_s = now_s
        is_new = problem != self._judged and now_s - self._problem_since_s >= self._tell_after_s
        if is_new and not self._is_left_out(None):
            self._judged = problem
            left_out = self._line_limit.admit("problem")
            if left_out is not None:
                self._has_told = True
                _log.warning("metadata_refresh_failed", problem=problem, **left_out)


class _Round:
    """A full refresh, asked in parts; it ends when each id was asked about."""

    def __init__(self, topic_ids: set[bytes]) -> None:
        self.asked = frozenset(topic_ids)
        self.left = deque(topic_ids)
        self._topics: dict[bytes, Topic] = {}
        self._unknown_ids: set[bytes] = set()

    def next_part(self, count_max: int) -> list[bytes]:
        """Return what is asked next; it is asked again until it was answered or passed over."""
        return list(islice(self.left, count_max))

    def pass_over(self, part: list[bytes]) -> None:
        """Go on behind a part."""
        for _ in part:
            self.left.popleft()

    def learn(self, part: list[bytes], answers: TopicAnswers) -> None:
        """Go on behind a part, and take in what its answer says of the ids of this refresh."""
        self.pass_over(part)
        self._topics |= {topic.topic_id: topic for topic in answers.topics if topic.topic_id in self.asked}
        self._unknown_ids |= answers.unknown_ids & self.asked

    def answers(self, cluster_id: str) -> TopicAnswers:
        """Return what all answers say; of two about one topic, that it exists."""
        return TopicAnswers(
            cluster_id, tuple(self._topics.values()), frozenset(self._unknown_ids - self._topics.keys())
        )
