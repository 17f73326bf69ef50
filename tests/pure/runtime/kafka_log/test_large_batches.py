"""A record batch that is large without its compression: another thread decompresses it while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.record_batches import DamagedBatch, encode
from tests.configs import fetcher_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, batch
from tests.pure.runtime.kafka_log.fetcher_world import Reports, Sent, make_tail

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MIB = 1 << 20
CONFIG = fetcher_config(fetch_batch_bytes_max=4 * MIB)


def compressed(codec: int, value_bytes: int, count: int = 3) -> bytes:
    whole, _, _ = encode([(b"k", bytes(value_bytes), b"h%d" % each) for each in range(count)], 1_000, codec, 64 * MIB)
    return whole


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
async def fetcher(reports: Reports) -> AsyncIterator[Fetcher]:
    fetcher = make_tail(FakeBrokers({}), reports, Sent().batches, CONFIG)
    yield fetcher
    await fetcher.close()


async def deliver(fetcher: Fetcher, data: bytes, *, forgets: bool = False) -> int:
    """Deliver a fetch as its loop does; returns the number of waits for another thread."""
    fetcher.follow(0, 1, 0)
    waited = 0
    for awaited in fetcher.deliver(0, fetcher._partitions[0], Fetched(0, 0, 99, 0, False, data)):
        if awaited is not None:
            waited += 1
            if forgets:
                fetcher.forget(0)
            await asyncio.wait([awaited])
    return waited


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_large_batch_is_decompressed_by_another_thread(fetcher: Fetcher, reports: Reports, codec: int) -> None:
    assert await deliver(fetcher, compressed(codec, MIB)) == 1
    assert reports.lines[-1].endswith("stands at 3")


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_small_batch_waits_for_no_thread(fetcher: Fetcher, reports: Reports, codec: int) -> None:
    assert await deliver(fetcher, compressed(codec, 10_000)) == 0
    assert reports.lines[-1].endswith("stands at 3")


async def test_a_large_batch_without_compression_waits_for_no_thread(fetcher: Fetcher) -> None:
    assert await deliver(fetcher, batch(0, [bytes(900_000)])) == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_batch_above_its_bound_is_damaged_in_any_thread(fetcher: Fetcher, codec: int) -> None:
    with pytest.raises(DamagedBatch, match=f"more than {4 * MIB} bytes"):
        await deliver(fetcher, compressed(codec, 2 * MIB))


@pytest.mark.parametrize("value_bytes", [MIB, 2 * MIB])
async def test_a_partition_that_is_forgotten_meanwhile_is_told_nothing(
    fetcher: Fetcher, reports: Reports, value_bytes: int
) -> None:
    data = compressed(ZSTD, value_bytes)
    if value_bytes == MIB:
        assert await deliver(fetcher, data, forgets=True) == 1
    else:
        with pytest.raises(DamagedBatch):
            await deliver(fetcher, data, forgets=True)
    assert reports.lines == []
