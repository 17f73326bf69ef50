"""OffsetFetch and OffsetCommit as rows of the table of calls: what groups committed, and commits for a member or a group without members.

From version 8 on OffsetFetch takes many groups (KIP-709); OffsetCommit takes one in every version.

Source: Apache Kafka's message schemas OffsetFetch v7 and v8, OffsetCommit v8 (spoken by brokers from 2.5 to 4.x).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7 import request as fetch_7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as FetchResponse7
from kio.schema.offset_fetch.v8 import request as fetch_8
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse as FetchResponse8
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from holdfast.kafka.discovery.calls import Answer, Call
from holdfast.kafka.exchange import from_bytes, to_bytes, to_ms
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.error_codes import COORDINATOR_LOST, GROUP_OFFSETS_RETRIABLE, ErrorCode, error_name

_MANY_GROUPS_FROM: Final = 8

#: A topic and one of its partitions.
Place = tuple[str, int]


class Wanted(NamedTuple):
    """What is wanted of a group: its offsets of some places, or of all where it has some."""

    group: str
    #: None: all.
    places: tuple[Place, ...] | None = None


class Committer(NamedTuple):
    """The member that commits, as the group knows it."""

    member_id: str
    generation_id: int
    instance_id: str | None = None


#: Commits for a group without members.
NO_MEMBER: Final = Committer("", -1)


class Commit(NamedTuple):
    """The offset to be read next of each place."""

    group: str
    next_offsets: tuple[tuple[Place, int], ...]
    #: Kept with each offset; Kafka calls it metadata, and takes `offset.metadata.max.bytes` of it (4,096 by default).
    note: str = ""
    committer: Committer = NO_MEMBER


class Offsets(NamedTuple):
    """What a coordinator said of the offsets of a group, errors included."""

    #: By place that has one; empty for a commit.
    committed: Mapping[Place, int]
    #: Error codes with the places that each is about; of the whole group, with none.
    errors: Mapping[int, Sequence[Place]]
    #: Places that it answered for.
    answered: frozenset[Place] = frozenset()
    #: What is known about an error that no coordinator sent.
    reason: str = ""
    #: The note that was committed with each offset, as it came; empty for a commit.
    notes: Mapping[Place, str] = {}

    def error_code(self) -> int:
        """Return the worst error code: one that is final, or else one after which the coordinator is looked up; 0: none."""
        codes = sorted(self.errors)
        final = [code for code in codes if code not in GROUP_OFFSETS_RETRIABLE]
        lost = [code for code in codes if code in COORDINATOR_LOST]
        return (final or lost or codes or [0])[0]

    def problem(self) -> str:
        """Return the errors as text, empty where there are none."""
        if self.reason:
            return self.reason
        return "; ".join(f"{error_name(code)}{_about(places)}" for code, places in self.errors.items())


def _about(places: Sequence[Place]) -> str:
    partitions = ", ".join(str(partition) for _, partition in sorted(places))
    return f" for partitions {partitions}" if places else ""


def _refuse(error_code: int, reason: str) -> Offsets:
    return Offsets({}, {error_code: ()}, reason=reason)


def _by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics


def _encode_fetch(version: int, items: Sequence[Wanted]) -> bytes:
    if version < _MANY_GROUPS_FROM:
        (wanted,) = items
        named = None if wanted.places is None else _fetch_topics(fetch_7.OffsetFetchRequestTopic, wanted.places)
        return to_bytes(fetch_7.OffsetFetchRequest(group_id=GroupId(wanted.group), topics=named, require_stable=True))
    groups = tuple(
        fetch_8.OffsetFetchRequestGroup(
            group_id=GroupId(group),
            topics=None if places is None else _fetch_topics(fetch_8.OffsetFetchRequestTopics, places),
        )
        for group, places in items
    )
    return to_bytes(fetch_8.OffsetFetchRequest(groups=groups, require_stable=True))


def _fetch_topics(make: Any, places: Sequence[Place]) -> tuple[Any, ...]:  # noqa: ANN401  # kio's class of a version
    return tuple(
        make(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions)))
        for topic, partitions in _by_topic(places).items()
    )


def _decode_fetch(version: int, items: Sequence[Wanted], body: bytes) -> Answer[Wanted, Offsets]:
    if version < _MANY_GROUPS_FROM:
        response = from_bytes(FetchResponse7, body)
        offsets = _fetched(int(response.error_code), response.topics)
        return Answer(to_ms(response.throttle_time), {items[0]: offsets})
    many = from_bytes(FetchResponse8, body)
    by_group = {group.group_id: _fetched(int(group.error_code), group.topics) for group in many.groups}
    values = {item: by_group[GroupId(item.group)] for item in items if item.group in by_group}
    return Answer(to_ms(many.throttle_time), values)


def _fetched(error_code: int, topics: Sequence[Any]) -> Offsets:
    if error_code:
        return Offsets({}, {error_code: ()})
    errors = _errors(topics)
    found = [((topic.name, int(each.partition_index)), each) for topic in topics for each in topic.partitions]
    committed = [(place, each) for place, each in found if each.committed_offset >= 0]
    offsets = {place: int(each.committed_offset) for place, each in committed}
    return Offsets(offsets, errors, notes={place: each.metadata or "" for place, each in committed})


def _errors(topics: Sequence[Any]) -> dict[int, list[Place]]:
    errors: defaultdict[int, list[Place]] = defaultdict(list)
    for topic in topics:
        for each in topic.partitions:
            if int(each.error_code) != ErrorCode.NONE:
                errors[int(each.error_code)].append((topic.name, int(each.partition_index)))
    return dict(errors)


def _encode_commit(_: int, items: Sequence[Commit]) -> bytes:
    (commit,) = items
    offsets = dict(commit.next_offsets)
    topics = tuple(
        OffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=i32(partition),
                    committed_offset=i64(offsets[topic, partition]),
                    committed_metadata=commit.note,
                )
                for partition in partitions
            ),
        )
        for topic, partitions in _by_topic(list(offsets)).items()
    )
    member_id, generation_id, instance_id = commit.committer
    return to_bytes(
        OffsetCommitRequest(
            group_id=GroupId(commit.group),
            generation_id_or_member_epoch=i32(generation_id),
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics,
        )
    )


def _decode_commit(_: int, items: Sequence[Commit], body: bytes) -> Answer[Commit, Offsets]:
    response = from_bytes(OffsetCommitResponse, body)
    answered = {(topic.name, int(each.partition_index)) for topic in response.topics for each in topic.partitions}
    offsets = Offsets({}, _errors(response.topics), frozenset(answered))
    return Answer(to_ms(response.throttle_time), {items[0]: offsets})


OFFSET_FETCH: Final[Call[Wanted, Offsets]] = Call(
    api_key=api_keys.OFFSET_FETCH,
    name="OffsetFetch",
    versions=(7, 8),
    flexible_from=7,
    batched_from=_MANY_GROUPS_FROM,
    encode=_encode_fetch,
    decode=_decode_fetch,
    refuse=_refuse,
    error_of=Offsets.error_code,
)

OFFSET_COMMIT: Final[Call[Commit, Offsets]] = Call(
    api_key=api_keys.OFFSET_COMMIT,
    name="OffsetCommit",
    versions=(8, 8),
    flexible_from=8,
    batched_from=None,
    encode=_encode_commit,
    decode=_decode_commit,
    refuse=_refuse,
    error_of=Offsets.error_code,
)
