"""Avro single objects that are broken are named with what is wrong."""

from __future__ import annotations

import pytest

from holdfast.records.errors import Undecodable
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec, decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot
from tests.world.records import encode_record

SNAPSHOT = Snapshot(0, 0, 0, 0, 0, 1, 1, (StateBatch(0, 5, 2, 1),), 0, 0)
KEY, VALUE = encode_record(Codec.AVRO, SharePartitionKey("group", bytes(16), 0), SNAPSHOT)


def test_bytes_that_end_anywhere_are_refused_with_a_reason() -> None:
    assert VALUE is not None
    cut = [(KEY, VALUE[:size]) for size in range(2, len(VALUE))] + [(KEY[:size], VALUE) for size in range(2, len(KEY))]
    said = set()
    for key, value in cut:
        with pytest.raises(Undecodable) as refused:
            decode_record(key, value)
        assert "()" not in str(refused.value)
        said.add(str(refused.value))
    assert "The value cannot be decoded: its Avro body is broken (it ends too early)." in said
    assert "The key cannot be decoded: its Avro body is broken (it ends too early)." in said
