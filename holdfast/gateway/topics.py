"""The topics that a gateway offers: those of the Kafka cluster that match `gateway.topics`, known by name and by id.

They are looked up every so often, all of them, and one that is not known as soon as a client names it. A topic that is known stays so
until all brokers say that it is gone, or that its name belongs to another one: a broker that is cut off answers with the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.context import NodeContext
from holdfast.daemon.server.topics_view import ShownTopic, TakeTopics, TopicQuery, unknown_topic
from holdfast.daemon.topics.look_ups import LookUp, LookUps
from holdfast.gateway.leaders import TopicLeaders
from holdfast.gateway.settings import is_literal, match_topics
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import RESERVED_IDS, TOPICS_PER_REQUEST_MAX, TopicRef, TopicSummary, is_topic_name
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topics.metadata_client import MetadataClient, Summaries

_log = structlog.get_logger(__name__)

_BACKOFF_FIRST_MS: Final = 100
_LINES_PER_MINUTE_MAX: Final = 1
#: Topics that one line names.
_NAMED_MAX: Final = 20
#: Topics of a listing that are looked at in one turn of the loop.
_TOPICS_PER_TURN: Final = 1_000
#: Errors of a topic that its clients should see.
_PASSED_ON: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)


class LookUpBounds(NamedTuple):
    """Bounds of look-ups that clients cause."""

    #: Names and ids that wait; then the address that waits for the most of them is answered that it try again.
    waiting_max: int = 10_000
    #: Those of one request, as many as it may name.
    per_request_max: int = 1_000
    #: How long a client waits for a broker before it is answered that it try again; its own patience is longer.
    timeout_ms: int = 5_000
    #: Shortest time between two look-ups, so brokers get ten in a second at most.
    pause_ms: int = 100
    #: Names that share groups are subscribed to and that are not there, and how long after the first of them they are looked up: a
    #: topic that is made is there for its consumers as soon as in Kafka, at their next heartbeat but one.
    missed_max: int = 1_000
    missed_pause_ms: int = 2_000
    #: Longest pause after one that failed.
    backoff_max_ms: int = 10_000


class TopicSource(Protocol):
    """The Kafka cluster, as it is queried."""

    async def summarize(self, topics: Collection[TopicRef] | None) -> Summaries:
        """Return topics as one broker knows them, None: all; raises ConnectionFailed."""

    async def confirm(self, topic_ids: Mapping[str, bytes]) -> Mapping[str, TopicSummary]:
        """Return topics, by names that had these ids, as all brokers know them; those about which they do not agree are left out.

        Raises ConnectionFailed.
        """

    def move_on(self) -> None:
        """Query another broker next."""

    def close(self) -> None:
        """Close the connection."""


class ClusterTopics:
    """The topics of a real cluster (`TopicSource`)."""

    def __init__(self, client: MetadataClient) -> None:
        self._cluster = client.cluster
        self.summarize = client.summarize
        self.move_on = client.move_on
        self.close = client.close

    async def confirm(self, topic_ids: Mapping[str, bytes]) -> Mapping[str, TopicSummary]:
        """See `TopicSource.confirm`."""
        cluster = self._cluster
        for name, topic_id in topic_ids.items():
            cluster.want(name, topic_id)
        try:
            uncertain = await cluster.look_up(topic_ids)
            views = {name: cluster.topics[name] for name in topic_ids if name not in uncertain}
        finally:
            for name in topic_ids:
                cluster.forget(name)
        return {name: view.summary for name, view in views.items()}


class _Waiting(NamedTuple):
    """A client that waits for a look-up."""

    timer: asyncio.TimerHandle
    #: Errors that brokers gave so far.
    errors: dict[TopicRef, int]


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
        #: Those without wildcards, which are names.
        self._names = frozenset(filter(is_literal, patterns))
        self._wildcards = {each: match_topics((each,)).fullmatch for each in patterns if each not in self._names}
        self._is_match = match_topics(self._wildcards).fullmatch
        self._own_topics = frozenset(own_topics)
        self._source = source
        self._limiter, self._internal_errors = context.limiter, context.internal_errors
        self._cluster_id = cluster_id
        self._refresh_interval_s = refresh_interval_ms / 1_000
        self._random = random
        self._bounds = bounds
        self.log_partition = leaders.log_partition
        self._by_name: dict[str, ShownTopic] = {}
        self._by_id: dict[bytes, ShownTopic] = {}
        #: Known topics of which one broker said that they are gone, or others.
        self._doubted: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._listeners: list[Callable[[Collection[str]], None]] = []
        self._look_ups = LookUps[TopicRef](bounds.waiting_max, bounds.per_request_max)
        self._waiting: dict[LookUp[TopicRef], _Waiting] = {}
        self._is_wanted = asyncio.Event()
        #: All topics were looked up once.
        self._is_loaded = False
        #: Clients that wait for that, each with the end of its patience.
        self._until_loaded: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._unmatched: frozenset[str] = frozenset()
        #: On the loop's clock.
        self._refresh_s = 0.0
        #: Names that this node looked for in vain, and when they are looked up.
        self._missed: dict[str, None] = {}
        self._missed_s = inf
        #: Why the last query failed; empty after one that succeeded.
        self.problem = "no broker has answered yet"

    def on_change(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a listener with the names of topics that came, went, were made again, or got more partitions."""
        self._listeners.append(listener)

    def topic(self, name: str) -> ShownTopic | None:
        """Return a topic that is offered and known; None: it is not, maybe not yet, and it is looked up soon.

        Share groups name topics that are still to be made, again with each heartbeat.
        """
        topic = self._by_name.get(name)
        if topic is None and len(self._missed) < self._bounds.missed_max and self.may_offer(name):
            if not self._missed:
                self._missed_s = asyncio.get_running_loop().time() + self._bounds.missed_pause_ms / 1_000
                self._is_wanted.set()
            self._missed[name] = None
        return topic

    def topic_by_id(self, topic_id: bytes) -> ShownTopic | None:
        """Return a topic that is offered and known; None: it is not, maybe not yet."""
        return self._by_id.get(topic_id)

    def may_offer(self, name: str) -> bool:
        """Tell whether a topic of this name would be offered, if it is there and not internal."""
        is_match = name in self._names or self._is_match(name) is not None
        return is_match and is_topic_name(name) and name not in self._own_topics

    # ---- what clients ask ------------------------------------------------------------------------------------------

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        """See `TopicsView.find`."""
        if queries is None:
            self._when_loaded(lambda: take(list(self._by_name.values())))
            return
        unknown = tuple(dict.fromkeys(ref for query in queries if (ref := self._find_unknown(query)) is not None))
        if unknown:
            self._look_up(unknown, queries, caller, take)
        else:
            take([self._answer(query, {}) for query in queries])

    def _find_unknown(self, query: TopicQuery) -> TopicRef | None:
        """Return what to look up for a query; None: nothing."""
        name, topic_id = query
        if name is not None:
            return name if name not in self._by_name and self.may_offer(name) else None
        return topic_id if topic_id not in self._by_id and topic_id not in RESERVED_IDS else None

    def _answer(self, query: TopicQuery, errors: Mapping[TopicRef, int]) -> ShownTopic:
        """Return the answer to a query, by what is known, and by the errors that brokers just gave."""
        name, topic_id = query
        known = self._by_id.get(topic_id) if name is None else self._by_name.get(name)
        if known is not None:
            return known
        ref = self._find_unknown(query)
        if ref is None:
            return unknown_topic(query)
        return unknown_topic(query, errors.get(ref, ErrorCode.LEADER_NOT_AVAILABLE))

    def _look_up(
        self, refs: Collection[TopicRef], queries: Sequence[TopicQuery], caller: str, take: TakeTopics
    ) -> None:
        loop, errors = asyncio.get_running_loop(), dict[TopicRef, int]()

        def answer(left: Collection[TopicRef]) -> None:
            take([self._answer(query, errors) for query in queries])

        look_up, dropped = self._look_ups.add(caller, refs, answer)
        for each in dropped:
            self._finish(each)
        if look_up is None:
            loop.call_soon(answer, ())
            return
        timer = loop.call_later(self._bounds.timeout_ms / 1_000, self._give_up, look_up)
        self._waiting[look_up] = _Waiting(timer, errors)
        self._is_wanted.set()

    def _give_up(self, look_up: LookUp[TopicRef]) -> None:
        self._look_ups.remove(look_up)
        self._finish(look_up)

    def _finish(self, look_up: LookUp[TopicRef]) -> None:
        """Answer the client that waits, not before the loop's next turn."""
        self._waiting.pop(look_up).timer.cancel()
        asyncio.get_running_loop().call_soon(look_up.then, look_up.left())

    def _when_loaded(self, work: Callable[[], None]) -> None:
        if self._is_loaded:
            work()
            return
        loop = asyncio.get_running_loop()
        self._until_loaded[work] = loop.call_later(self._bounds.timeout_ms / 1_000, self._stop_waiting, work)

    def _stop_waiting(self, work: Callable[[], None]) -> None:
        self._until_loaded.pop(work).cancel()
        work()

    def answer_waiting(self) -> None:
        """Answer all clients that wait, so that they try again at another node."""
        for look_up in tuple(self._waiting):
            self._give_up(look_up)
        for work in tuple(self._until_loaded):
            self._stop_waiting(work)

    # ---- what brokers say ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Query the Kafka cluster for ever; ends by being cancelled, and then closes the connection."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_BACKOFF_FIRST_MS, self._bounds.backoff_max_ms, self._random.random)
        try:
            while True:
                due_s = min(self._refresh_s, self._missed_s)
                if not self._look_ups and loop.time() < due_s:
                    self._is_wanted.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(due_s):
                            await self._is_wanted.wait()
                    continue
                succeeded = not self._look_ups or await self._attempt(self._query_some)
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
            self._tell_changes()

    def _tell_changes(self) -> None:
        changed, self._changed = self._changed, set()
        if changed:
            for listener in self._listeners:
                listener(changed)

    async def _query_some(self) -> None:
        """Look up what clients wait for."""
        query = self._look_ups.next_query(TOPICS_PER_REQUEST_MAX)
        # Brokers leave out names that come with ids.
        for refs in ([ref for ref in query if isinstance(ref, str)], [ref for ref in query if isinstance(ref, bytes)]):
            if not refs:
                continue
            said = self._check(await self._source.summarize(refs))
            for topic in said:
                self._learn(topic)
            by_ref = {topic.name: topic for topic in said} | {topic.topic_id: topic for topic in said}
            for ref in refs:
                for look_up in query[ref]:
                    if look_up in self._waiting and ref in by_ref:
                        self._waiting[look_up].errors[ref] = _error_for_clients(by_ref[ref])
        await self._confirm()
        self._tell_changes()
        for look_up in self._look_ups.answered(query):
            self._finish(look_up)

    async def _query_missed(self) -> None:
        """Look up what this node looked for in vain; what is still missing is looked for again."""
        missed, self._missed, self._missed_s = tuple(self._missed), {}, inf
        for names in _parts(missed):
            for topic in self._check(await self._source.summarize(names)):
                self._learn(topic)
        await self._confirm()

    async def _refresh(self) -> None:
        """Look up all topics that can be offered."""
        listed = [topic async for topic in self._list(None if self._wildcards else sorted(self._names))]
        found = set()
        for number, topic in enumerate(listed):
            if self._learn(topic):
                found.add(topic.name)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._doubted |= {name: topic.topic_id for name, topic in self._by_name.items() if name not in found}
        await self._confirm()
        self._tell_changes()
        self._is_loaded = True
        for work in tuple(self._until_loaded):
            self._stop_waiting(work)
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

    def _learn(self, topic: TopicSummary) -> bool:
        """Learn what one broker says of a topic; returns whether that is one to offer."""
        name, topic_id, partition_count, is_internal, error_code = topic
        if error_code or is_internal or topic_id in RESERVED_IDS or not self.may_offer(name):
            return False
        known = self._by_name.get(name)
        if known is not None and known.topic_id != topic_id:
            self._doubted[name] = known.topic_id
        elif known is None or known.partition_count < partition_count:  # partitions are never taken away
            self._keep(ShownTopic(name, topic_id, partition_count))
        return True

    async def _confirm(self) -> None:
        """Ask all brokers about what is doubted, and believe what they agree on."""
        doubted, self._doubted = self._doubted, {}
        for names in _parts(tuple(doubted)):
            said = await self._source.confirm({name: doubted[name] for name in names})
            for name, topic in said.items():
                if topic.is_missing or (not topic.error_code and topic.topic_id != doubted[name]):
                    self._drop(name)
                self._learn(topic)

    def _keep(self, topic: ShownTopic) -> None:
        assert topic.name is not None
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._changed.add(topic.name)

    def _drop(self, name: str) -> None:
        del self._by_id[self._by_name.pop(name).topic_id]
        self._changed.add(name)

    # ---- lines -----------------------------------------------------------------------------------------------------

    async def _report_unmatched(self, listed: Sequence[TopicSummary]) -> None:
        """Say which patterns match no topic, and which topics there are."""
        unmatched = self._names.difference(self._by_name)
        for pattern, is_match in self._wildcards.items():
            if not any(map(is_match, self._by_name)):
                unmatched |= {pattern}
            await asyncio.sleep(0)
        if not unmatched or unmatched == self._unmatched:
            self._unmatched = unmatched
            return
        if not self._wildcards:
            listed = [topic async for topic in self._list(None)]
        left_out = self._limiter.admit("gateway_topics_unmatched", _LINES_PER_MINUTE_MAX)
        if left_out is None:
            return
        self._unmatched = unmatched
        names = sorted(topic.name for topic in listed if not topic.is_internal and topic.name not in self._own_topics)
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


def _error_for_clients(topic: TopicSummary) -> int:
    """Return the error of a topic that is not offered, as a client may hear it; 0 stands for one that is unknown."""
    if topic.error_code in _PASSED_ON:
        return topic.error_code
    return ErrorCode.LEADER_NOT_AVAILABLE if topic.error_code else ErrorCode.NONE


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield what one request each asks for."""
    return (names[start : start + TOPICS_PER_REQUEST_MAX] for start in range(0, len(names), TOPICS_PER_REQUEST_MAX))
