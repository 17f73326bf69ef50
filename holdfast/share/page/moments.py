"""The moments of a node: made when somebody looks, in slices of the loop's time, and shared by all who look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from itertools import count
from typing import Final

from holdfast.daemon.topics.cluster_queries import ClusterQueries
from holdfast.kafka.topics.topic_ends import PARTITIONS_PER_QUERY_MAX, Ends, TooManyQueries
from holdfast.page.ages import Ages, Wanted
from holdfast.page.moment import End, Moment, Place, Truth, make_place, tell_of_old, true_at_ms
from holdfast.page.source import some_of
from holdfast.page.topic_names import TopicNames
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.page.others import Elsewhere, OtherStates
from holdfast.share.page.paces import Paces
from holdfast.share.page.purse import PART, Purse
from holdfast.share.page.samples import Samples
from holdfast.share.page.states import Held, OwnStates

#: A moment is shown for so long at least, and for longer where there is no time to make another.
_MOMENT_S: Final = 1.0
#: In each moment of this number readers look again: silent brokers, nodes and hand-overs are in none.
_LOOK_AGAIN: Final = 10
#: Part of the loop's time that moments may take; the rest of the purse is for those who look at them.
_PART_OF_MOMENTS: Final = PART / 2
#: Share partitions that are joined with their ends before others have their turn.
_PLACES_PER_SLICE: Final = 100
_UNHEARD: Final = "led by no broker that answers now"
#: Cost of the question for the end of one partition of a topic, in seconds of the loop.
_END_S: Final = 20e-6


class Moments:
    """The share partitions of a node, now or a moment ago."""

    def __init__(
        self,
        states: OwnStates,
        others: OtherStates,
        log_topic_id: bytes,
        cluster: ClusterQueries,
        purse: Purse,
        now_ms: Callable[[], int],
        run_id: str,
        samples: Samples | None = None,
        why_not_ready: Callable[[], Awaitable[str]] | None = None,
        unheard_since_s: Callable[[int], float | None] = lambda log_partition: None,
    ) -> None:
        """Look at nothing yet.

        Args:
            states: of the node.
            others: those of other nodes.
            log_topic_id: of the state topic.
            cluster: answers where topics end, and when records were written.
            purse: pays for what is done.
            now_ms: the time, in ms since 1970.
            run_id: marks the cursors of this run.
            samples: know what the node finished before somebody looked; None: nobody knows.
            why_not_ready: returns what keeps the node from serving; empty if nothing does.
            unheard_since_s: see `LogParts.leader_unheard_since_s`.
        """
        self._states = states
        self._others = others
        self._log_topic_id = log_topic_id
        self._addresses: dict[SharePartitionKey, str] = {}
        self._names = TopicNames()
        self._why_not_ready = why_not_ready
        self._unheard_since_s = unheard_since_s
        self._cluster = cluster
        self._purse = purse
        self._now_ms = now_ms
        self._run_id = run_id
        self._samples = samples
        self._paces = Paces()
        self._held: Held | None = None
        self._places: dict[SharePartitionKey, Place] = {}
        self._ages = Ages(cluster.record_times)
        self._moment: Moment | None = None
        self._made_s = 0.0
        #: Time that was spent for the moment beside its making, by other nodes too.
        self._asked_s = 0.0
        #: How long the moment is as good as a newer one.
        self._fresh_s = _MOMENT_S
        #: All that the moment shows: a moment of an equal one shows the same.
        self._shown: object = None
        self._making: asyncio.Task[Moment] | None = None

    async def moment(self) -> Moment:
        """Return what is known, of this second or of an older one where there was no time."""
        if self._moment is not None:
            age_s = asyncio.get_running_loop().time() - self._made_s
            if age_s < self._fresh_s or self._purse.is_empty:
                return self._moment
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="holdfast-page-moment")
        return await asyncio.shield(self._making)

    def log_end(self, log_partition: int) -> int | None:
        """Return the offset up to which the moment has a log partition; None: it has none of it."""
        return None if self._held is None else self._held.ends.get(log_partition)

    def address_of(self, key: SharePartitionKey) -> str | None:
        """Return the address of the other node that has a share partition; None: this node has it."""
        return self._addresses.get(key)

    async def changed(self) -> AsyncIterator[bool]:
        """Yield when a moment shows something else than the one before, at most once a second; True in each tenth one, changed or not.

        So it tells nothing of changes that a reader may not see.
        """
        shown: object = None
        for number in count(1):
            await self.moment()
            is_due = number % _LOOK_AGAIN == 0
            if self._shown != shown or is_due:
                shown = self._shown
                yield is_due
            await asyncio.sleep(_MOMENT_S)

    def forget(self) -> None:
        """Keep nothing: nobody looks."""
        self._states.forget()
        self._paces = Paces()
        self._ages = Ages(self._cluster.record_times)
        self._held = self._moment = self._shown = None
        self._places = {}

    async def close(self) -> None:
        """End what is being made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])

    async def _make(self) -> Moment:
        self._asked_s = 0.0
        work = self._purse.timed(self._make_moment())
        moment = await work
        self._purse.pay(self._asked_s)
        self._fresh_s = max(_MOMENT_S, (work.paid_s + self._asked_s) / _PART_OF_MOMENTS)
        return moment

    async def _make_moment(self) -> Moment:
        """Make the next moment: the states, and then the ends, so no state of a sound topic lies beyond them."""
        as_of_ms = self._now_ms()
        held = await self._states.collect()
        truths = {number: self._truth(number, as_of_ms) for number in held.ends}
        elsewhere = await self._others.collect()
        self._asked_s += sum(elsewhere.spent_s)
        held.described.update(elsewhere.described)
        missing = held.missing | elsewhere.missing
        ends_elsewhere = await self._ends_elsewhere(elsewhere)
        held.ends.update(ends_elsewhere)
        truths |= dict.fromkeys(ends_elsewhere, Truth(as_of_ms))
        why_not = "" if self._why_not_ready is None else await self._why_not_ready()
        unknown = (
            *([doubt(why_not)] if why_not else ()),
            *some_of(
                [
                    f"Log partition {number} is not shown: {why}. Share groups in it may be missing."
                    for number, why in sorted(missing.items())
                ]
            ),
            *tell_of_old("the state topic", truths),
        )
        self._paces.take(as_of_ms, {} if self._held is None else self._held.described, held.described)
        ends = await self._look_up_ends(held.described.keys())
        places = await self._join(held, ends)
        written = await self._look_up_times(places.values())

        def minutes(group: str, topic_id: bytes, log_partitions: Mapping[int, int]) -> tuple[int | None, ...]:
            seen = self._paces.of_last_minutes(group, topic_id, as_of_ms)
            if self._samples is None or None not in seen:
                return seen
            sampled = self._samples.of_last_minutes(group, topic_id, log_partitions, as_of_ms)
            return tuple(before if count is None else count for count, before in zip(seen, sampled, strict=True))

        shown_ms = true_at_ms(truths.values(), as_of_ms)
        steps = Moment.in_steps(shown_ms, [*places.values()], written, minutes, unknown, self._run_id, truths)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                moment: Moment = end.value
                break
            await asyncio.sleep(0)
        self._held, self._places = held, places
        self._moment, self._made_s = moment, asyncio.get_running_loop().time()
        self._addresses = elsewhere.addresses
        self._shown = held.ends, ends, unknown, written
        return moment

    def _truth(self, log_partition: int, as_of_ms: int) -> Truth:
        """Return of when the states of an own log partition are: nobody knows what was written since the last answer of a broker."""
        since_s = self._unheard_since_s(log_partition)
        return Truth(as_of_ms) if since_s is None else Truth(round(1_000 * since_s), _UNHEARD)

    async def _look_up_ends(self, keys: Collection[SharePartitionKey]) -> dict[SharePartitionKey, End]:
        places = sorted({(key.topic_id, key.partition) for key in keys})
        found: dict[tuple[bytes, int], End] = {}
        for start in range(0, len(places), PARTITIONS_PER_QUERY_MAX):
            wanted: dict[bytes, list[int]] = {}
            asked = places[start : start + PARTITIONS_PER_QUERY_MAX]
            for topic_id, partition in asked:
                wanted.setdefault(topic_id, []).append(partition)
            self._asked_s += _END_S * len(asked)
            try:
                answer = await self._cluster.look_ups.ends.look_up(wanted)
            except TooManyQueries:
                problem = "too many others wait for the ends of topics"
                found |= {place: End(self._names.find(place[0]), Ends(-1, -1, problem)) for place in asked}
                continue
            self._names.take(answer)
            for topic_id, partition in asked:
                found[topic_id, partition] = End(self._names.find(topic_id), answer[topic_id].partitions[partition])
        return {key: found[key.topic_id, key.partition] for key in keys}

    async def _ends_elsewhere(self, elsewhere: Elsewhere) -> dict[int, int]:
        """Return the ends of the log partitions of other nodes, up to which a timeline reads."""
        numbers = {described.row["log_partition"] for described in elsewhere.described.values()}
        if not numbers:
            return {}
        try:
            found = await self._cluster.look_ups.ends.look_up({self._log_topic_id: sorted(numbers)})
        except TooManyQueries:
            return {}
        partitions = found[self._log_topic_id].partitions
        return {number: ends.end_offset for number, ends in partitions.items() if not ends.problem}

    async def _join(self, held: Held, ends: Mapping[SharePartitionKey, End]) -> dict[SharePartitionKey, Place]:
        places, work = dict[SharePartitionKey, Place](), 0
        for key, described in held.described.items():
            place = self._places.get(key)
            if place is None or place.described is not described or place.end != ends[key]:
                place = make_place(key, described, ends[key])
                work += 1
                if work % _PLACES_PER_SLICE == 0:
                    await asyncio.sleep(0)
            places[key] = place
        return places

    async def _look_up_times(self, places: Collection[Place]) -> dict[Wanted, int]:
        oldest = [
            (place.key.topic_id, place.key.partition, offset)
            for place in sorted(places, key=lambda place: -place.row["delivery_count_max"])
            if (offset := place.row["oldest_unfinished_offset"]) is not None
        ]
        await asyncio.sleep(0)
        await self._ages.look_up(oldest)
        await asyncio.sleep(0)
        return {each: at_ms for each in oldest if (at_ms := self._ages.written.get(each)) is not None}


def doubt(why_not_ready: str) -> str:
    """Return the sentence about states of a node that cannot serve: it may be cut off from brokers, and another one may have them."""
    return f"The node is not ready: {why_not_ready.rstrip('.')}. Its numbers may be old."
