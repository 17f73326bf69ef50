"""A share-state call on its way from the wire to the service and back.

A small request is decoded, carried out and answered in one step each. A large one is carried out in parts of some share
partitions: the service sees each part as a request, in order, and the answers of the parts become one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import (
    DeleteResult,
    InitializeResult,
    PartitionRequest,
    PartitionResult,
    ReadResult,
    StateRequest,
    StateResponse,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.server.find_coordinator import KeyRefused
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Body, Request, Respond, Steps
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.errors import InvalidKey
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, SharePartitionKey, is_group_id_too_long, parse_key

#: How much the service takes on at once, in share partitions and in state batches.
_PARTITIONS_PER_PART: Final = 64
_BATCHES_PER_PART: Final = 1_000
#: Parts that may be in flight: what waits for one event, such as a topic's look-up, goes on in one turn of the loop.
_PARTS_MAX: Final = 8
#: The most that an answer says of a share partition, state batches excepted: topic, fields, and an error's text.
_ENTRY_BYTES_MAX: Final = 256
_RESULTS: Final[dict[int, Callable[[int, str], PartitionResult]]] = {
    share_state.INITIALIZE: InitializeResult,
    share_state.READ: ReadResult,
    share_state.WRITE: WriteResult,
    share_state.DELETE: DeleteResult,
    share_state.SUMMARY: SummaryResult,
}
#: Type of the keys of share partitions in FindCoordinator.
KEY_TYPE: Final = 2
#: A group id, a topic id with its padding, a partition, and what separates and ends them.
_KEY_CHARS_MAX: Final = GROUP_ID_BYTES_MAX + 64
_GROUP_ID_TOO_LONG: Final = f"the group id has more than {GROUP_ID_BYTES_MAX} bytes"
#: An answer with more state batches than this is encoded in steps, when it is the next to leave.
_BATCHES_AT_ONCE_MAX: Final = 500

#: Share partitions of one request, state batches of one share partition, and those of one request. A broker asks for the partitions
#: of a few topics, and keeps 10,000 records of a share partition in flight at most; more would hold the loop for too long.
REQUEST_BOUNDS: Final = state_requests.Bounds(20_000, 10_000, 100_000)


class ShareCalls(Protocol):
    """The service of the five share-state calls."""

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], caller: str
    ) -> None:
        """Carry out a call of API key 83 to 87 for the client at address `caller`.

        `respond` is called once, maybe before this returns.
        """

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the log partition of a share partition.

        Raises:
            NotAvailable: before start-up and after shutdown.
        """


class ShareAnswers:
    """The answers to the five share-state calls."""

    def __init__(
        self, service: ShareCalls, authorizer: Authorizer, bounds: state_requests.Bounds = REQUEST_BOUNDS
    ) -> None:
        self._service = service
        self._authorizer = authorizer
        self._bounds = bounds

    def answer(self, request: Request, respond: Respond) -> Steps | None:
        """Answer a call; returns the steps that are left of it, None when it is begun.

        Raises:
            MalformedBody: the body does not follow its API; from a step, too.
        """
        return answer(self._service, self._authorizer, self._bounds, request, respond)


class ShareKeys:
    """Share partition keys, as FindCoordinator names them (`find_coordinator.KeyType`)."""

    def __init__(self, service: ShareCalls) -> None:
        self.first_version = 6
        self.state_name = "share state"
        self.partition_for: Callable[[SharePartitionKey], int] = service.partition_for

    def parse(self, text: str) -> tuple[str, SharePartitionKey]:
        """Return the group of a share partition, and the share partition.

        Raises:
            KeyRefused: the text is no key, or its group id is too long.
        """
        if len(text) > _KEY_CHARS_MAX:
            raise KeyRefused(_GROUP_ID_TOO_LONG)
        try:
            key = parse_key(text)
        except InvalidKey as error:
            raise KeyRefused(error.reason) from None
        if is_group_id_too_long(key.group_id):
            raise KeyRefused(_GROUP_ID_TOO_LONG)
        return key.group_id, key


def answer(
    service: ShareCalls, authorizer: Authorizer, bounds: state_requests.Bounds, request: Request, respond: Respond
) -> Steps | None:
    """See `ShareAnswers.answer`."""
    if len(request.frame) > SMALL_FRAME_BYTES:
        return _answer_in_steps(service, authorizer, bounds, request, respond)
    api_key, version = request.api_key, request.api_version
    decoded = state_requests.decode_request(api_key, version, request.frame, request.body_offset, bounds, request)
    group_id, topics, _ = decoded
    if authorizer.may_call(request, api_key, group_id):
        service.handle(api_key, decoded, partial(_respond, request, respond), request.client_address)
    else:
        _respond(request, respond, _deny(request, topics, authorizer))
    return None


def _deny(
    request: Request, topics: list[tuple[bytes, list[PartitionRequest]]], authorizer: Authorizer
) -> StateResponse:
    """Return the answer to a client that may not do this to the group: an error of each share partition, none looked at."""
    why = authorizer.needs.explain_denial(request.principal, request.api_key)
    denied = _RESULTS[request.api_key](ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
    named: dict[bytes, dict[int, PartitionResult]] = {}
    for topic_id, partitions in topics:
        named.setdefault(topic_id, {}).update((each.partition, denied) for each in partitions)
    return [(topic_id, list(results.items())) for topic_id, results in named.items()]


def _respond(request: Request, respond: Respond, response: StateResponse) -> None:
    """Hand an answer to the connection, encoded if it is small."""
    body: Body = b""
    if request.is_wanted:
        api_key, version = request.api_key, request.api_version
        try:
            if api_key == share_state.READ and _count_batches(response) > _BATCHES_AT_ONCE_MAX:
                body = state_responses.encode_in_steps(api_key, version, response)
            else:
                body = state_responses.encode_response(api_key, version, response)
        except Exception as bug:  # the connection ends by it
            request.failure = bug
    respond(body)


def _count_batches(response: StateResponse) -> int:
    count = 0
    for _, results in response:
        for _, result in results:
            count += len(result.state_batches)  # type: ignore[union-attr]  # the results of a Read have them
    return count


def _answer_in_steps(
    service: ShareCalls, authorizer: Authorizer, bounds: state_requests.Bounds, request: Request, respond: Respond
) -> Steps:
    api_key, version = request.api_key, request.api_version
    frame, request.frame = request.frame, b""
    decoded = yield from state_requests.decode_in_steps(api_key, version, frame, request.body_offset, bounds, request)
    group_id, topics, _ = decoded
    count = sum(len(partitions) for _, partitions in topics)
    if not authorizer.may_call(request, api_key, group_id):
        request.count_answer_bytes(count * _ENTRY_BYTES_MAX)
        respond(state_responses.encode_in_steps(api_key, version, _deny(request, topics, authorizer)))
        return
    if (
        not group_id
        or not count
        or (api_key != share_state.INITIALIZE and not all(partitions for _, partitions in topics))
    ):
        # Whether anything of it is carried out depends on the whole of it.
        service.handle(api_key, decoded, partial(_respond, request, respond), request.client_address)
        return
    request.count_answer_bytes(count * _ENTRY_BYTES_MAX)
    answers = _Answers(request, respond)
    for part in _split(topics):
        if not request.is_wanted:
            break
        service.handle(api_key, StateRequest(group_id, part, request), answers.expect(), request.client_address)
        yield answers.has_room()
        while request.is_wanted and not answers.has_room():
            yield False
    answers.expect_no_more()


def _split(
    topics: list[tuple[bytes, list[PartitionRequest]]],
) -> Iterator[list[tuple[bytes, list[PartitionRequest]]]]:
    """Yield the share partitions of a request in parts, in order."""
    part: list[tuple[bytes, list[PartitionRequest]]] = []
    partition_count = batch_count = 0
    for topic_id, partitions in topics:
        taken: list[PartitionRequest] = []
        for each in partitions:
            taken.append(each)
            partition_count += 1
            if isinstance(each, WritePartition):
                batch_count += len(each.state_batches)
            if partition_count >= _PARTITIONS_PER_PART or batch_count >= _BATCHES_PER_PART:
                part.append((topic_id, taken))
                yield part
                part, taken, partition_count, batch_count = [], [], 0, 0
        if taken:
            part.append((topic_id, taken))
    if part:
        yield part


class _Answers:
    """The answers of the parts of a request, until all are there."""

    def __init__(self, request: Request, respond: Respond) -> None:
        self._request = request
        self._respond = respond
        self._part_count = 0
        #: By the number of the part.
        self._parts: dict[int, StateResponse] = {}
        #: Answers that are missing, and one for the parts to come.
        self._missing = 1

    def expect(self) -> Callable[[StateResponse], None]:
        """Return what takes the answer of the next part."""
        index = self._part_count
        self._part_count += 1
        self._missing += 1
        return partial(self._take, index)

    def has_room(self) -> bool:
        """Return whether one more part may be in flight."""
        return self._missing <= _PARTS_MAX

    def expect_no_more(self) -> None:
        """Note that no further part will come."""
        self._missing -= 1
        if not self._missing:
            self._finish()

    def _take(self, index: int, response: StateResponse) -> None:
        self._parts[index] = response
        self._missing -= 1
        if not self._missing:
            self._finish()
        elif self._missing == _PARTS_MAX and self._request.wake is not None:
            self._request.wake()

    def _finish(self) -> None:
        request, parts, self._parts = self._request, self._parts, {}
        body: Body = b""
        if request.is_wanted:
            in_order = [parts[index] for index in range(self._part_count)]
            body = _encode(request.api_key, request.api_version, in_order)
        self._respond(body)


def _encode(api_key: int, version: int, parts: list[StateResponse]) -> Iterator[bytes]:
    """Make one answer of those of the parts, in steps.

    A share partition that the request names more than once has the first error, or the last result when all succeeded.
    """
    merged: dict[bytes, dict[int, PartitionResult]] = {}
    for part in parts:
        for topic_id, results in part:
            entries = merged.setdefault(topic_id, {})
            for partition, result in results:
                earlier = entries.get(partition)
                if earlier is None or not earlier.error_code:
                    entries[partition] = result
        yield b""
    yield from state_responses.encode_in_steps(
        api_key, version, [(topic_id, list(entries.items())) for topic_id, entries in merged.items()]
    )
