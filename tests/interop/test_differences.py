"""Where we answer otherwise than Apache Kafka's share coordinator does, on purpose; docs/protocol.md has the reasons."""

import asyncio
import struct

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.api.results import WritePartition
from holdfast.client import connect
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.primitives import encode_string
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.share.batches import StateBatch
from tests.interop.conftest import Coordinator, new_share_topic
from tests.real.nodes import FIRST_CLIENT
from tests.world.tenants import APIS

pytestmark = [pytest.mark.real, pytest.mark.interop]

NONE, UNKNOWN_SERVER_ERROR, INVALID_REQUEST, FENCED_STATE_EPOCH = 0, -1, 42, 124
API_VERSIONS = 18
FINE = StateBatch(10, 15, 2, 1)


def write(*batches: StateBatch, state_epoch: int = 1, start_offset: int = -1) -> WritePartition:
    return WritePartition(0, state_epoch, 0, start_offset, -1, batches)


async def ask(coordinator: Coordinator, group_id: str, topic_id: str, *asked: WritePartition) -> tuple[int, object]:
    """Begin a share partition anew, write in one request, and return the error code and the state afterwards."""
    share_topic = parse_topic_id(topic_id)
    async with connect(coordinator.address, FIRST_CLIENT) as client:
        await client.initialize(group_id, share_topic, 0, state_epoch=1, start_offset=0)
        results = await client.write_many(group_id, [(share_topic, each) for each in asked])
        state = await client.read(group_id, share_topic, 0, leader_epoch=0)
        return results[0].error_code, state.state_batches


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(write(StateBatch(-2, 5, 0, 1)), id="a negative offset"),
        pytest.param(write(StateBatch(0, 5, 1, 1)), id="a delivery state that is never stored"),
        pytest.param(write(StateBatch(0, 5, 0, -1)), id="a negative delivery count"),
        pytest.param(write(StateBatch(0, 5, 0, 1), start_offset=-2), id="a start offset that means nothing"),
    ],
)
async def test_malformed_writes_are_refused_here_and_stored_by_kafka(
    apache_kafka: Coordinator,
    newest_apache_kafka: Coordinator,
    holdfast: Coordinator,
    group_id: str,
    share_topic_id: str,
    malformed: WritePartition,
) -> None:
    # Kafka cuts what lies before the start offset, as of any batch.
    stored = tuple(batch._replace(first_offset=max(0, batch.first_offset)) for batch in malformed.state_batches)
    assert (await ask(apache_kafka, group_id, share_topic_id, malformed)) == (NONE, stored)
    newest = await ask(newest_apache_kafka, group_id, new_share_topic(newest_apache_kafka), malformed)
    assert newest == (NONE, stored)
    assert (await ask(holdfast, group_id, share_topic_id, malformed)) == (INVALID_REQUEST, ())


async def test_a_reversed_range_is_refused_here(
    newest_apache_kafka: Coordinator, holdfast: Coordinator, group_id: str, share_topic_id: str
) -> None:
    """4.3.1 is not asked: combining it with another batch, its coordinator would never answer anybody again."""
    reversed_range = write(StateBatch(9, 5, 0, 1), FINE)
    newest = await ask(newest_apache_kafka, group_id, new_share_topic(newest_apache_kafka), reversed_range)
    assert newest == (UNKNOWN_SERVER_ERROR, ())
    assert (await ask(holdfast, group_id, share_topic_id, reversed_range)) == (INVALID_REQUEST, ())


async def test_an_offset_at_the_end_of_64_bits_is_refused_here(
    newest_apache_kafka: Coordinator, holdfast: Coordinator, group_id: str, share_topic_id: str
) -> None:
    last = write(StateBatch(20, (1 << 63) - 1, 0, 1), FINE)
    newest = await ask(newest_apache_kafka, group_id, new_share_topic(newest_apache_kafka), last)
    assert newest == (UNKNOWN_SERVER_ERROR, ())
    assert (await ask(holdfast, group_id, share_topic_id, last)) == (INVALID_REQUEST, ())


async def test_of_a_share_partition_named_twice_a_failure_is_reported(
    apache_kafka: Coordinator, holdfast: Coordinator, group_id: str, share_topic_id: str
) -> None:
    """Both are carried out, in order; Kafka tells the last result only."""
    twice = write(StateBatch(0, 5, 2, 1), state_epoch=0), write(FINE)
    assert (await ask(apache_kafka, group_id, share_topic_id, *twice)) == (NONE, (FINE,))
    assert (await ask(holdfast, group_id, share_topic_id, *twice)) == (FENCED_STATE_EPOCH, (FINE,))


async def ask_for_versions(coordinator: Coordinator, version: int, body: bytes) -> ApiVersionsResponse:
    """Ask what is served; of an answer to a known version the error alone is read."""
    host, _, port = coordinator.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frames.encode_request(API_VERSIONS, version, 7, b"test", body))
    answer = await reader.readexactly(frames.read_length(await reader.readexactly(4), 0))
    writer.close()
    await writer.wait_closed()
    (error_code,) = struct.unpack_from(">h", answer, 4)
    if version in range(5):
        return ApiVersionsResponse(error_code=ErrorCode(error_code), api_keys=())
    return entity_reader(ApiVersionsResponse)(answer, 4)[0]


async def test_an_unknown_version_of_api_versions_lists_all_calls_here(
    apache_kafka: Coordinator, holdfast: Coordinator
) -> None:
    listed = {}
    for coordinator in (apache_kafka, holdfast):
        answer = await ask_for_versions(coordinator, 99, b"whatever a later version holds")
        assert answer.error_code is ErrorCode.unsupported_version
        listed[coordinator] = {key.api_key for key in answer.api_keys}
    assert listed == {apache_kafka: {API_VERSIONS}, holdfast: set(APIS)}


async def test_any_name_of_a_client_is_taken_here(apache_kafka: Coordinator, holdfast: Coordinator) -> None:
    odd = encode_string("-née/") + encode_string("1") + b"\0"
    assert (await ask_for_versions(apache_kafka, 3, odd)).error_code is ErrorCode.invalid_request
    assert (await ask_for_versions(holdfast, 3, odd)).error_code is ErrorCode.none
