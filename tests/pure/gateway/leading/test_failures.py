"""A share partition that cannot be served is loaded twice a second at most, however often it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
import structlog

from holdfast.api.results import ReadOrInitializeResult
from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.sessions import ShareSessions
from holdfast.gateway.leading.failures import PAUSE_MS, Failures
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Ended, LedPartition
from holdfast.gateway.leading.starts import Starts
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.connection_options import Address
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import PartitionReader
from holdfast.kafka.topics.topic_ends import Answer, Leaders, Led, Place
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.share.keys import SharePartitionKey
from tests.world.samples import TOPIC

KEY = SharePartitionKey("group", TOPIC, 0)
OTHER = SharePartitionKey("group", TOPIC, 1)
FAILED = Ended(ErrorCode.KAFKA_STORAGE_ERROR, "no")


def test_a_failure_is_known_until_the_pause_is_over() -> None:
    failures = Failures()
    assert failures.find(KEY, 0.0) is None
    failures.add(KEY, FAILED, 1_000.0)
    assert failures.find(KEY, 1_000.0 + PAUSE_MS - 1) == FAILED
    assert failures.find(OTHER, 1_000.0) is None
    assert failures.find(KEY, 1_000.0 + PAUSE_MS) is None


def test_a_second_failure_begins_another_pause_and_old_ones_are_forgotten() -> None:
    failures = Failures()
    failures.add(KEY, FAILED, 0.0)
    failures.add(OTHER, FAILED, PAUSE_MS - 1.0)
    failures.add(KEY, FAILED, PAUSE_MS + 0.0)
    assert failures.find(OTHER, PAUSE_MS) == failures.find(KEY, 2 * PAUSE_MS - 1) == FAILED
    failures.add(KEY, FAILED, 9 * PAUSE_MS)
    assert len(failures) == 1


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_no_client_is_sent_to_another_leader_again_and_again(code: int) -> None:
    failures = Failures()
    failures.add(KEY, Ended(code, "fenced"), 0.0)
    assert failures.find(KEY, 1.0) == Ended(ErrorCode.KAFKA_STORAGE_ERROR, "fenced")


class RefusingState:
    """State whose every load is refused (`ShareStateAccess`)."""

    def __init__(self) -> None:
        self.loads = 0

    def log_partition_of(self, topic_id: bytes, partition: int) -> int | None:
        return 0

    def read_or_initialize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        initial_start_offset: int | None,
        respond: Callable[[ReadOrInitializeResult], None],
    ) -> None:
        self.loads += 1
        respond(ReadOrInitializeResult(ErrorCode.FENCED_LEADER_EPOCH, "fenced"))

    def write(self, *_: Any) -> None:
        raise AssertionError("nothing is written")


class Alone:
    """The only node, whose owner epochs are all 3 (`leader.Leadership`)."""

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        return 0

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        return 3


class NoEnds:
    """Log ends that nobody asks for (`starts.EndSource`)."""

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        raise AssertionError("nobody asks")

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        raise AssertionError("nobody asks")


class NoReader:
    """A reader that nobody reads with (`leader.Reader`)."""

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        raise AssertionError("nobody reads")


async def test_a_refused_load_is_not_repeated_with_each_fetch() -> None:
    state = RefusingState()
    metrics = GatewayMetrics(Registry(), LineLimiter())
    starts = Starts(NoEnds(), lambda: 0)
    sessions = ShareSessions(1)
    leader = Leader(state, Alone(), lambda _: NoReader(), starts, lambda _: GroupConfig(), 10, metrics, sessions)
    led = leader.lead(KEY)
    assert isinstance(led, LedPartition)
    assert led.ended == Ended(ErrorCode.FENCED_LEADER_EPOCH, "fenced")
    for _ in range(100):
        assert leader.lead(KEY) == Ended(ErrorCode.KAFKA_STORAGE_ERROR, "fenced")
    assert state.loads == 1
    assert isinstance(leader.lead(OTHER), LedPartition), "others are not held back"
    await asyncio.sleep(PAUSE_MS / 1_000)
    assert isinstance(leader.lead(KEY), LedPartition)
    assert state.loads == 3


def test_line_about_a_fence_names_the_commands() -> None:
    with structlog.testing.capture_logs() as lines:
        metrics = GatewayMetrics(Registry(), LineLimiter())
        for key in (KEY, KEY, OTHER):
            metrics.note_unserved(key, "The leader epoch 3 is fenced; epoch 9 is known.", is_fenced=key == KEY)
    assert [line["event"] for line in lines] == ["share_partition_not_served"] * 2
    for command in ("summary", "delete", "init"):
        assert f"`holdfast state {command}" in lines[0]["next_step"]
    assert "next_step" not in lines[1]
