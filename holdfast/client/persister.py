"""The five share-state calls, each for one share partition or for many of one group.

A call for many goes to each coordinator as few requests as possible. What may succeed later (the coordinator moved, is
loading, could not be reached) is tried again with back-off and jitter; every other error is final. A call repeated after
a lost answer may have taken effect twice, which these calls bear.

The forms for many return one result per share partition of the call, in that order, errors included. The single forms
raise `ShareStateError`.

A topic is given by its name or by its id of 16 bytes. All calls raise `AdminRefused` for a name that the cluster does not know.

Source: KIP-932; what the persisters of Apache Kafka 4.3.1 and 4.4.0 try again.
"""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import (
    DeletePartition,
    DeleteResult,
    InitializePartition,
    InitializeResult,
    PartitionRequest,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    SummaryPartition,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.client.connection import Address
from holdfast.client.coordinator import Coordinators, Refusal
from holdfast.client.errors import (
    AdminRefused,
    ClientError,
    RequestTimedOut,
    ShareStateError,
)
from holdfast.client.nodes import Nodes
from holdfast.client.settings import ClientSettings
from holdfast.client.topic_ids import TopicIds
from holdfast.kafka.protocol.error_codes import COORDINATOR_LOST, SHARE_STATE_RETRIABLE, ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.topic_ids import TOPIC_ID_SIZE
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey

#: Share of the back-off by which it is made longer or shorter at random.
_JITTER: Final = 0.2

_Request = TypeVar("_Request", bound=PartitionRequest)
_Result = TypeVar("_Result", InitializeResult, ReadResult, WriteResult, DeleteResult, SummaryResult)


class _Kind(NamedTuple):
    api_key: int
    name: str
    make_result: Callable[[int, str | None], PartitionResult]


_INITIALIZE: Final = _Kind(share_state.INITIALIZE, "InitializeShareGroupState", InitializeResult)
_READ: Final = _Kind(share_state.READ, "ReadShareGroupState", ReadResult)
_WRITE: Final = _Kind(share_state.WRITE, "WriteShareGroupState", WriteResult)
_DELETE: Final = _Kind(share_state.DELETE, "DeleteShareGroupState", DeleteResult)
_SUMMARY: Final = _Kind(share_state.SUMMARY, "ReadShareGroupStateSummary", SummaryResult)


class Persister:
    """Share-state calls, each to the node that coordinates the share partition."""

    def __init__(
        self,
        nodes: Nodes,
        settings: ClientSettings,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        randomness: random.Random | None = None,
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._coordinators = Coordinators(nodes, settings)
        self._topic_ids = TopicIds(nodes, settings)
        self._sleep = sleep
        self._random = randomness or random.Random()

    # For one share partition.

    async def initialize(
        self, group_id: str, topic: str | bytes, partition: int, state_epoch: int, start_offset: int
    ) -> InitializeResult:
        """Create the state of a share partition, or raise its state epoch; start offset -1 is "not decided yet".

        Raises:
            ShareStateError: the coordinator refused, or could not be reached.
        """
        requested = InitializePartition(partition, state_epoch, start_offset)
        return _success(await self.initialize_many(group_id, [(topic, requested)]))

    async def read(self, group_id: str, topic: str | bytes, partition: int, leader_epoch: int) -> ReadResult:
        """Return the state of a share partition and raise its leader epoch; one that is known already raises nothing.

        Raises:
            ShareStateError: the coordinator refused, or could not be reached.
        """
        return _success(await self.read_many(group_id, [(topic, ReadPartition(partition, leader_epoch))]))

    async def write(
        self,
        group_id: str,
        topic: str | bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        state_batches: Iterable[StateBatch],
        delivery_complete_count: int = -1,
    ) -> WriteResult:
        """Record what became of ranges of offsets.

        A start offset that is below the stored one, as -1 is, leaves it as it is, and the count of what is complete too.

        Raises:
            ShareStateError: the coordinator refused, or could not be reached.
        """
        batches = tuple(state_batches)
        requested = WritePartition(partition, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
        return _success(await self.write_many(group_id, [(topic, requested)]))

    async def delete(self, group_id: str, topic: str | bytes, partition: int) -> DeleteResult:
        """Delete the state of a share partition.

        Raises:
            ShareStateError: the coordinator refused, or could not be reached.
        """
        return _success(await self.delete_many(group_id, [(topic, DeletePartition(partition))]))

    async def read_summary(
        self, group_id: str, topic: str | bytes, partition: int, leader_epoch: int = -1
    ) -> SummaryResult:
        """Return epochs and start offset of a share partition; the leader epoch is ignored, as Kafka does.

        Raises:
            ShareStateError: the coordinator refused, or could not be reached.
        """
        return _success(await self.read_summary_many(group_id, [(topic, SummaryPartition(partition, leader_epoch))]))

    # For many share partitions of one group: (topic, request) in, results in the same order out.

    async def initialize_many(
        self, group_id: str, requested: Sequence[tuple[str | bytes, InitializePartition]]
    ) -> list[InitializeResult]:
        """Initialize share partitions."""
        return cast("list[InitializeResult]", await self._call(_INITIALIZE, group_id, requested))

    async def read_many(
        self, group_id: str, requested: Sequence[tuple[str | bytes, ReadPartition]]
    ) -> list[ReadResult]:
        """Read share partitions."""
        return cast("list[ReadResult]", await self._call(_READ, group_id, requested))

    async def write_many(
        self, group_id: str, requested: Sequence[tuple[str | bytes, WritePartition]]
    ) -> list[WriteResult]:
        """Write share partitions."""
        taken = [(topic, each._replace(state_batches=_batches(each.state_batches))) for topic, each in requested]
        return cast("list[WriteResult]", await self._call(_WRITE, group_id, taken))

    async def delete_many(
        self, group_id: str, requested: Sequence[tuple[str | bytes, DeletePartition]]
    ) -> list[DeleteResult]:
        """Delete share partitions."""
        return cast("list[DeleteResult]", await self._call(_DELETE, group_id, requested))

    async def read_summary_many(
        self, group_id: str, requested: Sequence[tuple[str | bytes, SummaryPartition]]
    ) -> list[SummaryResult]:
        """Read the summaries of share partitions."""
        return cast("list[SummaryResult]", await self._call(_SUMMARY, group_id, requested))

    # How a call is made.

    async def _call(
        self, kind: _Kind, group_id: str, requested: Sequence[tuple[str | bytes, _Request]]
    ) -> list[PartitionResult]:
        for topic, _ in requested:
            if isinstance(topic, bytes) and len(topic) != TOPIC_ID_SIZE:
                raise ValueError(f"A topic id has {TOPIC_ID_SIZE} bytes, not {len(topic)}; a name is a string.")
        call = _Call(kind, group_id, requested)
        # When no attempt is left, the results stay as they are.
        for retry in range(self._settings.attempts_max):
            if retry:
                await self._back_off(retry)
            if not await self._attempt(call):
                break
        return [result for result in call.results if result is not None]

    async def _attempt(self, call: _Call) -> bool:
        """Send requests for all that has no final result yet; return whether another attempt makes sense."""
        open_indexes = call.open_indexes()
        try:
            if call.topic_names:
                call.set_keys({name: await self._topic_ids.find(name) for name in call.topic_names})
            keys = [call.keys[index] for index in open_indexes]
            coordinators = await self._coordinators.find(keys)
        except (ClientError, MalformedBody) as error:
            if isinstance(error, ClientError) and not error.is_retriable:
                raise
            call.fail(open_indexes, error)
            return True
        by_address: dict[Address, list[int]] = {}
        for index, coordinator in zip(open_indexes, coordinators, strict=True):
            if isinstance(coordinator, Refusal):
                call.results[index] = call.kind.make_result(*coordinator)
            else:
                by_address.setdefault(coordinator, []).append(index)
        size = self._settings.share_partitions_per_request_max
        requests = [
            self._request(call, address, indexes[start : start + size])
            for address, indexes in by_address.items()
            for start in range(0, len(indexes), size)
        ]
        if len(requests) == 1:
            await requests[0]
        else:
            await asyncio.gather(*requests)
        still_open = call.open_indexes()
        self._coordinators.forget(call.keys[index] for index in still_open if call.is_lost(index))
        for index in still_open:
            topic = call.requested[index][0]
            if isinstance(topic, str):
                self._topic_ids.forget(topic)
        return bool(still_open)

    async def _request(self, call: _Call, address: Address, indexes: Sequence[int]) -> None:
        """Send one coordinator a request for the share partitions at `indexes`, and keep its answer."""
        api_key = call.kind.api_key
        try:
            connection = await self._nodes.to(address)
            version = connection.version_of(call.kind.name, api_key, *share_state.VERSIONS[api_key])
            body = state_requests.encode_request(api_key, version, call.request(indexes))
            frame, offset = await connection.request(api_key, version, body)
            response = state_responses.decode_response(api_key, version, frame, offset)
        except (ClientError, MalformedBody) as error:
            if isinstance(error, ClientError) and not error.is_retriable:
                raise
            call.fail(indexes, error)
            return
        answers = {(topic_id, partition): result for topic_id, results in response for partition, result in results}
        absent = call.kind.make_result(ErrorCode.UNKNOWN_SERVER_ERROR, f"The server at {address} left it out.")
        for index in indexes:
            key = call.keys[index]
            call.results[index] = answers.get((key.topic_id, key.partition), absent)

    async def _back_off(self, retry: int) -> None:
        """Wait before an attempt; the number of the first one after a failure is 1."""
        settings = self._settings
        doubled_ms = settings.retry_backoff_ms * 2 ** min(retry - 1, 30)
        wait_ms = min(doubled_ms, settings.retry_backoff_max_ms)
        await self._sleep(wait_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER) / 1_000)


class _Call:
    """One call: what it requests and the results so far."""

    def __init__(self, kind: _Kind, group_id: str, requested: Sequence[tuple[str | bytes, Any]]) -> None:
        self.kind = kind
        self.group_id = group_id
        self.requested = requested
        self.topic_names = {topic for topic, _ in requested if isinstance(topic, str)}
        #: Of the share partitions, in the order of the call; empty until topics given by name have their ids.
        self.keys: list[SharePartitionKey] = []
        if not self.topic_names:
            self.set_keys({})
        #: The latest result of each share partition, None before the first.
        self.results: list[PartitionResult | None] = [None] * len(requested)

    def set_keys(self, topic_ids: Mapping[str, bytes]) -> None:
        """Take the ids of the topics that are given by name."""
        self.keys = [
            SharePartitionKey(self.group_id, topic_ids[topic] if isinstance(topic, str) else topic, partition[0])
            for topic, partition in self.requested
        ]

    def open_indexes(self) -> list[int]:
        """Return where there is no result yet, or one that may be better next time."""
        return [
            index
            for index, result in enumerate(self.results)
            if result is None or (result[0] and result[0] in SHARE_STATE_RETRIABLE)
        ]

    def is_lost(self, index: int) -> bool:
        """Tell whether the result says that another node coordinates the share partition; one that loads it does so itself."""
        result = self.results[index]
        return result is not None and result[0] in COORDINATOR_LOST

    def request(self, indexes: Sequence[int]) -> StateRequest:
        """Return the request for some of the share partitions."""
        topics: dict[bytes, list[PartitionRequest]] = {}
        for index in indexes:
            topics.setdefault(self.keys[index].topic_id, []).append(self.requested[index][1])
        return StateRequest(self.group_id, list(topics.items()))

    def fail(self, indexes: Sequence[int], error: Exception) -> None:
        """Note that no answer came for some of the share partitions."""
        error_code: int = (
            ErrorCode.REQUEST_TIMED_OUT if isinstance(error, RequestTimedOut) else ErrorCode.NETWORK_EXCEPTION
        )
        if isinstance(error, AdminRefused):
            error_code = error.code
        result = self.kind.make_result(error_code, str(error))
        for index in indexes:
            self.results[index] = result


def _batches(given: Iterable[Iterable[int]]) -> tuple[StateBatch, ...]:
    """Return state batches as they are sent, given as any batches of four whole numbers.

    Raises:
        TypeError: one has another number of fields, or a field that is no whole number.
    """
    return tuple(StateBatch(*map(operator.index, batch)) for batch in given)


def _success(results: list[_Result]) -> _Result:
    (result,) = results
    if result.error_code:
        raise ShareStateError(result.error_code, result.error_message)
    return result
