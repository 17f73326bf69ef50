"""A server of share consumers that is told a step at a time over connections of ours, and what it answered, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition, NamedTopics
from holdfast.api.share_fetch import BATCH_OPTIMIZED, ShareFetchRequest
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.client.client import parse_address
from holdfast.client.connection import NodeConnection, open_connection
from holdfast.kafka.protocol import api_keys
from tests.real.nodes import PATIENT_CLIENT

#: A topic by the name that a script has for it, and a partition.
Place = tuple[str, int]
Acknowledgements = Mapping[Place, tuple[AcknowledgedRange, ...]]


class Step(NamedTuple):
    """One request of a member, or the end of its connection."""

    #: `fetch`, `acknowledge` or `hang up`.
    kind: str
    member: str
    #: None: the one that is next.
    epoch: int | None = None
    #: Added to the next one.
    epoch_shift: int = 0
    named: tuple[Place, ...] = ()
    said: tuple[tuple[Place, tuple[AcknowledgedRange, ...]], ...] = ()
    forgotten: tuple[Place, ...] = ()
    records_max: int = 500
    batch_size: int = 500
    mode: int = BATCH_OPTIMIZED
    is_renew: bool = False
    version: int = 2
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    #: Each partition is named in a topic of its own, so a request may name either twice.
    is_apart: bool = False


class Part(NamedTuple):
    """The answer about one partition."""

    error_code: int
    acknowledge_error: int
    acquired: tuple[tuple[int, int, int], ...]
    records: bytes

    def __repr__(self) -> str:
        """Return it without the bytes."""
        return f"({self.error_code}, {self.acknowledge_error}, {[tuple(each) for each in self.acquired]}, {len(self.records)} bytes)"


class Outcome(NamedTuple):
    """The answer to a step."""

    error_code: int = 0
    lock_ms: int = 0
    parts: Mapping[Place, Part] = {}

    @property
    def has_records(self) -> bool:
        """Tell whether it locks records."""
        return any(part.acquired for part in self.parts.values())

    def without_empty(self) -> Outcome:
        """Return it without partitions of which it says nothing but their names."""
        parts = {place: part for place, part in self.parts.items() if part != (0, 0, (), b"")}
        return Outcome(self.error_code, self.lock_ms, parts)

    def joined(self, later: Outcome) -> Outcome:
        """Return this answer with the records of a fetch that came after it."""
        parts = dict(self.parts)
        for place, part in later.parts.items():
            before = parts.get(place)
            parts[place] = part if before is None else part._replace(acknowledge_error=before.acknowledge_error)
        return Outcome(later.error_code, later.lock_ms, parts)


class _Member:
    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.connection: NodeConnection | None = None


class Side:
    """A server, as the members of one group see it.

    Args:
        name: of the server.
        address: of the server.
        topic_ids: by the names that scripts have.
        group: of the members.
        member_ids: by the names that scripts have.
    """

    def __init__(
        self, name: str, address: str, topic_ids: Mapping[str, bytes], group: str, member_ids: Mapping[str, str]
    ) -> None:
        self.name: Final = name
        self._address: Final = parse_address(address)
        self._topic_ids: Final = topic_ids
        self._names: Final = {topic_id: name for name, topic_id in topic_ids.items()}
        self._group: Final = group
        self._members: Final = {name: _Member(member_id) for name, member_id in member_ids.items()}

    async def do(self, step: Step, wait_ms: int) -> Outcome:
        """Take a step and return what it led to."""
        member = self._members[step.member]
        if step.kind == "hang up":
            if member.connection is not None:
                member.connection.close()
            member.connection, member.epoch = None, 0
            return Outcome()
        epoch = member.epoch + step.epoch_shift if step.epoch is None else step.epoch
        outcome = await (
            self._fetch(member, step, epoch, wait_ms)
            if step.kind == "fetch"
            else self._acknowledge(member, step, epoch)
        )
        if not outcome.error_code:
            member.epoch = epoch + 1
        return outcome

    async def heartbeat(
        self, member: str, epoch: int, topic_names: Iterable[str] | None = None, rack_id: str | None = None
    ) -> HeartbeatResponse:
        """Send a sign of life."""
        names = None if topic_names is None else list(topic_names)
        request = HeartbeatRequest(self._group, self._members[member].member_id, epoch, rack_id, names)
        connection = await self._connection(self._members[member])
        body = share_group_heartbeat.encode_request(request)
        frame = await connection.request(api_keys.SHARE_GROUP_HEARTBEAT, 1, body)
        return share_group_heartbeat.decode_response(*frame)

    def close(self) -> None:
        """Hang up for all members."""
        for member in self._members.values():
            if member.connection is not None:
                member.connection.close()
                member.connection = None

    async def _fetch(self, member: _Member, step: Step, epoch: int, wait_ms: int) -> Outcome:
        limits = (0, 0, 0, 0) if step.is_renew else (wait_ms, step.min_bytes, step.max_bytes, step.records_max)
        request = ShareFetchRequest(
            self._group,
            member.member_id,
            epoch,
            self._topics(step),
            [(self._topic_ids[topic], [partition]) for topic, partition in step.forgotten],
            *limits,
            step.batch_size,
            step.mode,
            step.is_renew,
        )
        connection = await self._connection(member)
        body = share_fetch.encode_request(step.version, request)
        answer = share_fetch.decode_response(*await connection.request(api_keys.SHARE_FETCH, step.version, body))
        parts = {
            (self._names[topic_id], each.partition): Part(
                each.error_code, each.acknowledge_error_code, tuple(each.acquired), b"".join(each.records)
            )
            for topic_id, partitions in answer.topics
            for each in partitions
        }
        return Outcome(answer.error_code, answer.lock_timeout_ms, parts)

    async def _acknowledge(self, member: _Member, step: Step, epoch: int) -> Outcome:
        request = ShareAcknowledgeRequest(self._group, member.member_id, epoch, self._topics(step), step.is_renew)
        connection = await self._connection(member)
        body = share_acknowledge.encode_request(step.version, request)
        frame = await connection.request(api_keys.SHARE_ACKNOWLEDGE, step.version, body)
        answer = share_acknowledge.decode_response(step.version, *frame)
        parts = {
            (self._names[topic_id], each.partition): Part(0, each.error_code, (), b"")
            for topic_id, partitions in answer.topics
            for each in partitions
        }
        return Outcome(answer.error_code, answer.lock_timeout_ms, parts)

    def _topics(self, step: Step) -> NamedTopics:
        places = [*((place, ()) for place in step.named), *step.said]
        if step.is_apart:
            return [(self._topic_ids[topic], [NamedPartition(number, said)]) for (topic, number), said in places]
        by_topic: dict[str, dict[int, NamedPartition]] = {}
        for (topic, number), said in places:
            by_topic.setdefault(topic, {})[number] = NamedPartition(number, said)
        return [(self._topic_ids[topic], list(named.values())) for topic, named in by_topic.items()]

    async def _connection(self, member: _Member) -> NodeConnection:
        if member.connection is None:
            member.connection = await open_connection(self._address, replace(PATIENT_CLIENT, requests_in_flight_max=8))
        return member.connection
