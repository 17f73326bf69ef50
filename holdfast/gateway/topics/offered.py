"""The topics that a gateway offers: those of the Kafka cluster that match `gateway.topics`, known by name and by id.

They are looked up every so often, all of them, and one that is not known as soon as a client names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Final

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.context import NodeContext
from holdfast.daemon.server.topics_view import ShownTopic, TakeTopics, TopicQuery, unknown_topic
from holdfast.gateway.leaders import TopicLeaders
from holdfast.gateway.topics.asking import Asking, LookUpBounds
from holdfast.gateway.topics.known import KnownTopics
from holdfast.gateway.topics.patterns import Offer
from holdfast.gateway.topics.source import TopicSource
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import TOPICS_PER_REQUEST_MAX, TopicSummary
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topics.metadata_client import Summaries

_log = structlog.get_logger(__name__)

_BACKOFF_FIRST_MS: Final = 100
_LINES_PER_MINUTE_MAX: Final = 1
#: Topics that one line names.
_NAMED_MAX: Final = 20
#: Topics of a listing that are looked at in one turn of the loop.
_TOPICS_PER_TURN: Final = 1_000


class OfferedTopics:
    """The topics that are offered (`topics_view.TopicsView`); lives on the event loop and never blocks it."""

    def __init__(
        self,
        patterns: Collection[str],
        own_topics: Collection[str],
        source: TopicSource,
        leaders: TopicLeaders,
        context: NodeContext,
        *,
        cluster_id: str,
        refresh_interval_ms: int,
        random: Random,
        bounds: LookUpBounds = LookUpBounds(),  # noqa: B008 - immutable
    ) -> None:
        """Know no topic before `run` does the work.

        Args:
            patterns: those of the setting `gateway.topics`.
            own_topics: names of the node's own topics, which are never offered.
            source: of the answers.
            leaders: of the partitions.
            context: of the node.
            cluster_id: of the Kafka cluster; answers of another one are refused, for they would make every topic look deleted.
            refresh_interval_ms: how often all topics are looked up.
            random: jitter of the back-off.
            bounds: of look-ups that clients cause.
        """
        self._offer = Offer(patterns, own_topics)
        self._known = KnownTopics(self._offer)
        self._is_wanted = asyncio.Event()
        self._asking = Asking(self._offer, self._known, bounds, self._is_wanted.set)
        self._source = source
        self._limiter, self._internal_errors = context.limiter, context.internal_errors
        self._cluster_id = cluster_id
        self._refresh_interval_s = refresh_interval_ms / 1_000
        self._random = random
        self._bounds = bounds
        self.log_partition = leaders.log_partition
        self.on_change = self._known.on_change
        self.find = self._asking.find
        self.answer_waiting = self._asking.answer_waiting
        self._unmatched: frozenset[str] = frozenset()
        #: On the loop's clock.
        self._refresh_s = 0.0
        #: Names that this node looked for in vain, and when they are looked up.
        self._missed: dict[str, None] = {}
        self._missed_s = inf
        #: Why the last query failed; empty after one that succeeded.
        self.problem = "no broker has answered yet"

    def topic(self, name: str) -> ShownTopic | None:
        """Return a topic that is offered and known; None: it is not, maybe not yet, and it is looked up soon.

        Share groups name topics that are still to be made, again with each heartbeat.
        """
        topic = self._known.by_name.get(name)
        if topic is None and len(self._missed) < self._bounds.missed_max and self._offer.has(name):
            if not self._missed:
                self._missed_s = asyncio.get_running_loop().time() + self._bounds.missed_pause_ms / 1_000
                self._is_wanted.set()
            self._missed[name] = None
        return topic

    def topic_by_id(self, topic_id: bytes) -> ShownTopic | None:
        """Return a topic that is offered and known; None: it is not, maybe not yet."""
        return self._known.by_id.get(topic_id)

    async def run(self) -> None:
        """Query the Kafka cluster for ever; ends by being cancelled, and then closes the connection."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_BACKOFF_FIRST_MS, self._bounds.backoff_max_ms, self._random.random)
        try:
            while True:
                due_s = min(self._refresh_s, self._missed_s)
                if not self._asking.is_waiting and loop.time() < due_s:
                    self._is_wanted.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(due_s):
                            await self._is_wanted.wait()
                    continue
                succeeded = not self._asking.is_waiting or await self._attempt(self._query_some)
                if loop.time() >= self._missed_s:
                    succeeded = await self._attempt(self._query_missed) and succeeded
                if loop.time() >= self._refresh_s:
                    is_refreshed = await self._attempt(self._refresh)
                    # Look-ups go on, should only a listing fail.
                    self._refresh_s = loop.time() + (self._refresh_interval_s if is_refreshed else 0.0)
                    succeeded = succeeded and is_refreshed
                if succeeded:
                    backoff.reset()
                await asyncio.sleep((self._bounds.pause_ms if succeeded else backoff.next_pause_ms()) / 1_000)
        finally:
            self._source.close()

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do a step, tell those who listen what it changed, and return whether it succeeded."""
        try:
            await work()
        except Exception as error:  # a bug in one step, too, must not be the last of them
            if not isinstance(error, ConnectionFailed):
                self._internal_errors.note_bug("gateway_topics_crashed", error)
            self._report_problem(str(error) or repr(error))
            return False
        else:
            self._report_problem("")
            return True
        finally:
            self._known.tell_changes()

    async def _query_some(self) -> None:
        """Look up what clients wait for."""
        query = self._asking.next_query()
        # Brokers leave out names that come with ids.
        for refs in ([ref for ref in query if isinstance(ref, str)], [ref for ref in query if isinstance(ref, bytes)]):
            if refs:
                said = self._check(await self._source.summarize(refs))
                for topic in said:
                    self._known.learn(topic)
                self._asking.note_errors(query, refs, said)
        await self._confirm()
        self._known.tell_changes()
        self._asking.answer(query)

    async def _query_missed(self) -> None:
        """Look up what this node looked for in vain; what is still missing is looked for again."""
        missed, self._missed, self._missed_s = tuple(self._missed), {}, inf
        for names in _parts(missed):
            for topic in self._check(await self._source.summarize(names)):
                self._known.learn(topic)
        await self._confirm()

    async def _refresh(self) -> None:
        """Look up all topics that can be offered."""
        listed = [topic async for topic in self._list(None if self._offer.wildcards else sorted(self._offer.names))]
        found = set()
        for number, topic in enumerate(listed):
            if self._known.learn(topic):
                found.add(topic.name)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._known.doubt_all_but(found)
        await self._confirm()
        self._known.tell_changes()
        self._asking.note_loaded()
        await self._report_unmatched(listed)
        self._source.move_on()  # a broker that is cut off answers with the past, again and again

    async def _list(self, names: Sequence[str] | None) -> AsyncIterator[TopicSummary]:
        parts = [None] if names is None else _parts(names)
        for part in parts:
            for topic in self._check(await self._source.summarize(part)):
                yield topic

    def _check(self, answer: Summaries) -> Sequence[TopicSummary]:
        if answer.cluster_id != self._cluster_id:
            self._source.close()
            raise ConnectionFailed(
                f"a broker of cluster {answer.cluster_id} answered where cluster {self._cluster_id} did before; "
                "check kafka.bootstrap.servers"
            )
        return answer.topics

    async def _confirm(self) -> None:
        """Ask all brokers about what is doubted, and believe what they agree on."""
        doubted = self._known.take_doubted()
        for names in _parts(tuple(doubted)):
            said = await self._source.confirm({name: doubted[name] for name in names})
            for name, topic in said.items():
                self._known.learn_certain(topic, name, doubted[name])

    # ---- lines -----------------------------------------------------------------------------------------------------

    async def _report_unmatched(self, listed: Sequence[TopicSummary]) -> None:
        """Say which patterns match no topic, and which topics there are."""
        unmatched = self._offer.names.difference(self._known.by_name)
        for pattern, is_match in self._offer.wildcards.items():
            if not any(map(is_match, self._known.by_name)):
                unmatched |= {pattern}
            await asyncio.sleep(0)
        if not unmatched or unmatched == self._unmatched:
            self._unmatched = unmatched
            return
        if not self._offer.wildcards:
            listed = [topic async for topic in self._list(None)]
        left_out = self._limiter.admit("gateway_topics_unmatched", _LINES_PER_MINUTE_MAX)
        if left_out is None:
            return
        self._unmatched = unmatched
        names = sorted(
            topic.name for topic in listed if not topic.is_internal and topic.name not in self._offer.own_topics
        )
        _log.warning(
            "gateway_topics_unmatched",
            patterns=sorted(unmatched)[:_NAMED_MAX],
            topics=names[:_NAMED_MAX],
            more_topics=max(0, len(names) - _NAMED_MAX),
            next_step="name topics that exist in gateway.topics, or create them",
            **left_out,
        )

    def _report_problem(self, problem: str) -> None:
        was, self.problem = self.problem, problem
        if problem and problem != was and not self._limiter.leave_out():
            left_out = self._limiter.admit("gateway_topics_failed", _LINES_PER_MINUTE_MAX)
            if left_out is not None:
                _log.warning("gateway_topics_failed", problem=problem, **left_out)


class StartingTopics:
    """The topics of a node that starts (`topics_view.TopicsView`): it knows none, and clients try again."""

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        """Find no topic."""
        take([unknown_topic(query, ErrorCode.LEADER_NOT_AVAILABLE) for query in queries or ()])

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        """Return the first log partition, which nobody owns yet."""
        return 0


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield what one request each asks for."""
    return (names[start : start + TOPICS_PER_REQUEST_MAX] for start in range(0, len(names), TOPICS_PER_REQUEST_MAX))
