"""The beginnings of the tests of a share partition: configs, record batches, and a partition that is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.delivery.group_config import DEFAULT, GroupConfig
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import Acquired, AcquireMode, OffsetRange, Refused, StateWrite
from holdfast.records.share.batches import StateBatch


class Head(NamedTuple):
    """The head of a record batch."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False


def heads(*ranges: tuple[int, int]) -> list[Head]:
    return [Head(first, last) for first, last in ranges]


def loaded(
    start_offset: int = 0,
    batches: Sequence[tuple[int, int, int, int]] = (),
    config: GroupConfig = DEFAULT,
) -> SharePartition:
    partition = SharePartition(7, config)
    partition.begin_load()
    assert partition.loaded(3, start_offset, [StateBatch(*batch) for batch in batches]) is None
    return partition


def acquire(
    partition: SharePartition,
    *ranges: tuple[int, int],
    member: str = "m1",
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    batch_size: int = 500,
    wanted: int = 500,
    at: int | None = None,
    now: float = 0,
    aborted: Sequence[OffsetRange] = (),
) -> list[tuple[int, ...]]:
    """Acquire from record batches; returns the ranges."""
    return [
        tuple(each)
        for each in acquire_all(
            partition,
            *ranges,
            member=member,
            mode=mode,
            batch_size=batch_size,
            wanted=wanted,
            at=at,
            now=now,
            aborted=aborted,
        ).ranges
    ]


def acquire_all(
    partition: SharePartition,
    *ranges: tuple[int, int],
    member: str = "m1",
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    batch_size: int = 500,
    wanted: int = 500,
    at: int | None = None,
    now: float = 0,
    aborted: Sequence[OffsetRange] = (),
) -> Acquired:
    fetch_offset = partition.next_fetch_offset() if at is None else at
    return partition.acquire(now, member, mode, batch_size, wanted, fetch_offset, heads(*ranges), aborted)


def begin_acknowledge(
    partition: SharePartition, *batches: tuple[int, int, Sequence[int]], member: str = "m1", now: float = 0
) -> StateWrite:
    write = partition.acknowledge(now, member, batches)
    assert isinstance(write, StateWrite), write
    return write


def acknowledge(
    partition: SharePartition, *batches: tuple[int, int, Sequence[int]], member: str = "m1", now: float = 0
) -> None:
    """Acknowledge, and let the write succeed."""
    settled = partition.write_done(begin_acknowledge(partition, *batches, member=member, now=now), 0)
    assert settled.error_code == 0


def refusal(
    partition: SharePartition, *batches: tuple[int, int, Sequence[int]], member: str = "m1", now: float = 0
) -> Refused:
    refused = partition.acknowledge(now, member, batches)
    assert isinstance(refused, Refused), refused
    return refused


def states(partition: SharePartition) -> list[tuple[int, int, int, int, str]]:
    """Return all known offsets as runs: first, last, state, count, member."""
    return [
        (run.first, run.last, run.state, run.count, run.member_id)
        for batch in partition.window.batches
        for run in batch.runs
    ]
