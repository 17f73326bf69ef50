"""What was compressed comes back, and what would exceed the bound is refused before there is room made for it."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable

import pytest
from aiokafka import codec  # type: ignore[import-untyped]  # it ships no types

from holdfast.kafka.aiokafka_parts import make_batch_builder
from holdfast.kafka.decompression import TooLarge, decompress
from holdfast.runtime.kafka_log.record_batches import DamagedBatch, decode, take

MIB = 1 << 20
Compress = Callable[[bytes], bytes]
CODECS: list[tuple[int, Compress]] = [
    (1, codec.gzip_encode),
    (2, codec.snappy_encode),
    (2, lambda data: codec.snappy_encode(data, xerial_compatible=False)),
    (3, codec.lz4_encode),
    (4, codec.zstd_encode),
]
IDS = ["gzip", "snappy in blocks", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize(("number", "compress"), CODECS, ids=IDS)
@pytest.mark.parametrize("size", [1, 1_000, 32 * 1024, 400_000])
def test_what_was_compressed_comes_back_up_to_the_bound(number: int, compress: Compress, size: int) -> None:
    data = os.urandom(size // 2) + bytes(size - size // 2)
    assert decompress(number, bytes(compress(data)), size) == data
    with pytest.raises(TooLarge, match=f"more than {size - 1} bytes"):
        decompress(number, bytes(compress(data)), size - 1)


@pytest.mark.parametrize(("number", "compress"), CODECS, ids=IDS)
def test_a_bomb_is_refused_and_takes_no_room(number: int, compress: Compress) -> None:
    bomb = bytes(compress(bytes(256 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(number, bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB + len(bomb)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("number", "compress"), CODECS, ids=IDS)
def test_damaged_data_is_an_error(number: int, compress: Compress) -> None:
    data = bytes(compress(os.urandom(10_000)))
    for damaged in (data[: len(data) // 2], b"", b"\xff" * 100):
        with pytest.raises(Exception):  # noqa: B017, PT011  # whatever the library raises
            decompress(number, damaged, MIB)
    with pytest.raises(ValueError, match="no codec 7"):
        decompress(7, data, MIB)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_record_batch_that_is_a_bomb_is_a_damaged_one(number: int) -> None:
    builder = make_batch_builder(number, 64 * MIB)
    builder.append(0, 1_000, b"key", bytes(32 * MIB), [])
    builder.append(1, 1_000, b"key", b"value", [])
    batch = bytes(builder.build())
    assert len(batch) < 2 * MIB
    with pytest.raises(DamagedBatch, match=f"more than {16 * MIB} bytes"):
        decode(batch, 0, 16 * MIB, 1)
    assert [record.value for record in take(decode(batch, 1, 64 * MIB, 1), 10, 1)] == [b"value"]
