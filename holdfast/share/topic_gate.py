"""Holds a request that names an unknown topic or partition until the cluster was queried for it; lets all others straight through."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

from holdfast.api.results import StateRequest, StateResponse
from holdfast.kafka.metadata import RESERVED_IDS
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey

Respond = Callable[[StateResponse], None]

_NOT_FOUND_OUT = "It could not be found out in time whether the topic has this partition; try again."


class KnownTopics(Protocol):
    """The part of a metadata image that the gate needs."""

    @property
    def topics(self) -> dict[bytes, int]:
        """Return the partition count by topic id."""


class TopicLookup(Protocol):
    """The part of the cluster's metadata that the gate needs."""

    @property
    def image(self) -> KnownTopics | None:
        """Return the newest image."""

    def look_up(
        self, topic_ids: Collection[bytes], caller: str, then: Callable[[Collection[bytes]], None], timeout_ms: int
    ) -> None:
        """Call back when a broker was queried for all of the ids, or in `timeout_ms`; with those for which none was."""


class Service(Protocol):
    """The part of the share service that the gate needs."""

    @property
    def is_active(self) -> bool:
        """Tell whether calls are taken."""

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the log partition that holds `key`."""

    def handle(self, api_key: int, request: StateRequest, respond: Respond, waited_ms: int = 0) -> None:
        """Carry out a share-state call that has waited before."""


class TopicGate:
    """A gate before the share service: a topic made or enlarged a moment ago is found before a call for it is refused.

    Unknown means that a broker said so. If none was queried in time, the answer is a retriable one.
    One answer of a broker ends the look-ups of many requests: each goes on in a turn of its client.
    """

    def __init__(
        self, service: Service, metadata: TopicLookup, write_timeout_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        """Create a gate before `service`.

        Args:
            service: carries out what passes.
            metadata: what is known of topics; a call is held only for what it can look up.
            write_timeout_ms: how long a call may take in all; half of it is left for the write itself.
            clock_ms: monotonic.
        """
        self.partition_for: Callable[[SharePartitionKey], int] = service.partition_for
        self._service = service
        self._metadata = metadata
        self._timeout_ms = max(1, write_timeout_ms // 2)
        self._clock_ms = clock_ms

    def handle(self, api_key: int, request: StateRequest, respond: Respond, caller: str) -> None:
        """Carry out a share-state call of the client at address `caller`, after a look-up where one is needed.

        `respond` is called exactly once.
        """
        image = self._metadata.image
        if image is not None:
            unknown = _find_unknown(request, image.topics)
            if unknown and self._service.is_active:
                then = partial(self._looked_up, api_key, request, respond, self._clock_ms())
                self._metadata.look_up(unknown, caller, then, self._timeout_ms)
                return
        self._service.handle(api_key, request, respond)

    def _looked_up(
        self, api_key: int, request: StateRequest, respond: Respond, began_ms: int, not_queried: Collection[bytes]
    ) -> None:
        if not_queried:
            respond = partial(_respond_in_doubt, respond, frozenset(not_queried))
        request.caller.go_on(partial(self._carry_out, api_key, request, respond, began_ms))

    def _carry_out(self, api_key: int, request: StateRequest, respond: Respond, began_ms: int) -> None:
        self._service.handle(api_key, request, respond, self._clock_ms() - began_ms)


def _find_unknown(request: StateRequest, partition_counts: dict[bytes, int]) -> dict[bytes, None]:
    """Return the topics that are not known, or not known to have the named partitions, in the order of the request."""
    unknown: dict[bytes, None] = {}
    _, topics, _ = request
    for topic_id, partitions in topics:
        count = partition_counts.get(topic_id, 0)
        for each in partitions:
            # By its place: compiled code looks for a field of a named tuple by name.
            if each[0] >= count:
                if topic_id not in RESERVED_IDS:
                    unknown[topic_id] = None
                break
    return unknown


def _respond_in_doubt(respond: Respond, not_queried: frozenset[bytes], response: StateResponse) -> None:
    """Answer so that the caller tries again where a topic is unknown only because no broker was queried for it."""
    respond(
        [
            (
                topic_id,
                [(index, _in_doubt(result)) for index, result in results] if topic_id in not_queried else results,
            )
            for topic_id, results in response
        ]
    )


def _in_doubt(result: Any) -> Any:  # noqa: ANN401 - the result of any of the five calls
    if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return result
    return type(result)(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_FOUND_OUT)
