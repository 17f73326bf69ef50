"""Clients that ask for topics: each is answered by what is known, or waits until brokers were asked, for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.daemon.server.topics_view import ShownTopic, TakeTopics, TopicQuery, unknown_topic
from holdfast.daemon.topics.look_ups import LookUp, LookUps, Query
from holdfast.gateway.topics.known import KnownTopics
from holdfast.gateway.topics.patterns import Offer
from holdfast.kafka.metadata import RESERVED_IDS, TOPICS_PER_REQUEST_MAX, TopicRef, TopicSummary
from holdfast.kafka.protocol.error_codes import ErrorCode

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


class _Waiting(NamedTuple):
    """A client that waits for a look-up."""

    timer: asyncio.TimerHandle
    #: Errors that brokers gave so far.
    errors: dict[TopicRef, int]


class Asking:
    """The clients that wait for brokers.

    Args:
        offer: what may be looked up.
        known: answers at once.
        bounds: of look-ups that clients cause.
        ask_soon: called when brokers must be asked.
    """

    def __init__(self, offer: Offer, known: KnownTopics, bounds: LookUpBounds, ask_soon: Callable[[], None]) -> None:
        self._offer = offer
        self._known = known
        self._bounds = bounds
        self._ask_soon = ask_soon
        self._look_ups = LookUps[TopicRef](bounds.waiting_max, bounds.per_request_max)
        self._waiting: dict[LookUp[TopicRef], _Waiting] = {}
        #: All topics were looked up once.
        self._is_loaded = False
        #: Clients that wait for that, each with the end of its patience.
        self._until_loaded: dict[Callable[[], None], asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        """Tell whether brokers must be asked for somebody."""
        return bool(self._look_ups)

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        """See `TopicsView.find`."""
        if queries is None:
            self._when_loaded(lambda: take(list(self._known.by_name.values())))
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
            return name if name not in self._known.by_name and self._offer.has(name) else None
        return topic_id if topic_id not in self._known.by_id and topic_id not in RESERVED_IDS else None

    def _answer(self, query: TopicQuery, errors: Mapping[TopicRef, int]) -> ShownTopic:
        """Return the answer to a query, by what is known, and by the errors that brokers just gave."""
        name, topic_id = query
        known = self._known.by_id.get(topic_id) if name is None else self._known.by_name.get(name)
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
        self._ask_soon()

    def _give_up(self, look_up: LookUp[TopicRef]) -> None:
        self._look_ups.remove(look_up)
        self._finish(look_up)

    def next_query(self) -> Query[TopicRef]:
        """Return what brokers are asked for now, and who waits for each."""
        return self._look_ups.next_query(TOPICS_PER_REQUEST_MAX)

    def note_errors(
        self,
        query: Query[TopicRef],
        refs: Sequence[TopicRef],
        said: Sequence[TopicSummary],
    ) -> None:
        """Note the errors that a broker gave to those who wait."""
        by_ref: dict[TopicRef, TopicSummary] = {topic.name: topic for topic in said}
        by_ref |= {topic.topic_id: topic for topic in said}
        for ref in refs:
            for look_up in query[ref]:
                if look_up in self._waiting and ref in by_ref:
                    self._waiting[look_up].errors[ref] = _error_for_clients(by_ref[ref])

    def answer(self, query: Query[TopicRef]) -> None:
        """Answer those who waited for a query alone."""
        for look_up in self._look_ups.answered(query):
            self._finish(look_up)

    def note_loaded(self) -> None:
        """Answer those who wait for all topics, and from now on at once."""
        self._is_loaded = True
        for work in tuple(self._until_loaded):
            self._stop_waiting(work)

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


def _error_for_clients(topic: TopicSummary) -> int:
    """Return the error of a topic that is not offered, as a client may hear it; 0 stands for one that is unknown."""
    if topic.error_code in _PASSED_ON:
        return topic.error_code
    return ErrorCode.LEADER_NOT_AVAILABLE if topic.error_code else ErrorCode.NONE
