"""Answers of brokers that are asked who leads, and brokers that give them."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed

TOPIC_ID = UUID(int=1)


def metadata(
    leaders: dict[int, tuple[int, int]],
    topic_id: UUID = TOPIC_ID,
    broker_ids: Iterable[int] | None = None,
    error: ErrorCode = ErrorCode.none,
    name: str = "topic",
) -> bytes:
    """Return an answer about the topic: (broker id or -1, leader epoch) by partition; its brokers are those that lead."""
    named = {leader for leader, _ in leaders.values()} - {-1} if broker_ids is None else broker_ids
    response = MetadataResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(node_id), host=f"host-{node_id}", port=i32(9092))
            for node_id in sorted(named)
        ),
        cluster_id="cluster",
        controller_id=BrokerId(1),
        topics=(
            MetadataResponseTopic(
                error_code=error,
                name=TopicName(name),
                topic_id=topic_id,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=ErrorCode.none,
                        partition_index=i32(partition),
                        leader_id=BrokerId(leader),
                        leader_epoch=i32(epoch),
                        replica_nodes=(),
                        isr_nodes=(),
                        offline_replicas=(),
                    )
                    for partition, (leader, epoch) in leaders.items()
                ),
            ),
        ),
    )
    buffer = BytesIO()
    entity_writer(MetadataResponse)(buffer, response)
    return buffer.getvalue()


#: What a broker does that cannot be reached, and one that is frozen.
UNREACHABLE, SILENT = b"unreachable", b"silent"


def namesake(topic: int, *broker_ids: int) -> bytes:
    """Return an answer that names these brokers, and the topic of this id; 0: there is none of the name."""
    error = ErrorCode.none if topic else ErrorCode.unknown_topic_or_partition
    return metadata({}, UUID(int=topic), broker_ids, error)


def answer_by_host(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, bytes | Iterator[bytes]]) -> list[str]:
    """Let each host give its answer to every request, or one after the other; returns the hosts that were asked."""
    asked: list[str] = []

    class Connection:
        is_open = True

        def __init__(self, host: str) -> None:
            self._host = host

        async def exchange(self, *_: object, **__: object) -> bytes:
            answer = answers[self._host]
            body = answer if isinstance(answer, bytes) else next(answer)
            if body == SILENT:
                await asyncio.Event().wait()
            return body

        def close(self) -> None:
            """Do nothing."""

    async def connect(address: Address, options: ConnectionOptions, timeout_ms: int) -> Any:
        asked.append(address[0])
        if answers[address[0]] == UNREACHABLE:
            raise ConnectionFailed(f"{address[0]} cannot be reached")
        return Connection(address[0])

    monkeypatch.setattr(BrokerConnection, "open", connect)
    return asked
