"""What the registered readers of the log have committed, and what is said of those that fall silent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.admin.commands import LogCommands
from holdfast.daemon.maintenance.reader_offsets import ReaderOffsets, ReaderReport
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.group_offsets import GroupRefused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.metrics.line_limit import LineLimiter
from tests.simulated.memory_log import MemoryTopic
from tests.world.maintenance import A, B, World, filled


@pytest.fixture
async def world() -> World:
    return await filled({A: 1, B: 3})


def looked_up(
    world: World, groups: Sequence[str], fetch: Callable[[str], Awaitable[Mapping[int, int]]]
) -> tuple[LogReaders, ReaderOffsets]:
    """Return readers, and what looks them up by `fetch`."""
    readers = LogReaders(groups, 1_000, world.clock, ReaderReport(world.metrics))
    return readers, ReaderOffsets(readers, fetch, world.partitions.committed_offsets, world.metrics, LineLimiter())


@pytest.mark.parametrize(
    ("flags", "holds", "holds_at_once"),
    [
        ({}, ["audit", "holdfast-compaction"], ["audit"]),
        ({"snapshots.topic": ""}, ["audit"], ["audit"]),
        (
            {"compaction.run": True, "compaction.checkpoint.dir": "/checkpoint"},
            ["audit", "holdfast-compaction"],
            ["audit", "holdfast-compaction"],
        ),
        ({"log_readers": ["holdfast-compaction"]}, ["holdfast-compaction"], ["holdfast-compaction"]),
    ],
)
async def test_the_job_that_writes_snapshots_is_a_reader_once_somebody_runs_it(
    flags: dict[str, Any], holds: list[str], holds_at_once: list[str]
) -> None:
    world = await World(MemoryTopic(1), **({"log_readers": ["audit"]} | flags)).serve()
    readers = world.readers
    assert list(readers.groups) == holds
    assert {row["state"] for row in readers.describe()} == {"not looked up"}
    for group in readers.groups:
        readers.learn(group, {}, {0: 1})
    assert [row["group"] for row in readers.describe() if row["state"] == "never committed"] == holds_at_once


async def test_a_reader_that_cannot_be_looked_up_keeps_no_other_from_being_looked_up(world: World) -> None:
    async def committed(group: str) -> dict[int, int]:
        if group == "secret":
            raise GroupRefused("GROUP_AUTHORIZATION_FAILED")
        return {0: 5}

    readers, offsets = looked_up(world, ["secret", "audit"], committed)
    with capture_logs() as lines:
        for _ in range(2):
            await offsets.look_up()
    assert [(line["event"], line["reader"]) for line in lines] == [("log_reader_lookup_failed", "secret")], (
        "it is said once"
    )
    assert [row["state"] for row in readers.describe()] == ["not looked up", "reading"]


async def test_an_admin_drops_a_reader(world: World) -> None:
    commands = LogCommands(None, world.partitions, world.maintenance, world.allotment, world.brokers).table()  # type: ignore[arg-type]
    with pytest.raises(AdminError, match="No group 'audit' is registered; registered are holdfast-comp") as refused:
        commands["readers-drop"]({"group": "audit", "reason": "gone"})
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(AdminError, match="`reason` is needed"):
        commands["readers-drop"]({"group": "holdfast-compaction"})
    readers = world.readers
    readers.learn("holdfast-compaction", {0: 1, 1: 1}, {0: 4, 1: 4})
    assert readers.blocking(0, 4) is not None
    with capture_logs() as lines:
        answer = commands["readers-drop"]({"group": "holdfast-compaction", "reason": "switched off"})
    assert answer == "the log is pruned past holdfast-compaction until it commits again"
    assert [(line["reader"], line["reason"]) for line in lines] == [("holdfast-compaction", "switched off")]
    assert readers.blocking(0, 4) is None
    assert commands["readers"]({})[0]["state"] == "dropped"  # type: ignore[index]
    assert world.series("dropped_log_readers") == {"holdfast_dropped_log_readers_total": 1}


async def test_silent_readers_are_reported_once_and_compared_with_the_logs_ends(world: World) -> None:
    committed: dict[int, int] = {}

    async def told(group: str) -> dict[int, int]:
        return committed

    _, offsets = looked_up(world, ["reader"], told)
    with capture_logs() as lines:
        for _ in range(3):
            world.clock.now_ms += 1_000
            await offsets.look_up()
    assert [line["event"] for line in lines] == ["log_reader_stalled"]
    assert world.series("silent_log_readers") == {"holdfast_silent_log_readers_total": 1}
    committed |= {held.index: held.committed_offset for held in world.partitions}
    with capture_logs() as lines:
        for _ in range(3):
            world.clock.now_ms += 1_000
            await offsets.look_up()
    assert lines == []
