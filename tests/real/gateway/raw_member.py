"""A member of a share group over one connection of ours, for requests that no stock client sends, or not when a test wants it to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from confluent_kafka.admin import AdminClient

from holdfast.api import share_acknowledge, share_fetch
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition
from holdfast.api.share_fetch import FetchedPartition, ShareFetchRequest, ShareFetchResponse
from holdfast.client.client import parse_address
from holdfast.client.connection import NodeConnection, open_connection
from holdfast.kafka.protocol import api_keys
from tests.real.nodes import PATIENT_CLIENT
from tests.waiting import PATIENCE_S, look_until

_VERSION = 2
_BYTES_MAX = 50 << 20


class RawMember:
    """A member with a session for some partitions of one topic."""

    def __init__(self, connection: NodeConnection, group: str, topic_id: bytes, partitions: Sequence[int]) -> None:
        self.connection = connection
        self.member_id = str(uuid.uuid4())
        self._group = group
        self._topic_id = topic_id
        self._partitions = partitions
        self._epoch = 0

    async def fetch(
        self, wait_ms: int = 500, records_max: int = 500, bytes_max: int = _BYTES_MAX
    ) -> dict[int, FetchedPartition]:
        """Fetch, and return what came of each partition that the answer names; an error of the whole answer begins a new session.

        The next fetch need not wait for this one's answer.
        """
        named = [NamedPartition(each) for each in self._partitions] if self._epoch == 0 else []
        topics = [(self._topic_id, named)] if named else []
        request = ShareFetchRequest(
            self._group,
            self.member_id,
            self._epoch,
            topics,
            [],
            wait_ms,
            1,
            bytes_max,
            records_max,
            records_max,
        )
        self._epoch += 1
        body = share_fetch.encode_request(_VERSION, request)
        answer: ShareFetchResponse = share_fetch.decode_response(
            *await self.connection.request(api_keys.SHARE_FETCH, _VERSION, body)
        )
        if answer.error_code:
            self._epoch = 0
            return {-1: FetchedPartition(-1, error_code=answer.error_code)}
        return {each.partition: each for _, partitions in answer.topics for each in partitions}

    async def acknowledge(
        self, ranges: Mapping[int, Sequence[tuple[int, int]]], kind: int = 1
    ) -> ShareAcknowledgeResponse:
        """Say the same of ranges of some partitions."""
        named = [
            NamedPartition(partition, tuple(AcknowledgedRange(first, last, bytes([kind])) for first, last in of_it))
            for partition, of_it in ranges.items()
        ]
        request = ShareAcknowledgeRequest(self._group, self.member_id, self._epoch, [(self._topic_id, named)])
        body = share_acknowledge.encode_request(_VERSION, request)
        frame = await self.connection.request(api_keys.SHARE_ACKNOWLEDGE, _VERSION, body)
        self._epoch += 1
        return share_acknowledge.decode_response(_VERSION, *frame)


async def until_offered(address: str, topic: str) -> None:
    """Wait until a node knows a topic: it is ready before it has looked topics up, and refuses those that it does not know yet."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    await look_until(
        partial(asyncio.to_thread, admin.list_topics, topic, timeout=PATIENCE_S),
        lambda found: found.topics[topic].error is None,
        f"the offer of {topic}",
    )


@asynccontextmanager
async def raw_member(
    address: str, group: str, topic_id: bytes, partitions: Sequence[int] = (0,)
) -> AsyncIterator[RawMember]:
    """Give a member on a connection of its own."""
    connection = await open_connection(parse_address(address), PATIENT_CLIENT)
    try:
        yield RawMember(connection, group, topic_id, partitions)
    finally:
        connection.close()
