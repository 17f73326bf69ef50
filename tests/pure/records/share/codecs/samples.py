"""One record of each kind, its bytes in the Kafka codec, and tests of both codecs."""

from __future__ import annotations

import pytest

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update

CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)

KEY = SharePartitionKey("g1", bytes(range(16)), 7)
SNAPSHOT = Snapshot(3, 2, 5, 100, -1, 1735689600000, 1735689600000, (StateBatch(100, 109, 0, 2),), 5, 2)
UPDATE = Update(3, 5, 110, 4, (StateBatch(110, 119, 2, 1), StateBatch(120, 129, 4, 5)))

SNAPSHOT_KEY_BYTES = bytes.fromhex("0000 0002 6731 000102030405060708090a0b0c0d0e0f 00000007")
UPDATE_KEY_BYTES = b"\x00\x01" + SNAPSHOT_KEY_BYTES[2:]
SNAPSHOT_BYTES = bytes.fromhex(
    "0000 00000003 00000002 00000005 0000000000000064 000001941f297c00 000001941f297c00 02"
    "0000000000000064 000000000000006d 00 0002 00   00"
)
UPDATE_BYTES = bytes.fromhex(
    "0000 00000003 00000005 000000000000006e 03"
    "000000000000006e 0000000000000077 02 0001 00   0000000000000078 0000000000000081 04 0005 00"
    "01 00 04 00000004"
)
