"""Generated share-state calls, sent as the same bytes to several coordinators.

A call is one request of any of the five kinds, in any version, about a few share partitions.
Small numbers everywhere, so that epochs fence, ranges overlap and start offsets pass over batches all the time.
Malformed state batches are left out: there we differ from Apache Kafka on purpose (test_differences.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    SummaryPartition,
    WritePartition,
)
from holdfast.client import ClientSettings
from holdfast.client.client import parse_address
from holdfast.client.connection import NodeConnection, open_connection
from holdfast.records.share.batches import StateBatch

GROUPS = ("a", "b:c")
PARTITIONS = 3

#: A topic that exists, with `PARTITIONS`, and one that does not.
TOPICS = ("known", "unknown")


class Call(NamedTuple):
    """One request, by names that an example gives meaning to."""

    api_key: int
    version: int
    group: str  #: of `GROUPS`, or empty
    topics: tuple[tuple[str, tuple[PartitionRequest, ...]], ...]  #: by names of `TOPICS`

    @property
    def has_duplicates(self) -> bool:
        """Whether it names a share partition twice."""
        named = [(topic, asked.partition) for topic, partitions in self.topics for asked in partitions]
        return len(set(named)) < len(named)


# Tuples to draw from, in which the usual stands more often than the odd: a draw costs more than a call.
_PARTITIONS = st.sampled_from((*range(PARTITIONS),) * 8 + (-1, PARTITIONS))
#: What fences, what is not checked, and what is below every fence.
_EPOCHS = st.sampled_from((*range(5),) * 2 + (-1, -2))
_OFFSETS = st.sampled_from((-1,) * 20 + (*range(40),))
_COUNTS = st.sampled_from((-1, -2, *range(8)))
_BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    *(st.integers(0, 40), st.integers(0, 12), st.sampled_from((0, 2, 3, 4)), st.integers(0, 4)),
)
_ASKED: dict[int, st.SearchStrategy[Any]] = {
    share_state.INITIALIZE: st.builds(InitializePartition, _PARTITIONS, _EPOCHS, _OFFSETS),
    share_state.READ: st.builds(ReadPartition, _PARTITIONS, _EPOCHS),
    share_state.WRITE: st.builds(
        WritePartition, _PARTITIONS, _EPOCHS, _EPOCHS, _OFFSETS, _COUNTS, st.lists(_BATCHES, max_size=4).map(tuple)
    ),
    share_state.DELETE: st.builds(DeletePartition, _PARTITIONS),
    share_state.SUMMARY: st.builds(SummaryPartition, _PARTITIONS, _EPOCHS),
}
#: Each as often as it stands here: state must live for a while to be worth a look.
_KINDS = st.sampled_from(
    (
        share_state.INITIALIZE,
        *[share_state.READ] * 3,
        *[share_state.WRITE] * 6,
        *[share_state.SUMMARY] * 2,
        share_state.DELETE,
    )
)
_ODDITIES = st.sampled_from(
    (None,) * 40 + ("no group", "no topic", "no partitions", "twice", "twice", *["unknown"] * 4)
)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw one call."""
    api_key, oddity = draw(_KINDS), draw(_ODDITIES)
    # A Delete ends a life, so it is for one share partition only.
    at_most = 1 if api_key == share_state.DELETE else 3
    asked = tuple(draw(st.lists(_ASKED[api_key], min_size=1, max_size=at_most, unique_by=lambda asked: asked[0])))
    topics: tuple[tuple[str, tuple[PartitionRequest, ...]], ...] = ((TOPICS[oddity == "unknown"], asked),)
    if oddity == "twice":
        topics += ((TOPICS[0], tuple(draw(st.lists(_ASKED[api_key], max_size=at_most)))),)
    elif oddity == "no partitions":
        topics += ((TOPICS[0], ()),)
    elif oddity == "no topic":
        topics = ()
    group = "" if oddity == "no group" else draw(st.sampled_from(GROUPS))
    return Call(api_key, draw(st.integers(*share_state.VERSIONS[api_key])), group, topics)


#: The first thing every sequence does, so that the rest has something to act upon.
BEGINNING = tuple(
    Call(
        share_state.INITIALIZE,
        0,
        group,
        ((TOPICS[0], tuple(InitializePartition(partition, 1, -partition) for partition in range(2))),),
    )
    for group in GROUPS
)


class Answer(NamedTuple):
    """What a coordinator said to one call, without the texts of errors, which no protocol fixes."""

    results: dict[tuple[str, int], tuple[Any, ...]]  #: by topic and partition
    has_repetitions: bool
    has_texts: bool  #: a text with every error, and none without one


class Peer:
    """A coordinator of everything, asked over one connection."""

    def __init__(self, address: str, topic_ids: dict[str, bytes]) -> None:
        self._address = parse_address(address)
        self._topic_ids = topic_ids
        self._names = {topic_id: name for name, topic_id in topic_ids.items()}
        self._connection: NodeConnection | None = None

    async def ask(self, call: Call, group_id: str) -> Answer:
        """Make one call under the group id; a connection that was lost is opened anew."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await open_connection(self._address, ClientSettings())
        topics = [(self._topic_ids[topic], list(partitions)) for topic, partitions in call.topics]
        body = state_requests.encode_request(call.api_key, call.version, StateRequest(group_id, topics))
        frame, offset = await self._connection.request(call.api_key, call.version, body)
        found = [
            (self._names[topic_id], partition, result)
            for topic_id, results in state_responses.decode_response(call.api_key, call.version, frame, offset)
            for partition, result in results
        ]
        results = {(topic, partition): (result[0], *result[2:]) for topic, partition, result in found}
        has_texts = all(bool(result[0]) == (result[1] is not None) for _, _, result in found)
        return Answer(results, len(results) < len(found), has_texts)

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
