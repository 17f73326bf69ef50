"""When records of users' topics were written, by the heads of the record batches that hold them.

Of a batch whose records have times of their own it is the time of its first record: a producer's linger apart from the exact one.

Source: Apache Kafka's message schema Fetch v12, `DefaultRecordBatch`; KIP-74 (a first batch comes whole, whatever its size).
"""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from struct import Struct
from typing import Final

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import Address
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.requests import FETCH, FetchTarget, decode_fetched, encode_fetch, read_answer
from holdfast.kafka.topics.topic_ends import Led, Place, led_by

#: Base offset, length, leader epoch, magic, checksum, attributes, delta of the last offset, first time, highest time.
_BATCH_HEAD: Final = Struct(">qiibIhiqq")
_MAGIC: Final = 2
#: Attribute of a batch whose records have the time at which the broker appended it.
_IS_APPEND_TIME: Final = 8
_NO_SESSION: Final = (0, -1)


class RecordTimes:
    """Queries to leaders, one record after the other, over connections that last for one query."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        """Connect nowhere yet; `timeout_ms` bounds a query in all."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def look_up(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Return when the first record from an offset on was written, in ms since 1970; without those that could not be found."""
        found: dict[Place, int] = {}
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                by_leader = led_by(await self._cluster.find({topic_id for topic_id, _ in offsets}), sorted(offsets))
                queries = [self._query_leader(address, led, offsets, found) for address, led in by_leader.items()]
                await asyncio.gather(*queries)
        except (TimeoutError, ConnectionFailed):
            return found
        return found

    async def _query_leader(
        self, address: Address, led: Mapping[Place, Led], offsets: Mapping[Place, int], found: dict[Place, int]
    ) -> None:
        """Fill `found` with what one broker answers."""
        try:
            with closing(await self._cluster.connect(address)) as connection:
                for place, (leader_epoch, topic) in led.items():
                    target = FetchTarget(place[1], leader_epoch, offsets[place], -1)
                    body = encode_fetch(topic, _NO_SESSION, 0, 1, 1, [target], ())
                    answer = await connection.exchange(*FETCH, body, is_flexible=True)
                    written_ms = _first_time(answer)
                    if written_ms is not None:
                        found[place] = written_ms
        except ConnectionFailed:
            return


def _first_time(answer: bytes) -> int | None:
    """Return the time of the first record batch in an answer; None: it has none."""
    for partition in read_answer(decode_fetched, answer).partitions:
        if not partition.error_code and len(partition.records) >= _BATCH_HEAD.size:
            head: tuple[int, ...] = _BATCH_HEAD.unpack_from(partition.records)
            magic, attributes, first_ms, highest_ms = head[3], head[5], head[7], head[8]
            if magic == _MAGIC:
                return highest_ms if attributes & _IS_APPEND_TIME else first_ms
    return None
