"""What consumer groups committed, fetched from their coordinators and committed there over connections of our own.

librdkafka's calls for groups are used nowhere: it gives back a request to a coordinator twice when the broker goes away meanwhile, which
ends the process (its issue 4605).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.discovery.by_coordinator import ByCoordinator
from holdfast.kafka.discovery.calls import Call
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.discovery.group_offset_calls import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Commit,
    Committer,
    Offsets,
    Place,
    Wanted,
)
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import broker_links
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import GROUP_OFFSETS_RETRIABLE, ErrorCode
from holdfast.metrics.instruments import Counter

G = TypeVar("G", Wanted, Commit)

#: A note is kept where there is a place for it, and a topic that is not there is no reason to wait for it.
_NOTES_RETRIABLE: Final = GROUP_OFFSETS_RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class GroupRefused(Exception):
    """Kafka answered, and would answer the same again: the text names the group, the error and the partitions."""

    def __init__(self, text: str, error_code: int = ErrorCode.NONE) -> None:
        super().__init__(text)
        self.error_code = error_code


class GroupOffsets:
    """Offsets of any groups, for one event loop; who coordinates a group is looked up once, and again when that changes.

    Requests are made one at a time, and each is tried until its time is over.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        timeout_ms: int,
        known_brokers: Callable[[], Iterable[Address]] = tuple,
        throttle_time_ms: Counter | None = None,
    ) -> None:
        """Describe the cluster; nothing is connected before the first request.

        Args:
            options: how to connect.
            timeout_ms: bound of each request, with all its tries and waits.
            known_brokers: returns brokers beside the bootstrap ones.
            throttle_time_ms: counts the pauses that brokers ask for.
        """
        self._timeout_ms = timeout_ms
        self._known_brokers = known_brokers
        self._turn = asyncio.Lock()
        self._who = options.who
        self._links = broker_links(options, timeout_ms, throttle_time_ms=throttle_time_ms)
        self._coordinators = Coordinators(self._links)
        self._calls = ByCoordinator(self._links, self._coordinators)

    async def fetch_offsets(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset that the group committed for each of these partitions that has one.

        Raises:
            GroupRefused: Kafka refuses to answer.
            ConnectionFailed: there was no answer in time.
        """
        wanted = Wanted(group, tuple((topic, partition) for partition in partitions))
        offsets = await self._request(OFFSET_FETCH, group, wanted, "return the committed offsets", "Describe", topic)
        return {partition: offset for (_, partition), offset in offsets.committed.items()}

    async def commit_offsets(self, group: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Commit, for a group without members, the offset to be read next of each of these partitions.

        Raises:
            GroupRefused: Kafka refuses, of some partitions at least.
            ConnectionFailed: it was not acknowledged in time; whether it was committed is not known.
        """
        commit = Commit(group, tuple(((topic, partition), offset) for partition, offset in next_offsets.items()))
        offsets = await self._request(OFFSET_COMMIT, group, commit, "acknowledge the offsets", "Read", topic)
        if left_out := next_offsets.keys() - {partition for _, partition in offsets.answered}:
            listed = ", ".join(map(str, sorted(left_out)))
            raise GroupRefused(f"The answer for group {group} leaves out partitions {listed}.")

    async def fetch_note(self, group: str, place: Place) -> str:
        """Return the note that was committed with the offset of a place, as it came; empty: none was.

        Raises: as `fetch_offsets`.
        """
        wanted, topic = Wanted(group, (place,)), place[0]
        offsets = await self._request(
            OFFSET_FETCH, group, wanted, "return what it keeps", "Describe", topic, _NOTES_RETRIABLE
        )
        return offsets.notes.get(place, "")

    async def commit_note(self, group: str, place: Place, offset: int, note: str, committer: Committer) -> None:
        """Commit an offset of a place with a note, as a member of the group.

        Raises:
            GroupRefused: Kafka refuses; there is no such place, or the group does not know the member in this generation.
            ConnectionFailed: it was not acknowledged in time; whether it was committed is not known.
        """
        commit, topic = Commit(group, ((place, offset),), note, committer), place[0]
        offsets = await self._request(
            OFFSET_COMMIT, group, commit, "acknowledge an offset to keep", "Read", topic, _NOTES_RETRIABLE
        )
        if place not in offsets.answered:
            raise GroupRefused(f"The answer for group {group} leaves out topic {topic}.")

    def close(self) -> None:
        """Close every connection, for good."""
        self._links.close()

    async def _request(
        self,
        call: Call[G, Offsets],
        group: str,
        item: G,
        purpose: str,
        operation: str,
        topic: str,
        retriable: Collection[int] = GROUP_OFFSETS_RETRIABLE,
    ) -> Offsets:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timeout_ms / 1_000
        failure = f"the coordinator of group {group} did not {purpose} within {self._timeout_ms} ms"
        try:
            async with asyncio.timeout_at(ends_s):
                await self._turn.acquire()
        except TimeoutError:
            raise ConnectionFailed(f"{failure}: the requests before took as long") from None
        try:
            self._links.learn(self._known_brokers())
            left_s = max(0.0, ends_s - loop.time())
            found = await self._calls.call(call, _key_of, [item], retriable, left_s)
        finally:
            # But for those to coordinators: the answer that others owe us now would come too late.
            self._links.keep(self._coordinators.addresses())
            self._turn.release()
        offsets = found[item]
        if not offsets.errors:
            return offsets
        if offsets.error_code() in retriable:
            raise ConnectionFailed(f"{failure}: {offsets.problem()}")
        code = offsets.error_code()
        # Committing needs Read of both, and fetching Describe of both.
        refused = f"topic {topic}" if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else f"group {group}"
        problem = f"{offsets.problem().rstrip('.')}{acl_remedy(code, operation, refused, self._who())}"
        raise GroupRefused(f"Kafka refuses the offsets of group {group}: {problem}.", code)


def _key_of(item: Wanted | Commit) -> Key:
    return Key(KeyType.GROUP, item.group)


class BlockingGroupOffsets:
    """The same for threads without an event loop: each request opens a connection and closes it."""

    def __init__(self, options: ConnectionOptions, timeout_ms: int) -> None:
        """See `GroupOffsets`."""
        self._options = options
        self._timeout_ms = timeout_ms

    def fetch_offsets(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """See `GroupOffsets.fetch_offsets`."""

        async def fetch() -> dict[int, int]:
            offsets = GroupOffsets(self._options, self._timeout_ms)
            try:
                return await offsets.fetch_offsets(group, topic, partitions)
            finally:
                offsets.close()

        return asyncio.run(fetch())

    def commit_offsets(self, group: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        """See `GroupOffsets.commit_offsets`."""

        async def commit() -> None:
            offsets = GroupOffsets(self._options, self._timeout_ms)
            try:
                await offsets.commit_offsets(group, topic, next_offsets)
            finally:
                offsets.close()

        asyncio.run(commit())
