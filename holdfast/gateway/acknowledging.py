"""The acknowledgements of one request: all begin at once, and the request is answered when all have an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, final

from holdfast.api.share_consumer import AcknowledgedRange, NamedTopics, find_malformed_batches
from holdfast.delivery.sessions import Place
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Acknowledged
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey

Batches: TypeAlias = Sequence[AcknowledgedRange]

_NOT_LED: Final = Acknowledged(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads the partition; fetch there, its records come again"
)
_NOT_HELD: Final = Acknowledged(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody fetches the partition here; fetch again, its records come again"
)


def merge(topics: NamedTopics) -> dict[Place, Batches]:
    """Return what a request says of each partition; one that it names twice has all that is said of it, in order."""
    merged: dict[Place, Batches] = {}
    for topic_id, partitions in topics:
        for partition, batches in partitions:
            place = (topic_id, partition)
            before = merged.get(place)
            merged[place] = batches if not before else (*before, *batches)
    return merged


@final
class Acknowledgements:
    """The acknowledgements of one request.

    Args:
        finished: called once, when all have an outcome; maybe before `begin` returns.
    """

    __slots__ = ("_finished", "_missing", "outcomes")

    def __init__(self, finished: Callable[[], None]) -> None:
        self._finished: Final = finished
        #: By place; a place that was named without acknowledgements has none.
        self.outcomes: dict[Place, Acknowledged] = {}
        #: Outcomes that are not known yet, and one until all have begun.
        self._missing = 1

    @property
    def are_done(self) -> bool:
        """Tell whether all have an outcome."""
        return not self._missing

    def begin(
        self, leader: Leader, group_id: str, member_id: str, named: Mapping[Place, Batches], *, is_renew: bool
    ) -> None:
        """Hand all of them to their share partitions."""
        for place, batches in named.items():
            if batches:
                self._missing += 1
                self._begin_one(leader, SharePartitionKey(group_id, *place), member_id, batches, is_renew)
        self._end_one()

    def _begin_one(
        self, leader: Leader, key: SharePartitionKey, member_id: str, batches: Batches, is_renew: bool
    ) -> None:
        place = (key.topic_id, key.partition)

        def take(outcome: Acknowledged) -> None:
            self.outcomes[place] = outcome
            self._end_one()

        fault = find_malformed_batches(batches, is_renew)
        if fault is not None:
            take(Acknowledged(*fault))
            return
        led = leader.find(key)
        if led is None:
            take(_NOT_HELD if leader.is_leader(key.topic_id, key.partition) else _NOT_LED)
        else:
            led.acknowledge(member_id, batches, take)

    def _end_one(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._finished()
