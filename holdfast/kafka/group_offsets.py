"""What consumer groups committed, fetched from their coordinators and committed there over connections of our own.

librdkafka's calls for groups are used nowhere: it gives back a request to a coordinator twice when the broker goes away meanwhile, which
ends the process (its issue 4605).

Source: Apache Kafka's message schemas FindCoordinator v3, OffsetFetch v7, OffsetCommit v8 (all spoken by brokers from 2.5 to 4.x).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i64
from kio.static.protocol import RequestPayload

from holdfast.kafka.connection import Address, BrokerConnection, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import exchange, exchange_with_any
from holdfast.kafka.protocol.error_codes import COORDINATOR_LOST, GROUP_OFFSETS_RETRIABLE, ErrorCode, error_name

_GROUP_KEY: Final = i8(0)

_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0

R = TypeVar("R", OffsetFetchResponse, OffsetCommitResponse)


class GroupRefused(Exception):
    """Kafka answered, and would answer the same again: the text names the group, the error and the partitions."""


class _Link(NamedTuple):
    """A connection to a coordinator."""

    connection: BrokerConnection
    #: Until then it asks to be left alone, by the loop's clock.
    not_before_s: float


class GroupOffsets:
    """Offsets of any groups, for one event loop; who coordinates a group is looked up once, and again when that changes.

    Requests are made one at a time, and each is tried until its time is over.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        timeout_ms: int,
        known_brokers: Callable[[], Iterable[Address]] = tuple,
    ) -> None:
        """Describe the cluster; nothing is connected before the first request.

        Args:
            options: how to connect.
            timeout_ms: bound of each request, with all its tries and waits.
            known_brokers: returns brokers beside the bootstrap ones.
        """
        self._options = options
        self._timeout_ms = timeout_ms
        self._known_brokers = known_brokers
        self._turn = asyncio.Lock()
        #: By group.
        self._coordinators: dict[str, Address] = {}
        #: To coordinators.
        self._links: dict[Address, _Link] = {}
        self._look_ups = 0

    async def fetch_offsets(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset that the group committed for each of these partitions that has one.

        Raises:
            GroupRefused: Kafka refuses to answer.
            ConnectionFailed: there was no answer in time.
        """
        named = OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions)))
        request = OffsetFetchRequest(group_id=GroupId(group), topics=(named,), require_stable=True)
        response = await self._request(group, request, OffsetFetchResponse, "return the committed offsets")
        return {
            int(each.partition_index): int(each.committed_offset)
            for named_topic in response.topics
            for each in named_topic.partitions
            if each.committed_offset >= 0
        }

    async def commit_offsets(self, group: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Commit, for a group without members, the offset to be read next of each of these partitions.

        Raises:
            GroupRefused: Kafka refuses, of some partitions at least.
            ConnectionFailed: it was not acknowledged in time; whether it was committed is not known.
        """
        named = OffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=""
                )
                for partition, offset in next_offsets.items()
            ),
        )
        request = OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(named,))
        response = await self._request(group, request, OffsetCommitResponse, "acknowledge the offsets")
        answered_for = {int(each.partition_index) for answered in response.topics for each in answered.partitions}
        if left_out := next_offsets.keys() - answered_for:
            raise GroupRefused(f"The answer for group {group} leaves out partitions {_listed(left_out)}.")

    def close(self) -> None:
        """Close every connection; a later request connects again."""
        self._coordinators.clear()
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    async def _request(self, group: str, request: RequestPayload, response_type: type[R], purpose: str) -> R:
        problem, pause_s = "", _PAUSE_FIRST_S
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000), self._turn:
                while True:
                    response, problem = await self._try(group, request, response_type)
                    if response is not None:
                        return response
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        except TimeoutError:
            # What its coordinator says next answers no request any more.
            self._forget(group)
        why = problem or "no answer came"
        raise ConnectionFailed(
            f"the coordinator of group {group} did not {purpose} within {self._timeout_ms} ms: {why}"
        )

    async def _try(self, group: str, request: RequestPayload, response_type: type[R]) -> tuple[R | None, str]:
        """Send a request once; returns the answer, or why there is none yet.

        Raises:
            GroupRefused: another try would get the same answer.
        """
        try:
            address = self._coordinators.get(group)
            if address is None:
                found = await self._find(group)
                if isinstance(found, str):
                    return None, found
                address = self._coordinators[group] = found
            response = await self._exchange(address, request, response_type)
        except ConnectionFailed as failure:
            self._forget(group)
            return None, str(failure)
        errors = _errors_of(response)
        if not errors:
            return response, ""
        text = "; ".join(f"{error_name(code)}{where}" for code, where in errors.items())
        if not errors.keys() <= GROUP_OFFSETS_RETRIABLE:
            raise GroupRefused(f"Kafka refuses the offsets of group {group}: {text}.")
        if not errors.keys().isdisjoint(COORDINATOR_LOST):
            self._forget(group)
        return None, text

    async def _find(self, group: str) -> Address | str:
        """Return where the coordinator of a group is, or why no broker can say so yet.

        Raises:
            GroupRefused: another try would get the same answer.
            ConnectionFailed: no broker answered.
        """
        addresses = list(dict.fromkeys((*self._known_brokers(), *self._options.bootstrap)))
        first = self._look_ups % len(addresses)
        self._look_ups += 1
        request = FindCoordinatorRequest(key=group, key_type=_GROUP_KEY)
        turned = addresses[first:] + addresses[:first]
        found = await exchange_with_any(turned, self._options, self._timeout_ms, request, FindCoordinatorResponse)
        if int(found.error_code) == ErrorCode.NONE:
            return found.host, int(found.port)
        text = f"{error_name(found.error_code.value)} {found.error_message or ''}".strip()
        if found.error_code.value not in GROUP_OFFSETS_RETRIABLE:
            raise GroupRefused(f"Kafka does not name the coordinator of group {group}: {text}.")
        await asyncio.sleep(found.throttle_time.total_seconds())
        return text

    async def _exchange(self, address: Address, request: RequestPayload, response_type: type[R]) -> R:
        loop = asyncio.get_running_loop()
        link = self._links.get(address)
        if link is None or not link.connection.is_open:
            not_before_s = 0.0 if link is None else link.not_before_s
            connection = await BrokerConnection.open(address, self._options, self._timeout_ms)
            link = self._links[address] = _Link(connection, not_before_s)
        await asyncio.sleep(max(0.0, link.not_before_s - loop.time()))
        response = await exchange(link.connection, request, response_type)
        if response.throttle_time > timedelta(0):
            self._links[address] = link._replace(not_before_s=loop.time() + response.throttle_time.total_seconds())
        return response

    def _forget(self, group: str) -> None:
        address = self._coordinators.pop(group, None)
        if address is not None and address not in self._coordinators.values() and address in self._links:
            self._links[address].connection.close()
            if self._links[address].not_before_s <= asyncio.get_running_loop().time():
                del self._links[address]


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


def _errors_of(response: OffsetFetchResponse | OffsetCommitResponse) -> dict[int, str]:
    """Return the errors of an answer, each with the partitions that it is about; of the whole group, with an empty text."""
    if isinstance(response, OffsetFetchResponse) and int(response.error_code) != ErrorCode.NONE:
        return {response.error_code.value: ""}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for topic in response.topics:
        for each in topic.partitions:
            if int(each.error_code) != ErrorCode.NONE:
                found[each.error_code.value].append(int(each.partition_index))
    return {code: f" for partitions {_listed(partitions)}" for code, partitions in found.items()}


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
