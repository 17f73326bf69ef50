"""Answers of brokers that are asked who leads."""

from collections.abc import Iterable
from datetime import timedelta
from io import BytesIO
from uuid import UUID

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

TOPIC_ID = UUID(int=1)


def metadata(
    leaders: dict[int, tuple[int, int]], topic_id: UUID = TOPIC_ID, broker_ids: Iterable[int] | None = None
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
                error_code=ErrorCode.none,
                name=TopicName("topic"),
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
