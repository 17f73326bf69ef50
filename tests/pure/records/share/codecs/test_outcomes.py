"""Both codecs: one defined outcome for any bytes of a record."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import RecordError, Undecodable, UnknownRecordType, UnknownVersion
from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.log.single_object import PREFIX_SIZE
from holdfast.records.share.codecs import avro, kafka
from holdfast.records.share.codecs.codec import Codec, DecodedRecord, Kind, decode_record, peek_kind
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import NOOP, Noop, Snapshot, Update, Value
from tests.pure.records.share.codecs.samples import (
    CODECS,
    KEY,
    SNAPSHOT,
    SNAPSHOT_BYTES,
    SNAPSHOT_KEY_BYTES,
    UPDATE,
    UPDATE_BYTES,
    UPDATE_KEY_BYTES,
)
from tests.pure.records.strategies import keys, values
from tests.world.records import encode_record

AVRO_KEY = avro.encode_key(KEY)
AVRO_SNAPSHOT = avro.encode_value(SNAPSHOT)
AVRO_UPDATE = avro.encode_value(UPDATE)
UNKNOWN_SCHEMA = b"\xc3\x01" + bytes(range(8))


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "value", "trailing_bytes", "kind"),
    [
        pytest.param(AVRO_KEY, None, None, 0, Kind.TOMBSTONE, id="tombstone, Avro"),
        pytest.param(SNAPSHOT_KEY_BYTES, None, None, 0, Kind.TOMBSTONE, id="tombstone, Kafka"),
        pytest.param(UPDATE_KEY_BYTES, None, NOOP, 0, Kind.NOOP, id="null update"),
        pytest.param(SNAPSHOT_KEY_BYTES, SNAPSHOT_BYTES + b"abc", SNAPSHOT, 3, Kind.SNAPSHOT, id="bytes behind value"),
        pytest.param(UPDATE_KEY_BYTES + b"x", UPDATE_BYTES + b"y", UPDATE, 2, Kind.UPDATE, id="bytes behind both"),
        pytest.param(SNAPSHOT_KEY_BYTES + b"x", None, None, 1, Kind.TOMBSTONE, id="bytes behind a tombstone's key"),
    ],
)
def test_records_that_decode(
    key_bytes: bytes, value_bytes: bytes | None, value: Value | Noop, trailing_bytes: int, kind: Kind
) -> None:
    assert decode_record(key_bytes, value_bytes) == (KEY, value, trailing_bytes)
    assert peek_kind(key_bytes, value_bytes) is kind


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "error_type", "message", "kind"),
    [
        pytest.param(
            b"\x00\x02" + SNAPSHOT_KEY_BYTES[2:],
            SNAPSHOT_BYTES,
            UnknownRecordType,
            "The record type 2 is unknown; a newer version may have written it.",
            Kind.UNKNOWN,
            id="unknown record type",
        ),
        pytest.param(
            CHECKPOINT_KEY,
            b"",
            UnknownRecordType,
            "The record type 1000 is unknown; a newer version may have written it.",
            Kind.CHECKPOINT,
            id="checkpoint",
        ),
        pytest.param(
            UPDATE_KEY_BYTES,
            b"\x00\x01" + UPDATE_BYTES[2:],
            UnknownVersion,
            "The value cannot be decoded: version 1 is unknown, upgrade Holdfast to read it.",
            Kind.UPDATE,
            id="unknown value version",
        ),
        pytest.param(
            AVRO_KEY,
            UNKNOWN_SCHEMA + b"abc",
            UnknownVersion,
            "The value cannot be decoded: schema fingerprint 0706050403020100 is unknown, upgrade Holdfast to read it.",
            None,
            id="unknown schema of a value",
        ),
        pytest.param(
            UNKNOWN_SCHEMA,
            None,
            UnknownVersion,
            "The key cannot be decoded: schema fingerprint 0706050403020100 is unknown, upgrade Holdfast to read it.",
            None,
            id="unknown schema of a key",
        ),
        pytest.param(None, b"", Undecodable, "The key cannot be decoded: there is none.", None, id="no key"),
        pytest.param(
            b"\x00",
            None,
            Undecodable,
            "The key cannot be decoded: it ends within its record type.",
            None,
            id="short key",
        ),
        pytest.param(
            b"\xc3\x01\x00",
            None,
            Undecodable,
            "The key cannot be decoded: it ends within its schema fingerprint.",
            None,
            id="short fingerprint",
        ),
        pytest.param(
            AVRO_KEY + b"x",
            None,
            Undecodable,
            "The key cannot be decoded: 1 bytes follow its Avro body.",
            Kind.TOMBSTONE,
            id="bytes behind an Avro key",
        ),
        pytest.param(
            AVRO_KEY,
            AVRO_UPDATE + b"x",
            Undecodable,
            "The value cannot be decoded: 1 bytes follow its Avro body.",
            Kind.UPDATE,
            id="bytes behind an Avro value",
        ),
        pytest.param(
            AVRO_KEY,
            SNAPSHOT_BYTES,
            Undecodable,
            "The value cannot be decoded: it does not begin with the marker of an Avro single object.",
            None,
            id="Kafka value under an Avro key",
        ),
        pytest.param(
            SNAPSHOT_KEY_BYTES,
            b"",
            Undecodable,
            "The value cannot be decoded: it ends within its version.",
            Kind.SNAPSHOT,
            id="empty value",
        ),
        pytest.param(
            SNAPSHOT_KEY_BYTES,
            SNAPSHOT_BYTES[:38] + b"\x00\x00",
            Undecodable,
            "The value cannot be decoded: StateBatches at byte 38: it must not be null.",
            Kind.SNAPSHOT,
            id="null batches",
        ),
        pytest.param(
            b"\x00\x00\xff\xff" + SNAPSHOT_KEY_BYTES[4:],
            None,
            Undecodable,
            "The key cannot be decoded: its group id is null.",
            Kind.TOMBSTONE,
            id="null group id",
        ),
        pytest.param(
            SNAPSHOT_KEY_BYTES.replace(b"g1", b"\xff\xfe"),
            None,
            Undecodable,
            "The key cannot be decoded: its group id is not UTF-8.",
            Kind.TOMBSTONE,
            id="group id that is not UTF-8",
        ),
        pytest.param(
            AVRO_KEY.replace(b"g1", b"\xff\xfe"),
            None,
            Undecodable,
            "The key cannot be decoded: its group id is not UTF-8.",
            Kind.TOMBSTONE,
            id="group id that is not UTF-8, Avro",
        ),
    ],
)
def test_records_that_do_not_decode(
    key_bytes: bytes | None, value_bytes: bytes | None, error_type: type[RecordError], message: str, kind: Kind | None
) -> None:
    with pytest.raises(RecordError) as raised:
        decode_record(key_bytes, value_bytes)
    assert type(raised.value) is error_type
    assert str(raised.value) == message
    if kind is None:
        with pytest.raises(RecordError) as raised:
            peek_kind(key_bytes, value_bytes)
        assert (type(raised.value), str(raised.value)) == (error_type, message)
    else:
        assert peek_kind(key_bytes, value_bytes) is kind


@CODECS
@given(key=keys, value=values, data=st.data())
def test_whatever_is_cut_short_is_undecodable(
    codec: Codec, key: SharePartitionKey, value: Snapshot | Update, data: st.DataObject
) -> None:
    key_bytes, value_bytes = encode_record(codec, key, value)
    assert value_bytes is not None
    with pytest.raises(Undecodable):
        decode_record(key_bytes, value_bytes[: data.draw(st.integers(0, len(value_bytes) - 1))])
    with pytest.raises(Undecodable):
        decode_record(key_bytes[: data.draw(st.integers(0, len(key_bytes) - 1))], value_bytes)


@CODECS
@given(key=keys, value=values, data=st.data())
def test_mutated_records_decode_or_raise_a_record_error(
    codec: Codec, key: SharePartitionKey, value: Snapshot | Update, data: st.DataObject
) -> None:
    key_bytes, value_bytes = encode_record(codec, key, value)
    assert value_bytes is not None
    mutated = [bytearray(key_bytes), bytearray(value_bytes)]
    for _ in range(data.draw(st.integers(1, 4))):
        target = mutated[data.draw(st.integers(0, 1))]
        target[data.draw(st.integers(0, len(target) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_record(bytes(mutated[0]), bytes(mutated[1]))
    except RecordError:
        return
    assert isinstance(decoded.value, Snapshot | Update)


@given(st.binary(max_size=60), st.binary(max_size=60) | st.none(), st.sampled_from((b"", b"\x00\x00", AVRO_KEY[:10])))
def test_any_bytes_decode_or_raise_a_record_error(key: bytes, value: bytes | None, start: bytes) -> None:
    for read, kind in ((decode_record, DecodedRecord), (peek_kind, Kind)):
        try:
            found = read(start + key, value)
        except RecordError:
            continue
        assert isinstance(found, kind)


@pytest.mark.parametrize("bytes_behind", [b"\x00", b"\x80", b"\x80\x80"])
def test_bytes_behind_an_avro_body_are_undecodable_whatever_they_are(bytes_behind: bytes) -> None:
    for key_bytes, value_bytes in (
        (AVRO_KEY + bytes_behind, None),
        (AVRO_KEY, AVRO_UPDATE + bytes_behind),
        (AVRO_KEY, AVRO_SNAPSHOT + bytes_behind),
    ):
        with pytest.raises(Undecodable):
            decode_record(key_bytes, value_bytes)


@pytest.mark.parametrize("varint", [b"\xff" * 9 + b"\x01", b"\xff" * 11 + b"\x7f", b"\x80" * 20 + b"\x01"])
def test_no_avro_number_is_beyond_64_bits(varint: bytes) -> None:
    value = avro.decode_value(avro.UPDATE_PREFIX + b"\x02\x02" + varint + b"\x02\x00")
    assert isinstance(value, Update)
    assert -(1 << 63) <= value.start_offset < 1 << 63


def test_a_corrupt_length_takes_no_memory() -> None:
    announced = SNAPSHOT_BYTES[:38] + b"\xff\xff\xff\xff\x07" + bytes(40)
    with pytest.raises(Undecodable, match="2147483646 elements are announced and 40 bytes are left"):
        decode_record(SNAPSHOT_KEY_BYTES, announced)
    with pytest.raises(Undecodable):
        decode_record(
            AVRO_KEY, AVRO_UPDATE[:PREFIX_SIZE] + bytes(4) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(8)
        )


def test_numbers_beyond_their_field_are_refused() -> None:
    with pytest.raises(struct.error):
        kafka.encode_value(UPDATE._replace(leader_epoch=1 << 31))
