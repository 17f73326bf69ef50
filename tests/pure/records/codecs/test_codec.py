"""Both codecs: round trips, the worked bytes of the specification, and one defined outcome for whatever else bytes may be."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.batches import StateBatch
from holdfast.records.checkpoint import CHECKPOINT_KEY
from holdfast.records.codecs import avro, kafka
from holdfast.records.codecs.codec import (
    Codec,
    DecodedRecord,
    Kind,
    decode_key,
    decode_record,
    encode_key,
    encode_record,
    encode_value,
    peek_kind,
)
from holdfast.records.codecs.numbers import encode_numbers
from holdfast.records.errors import InvalidKey, RecordError, Undecodable, UnknownRecordType, UnknownVersion
from holdfast.records.keys import SharePartitionKey
from holdfast.records.single_object import PREFIX_SIZE, SingleObject
from holdfast.records.values import NOOP, Noop, Snapshot, Update, Value
from tests.pure.records.strategies import keys, values

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


@pytest.mark.parametrize(
    ("value", "key_bytes", "value_bytes"),
    [
        (SNAPSHOT, SNAPSHOT_KEY_BYTES, SNAPSHOT_BYTES),
        (UPDATE, UPDATE_KEY_BYTES, UPDATE_BYTES),
        (None, SNAPSHOT_KEY_BYTES, None),
    ],
)
def test_the_worked_bytes_of_the_kafka_codec(value: Value, key_bytes: bytes, value_bytes: bytes | None) -> None:
    assert encode_record(Codec.KAFKA, KEY, value) == (key_bytes, value_bytes)
    assert decode_record(key_bytes, value_bytes) == (KEY, value, 0)


@CODECS
@given(key=keys, value=values | st.none())
def test_what_was_encoded_decodes_to_the_same(codec: Codec, key: SharePartitionKey, value: Value) -> None:
    key_bytes, value_bytes = encode_record(codec, key, value)
    assert decode_record(key_bytes, value_bytes) == DecodedRecord(key, value, 0)
    assert decode_key(key_bytes) == key
    kinds: dict[type, Kind] = {Snapshot: Kind.SNAPSHOT, Update: Kind.UPDATE}
    kind = kinds.get(type(value), Kind.TOMBSTONE)
    assert peek_kind(key_bytes, value_bytes) is kind
    assert encode_key(codec, key, kind) == key_bytes
    if value is not None:
        assert encode_value(codec, value) == value_bytes


@CODECS
def test_decoded_values_are_of_our_types_throughout(codec: Codec) -> None:
    for value in (SNAPSHOT, UPDATE):
        decoded = decode_record(*encode_record(codec, KEY, value))
        assert type(decoded.key) is SharePartitionKey
        assert type(decoded.value) is type(value)
        assert isinstance(decoded.value, Snapshot | Update)
        assert type(decoded.value.state_batches) is tuple
        assert {type(batch) for batch in decoded.value.state_batches} == {StateBatch}


# ---- Avro: fastavro is the reference ---------------------------------------------------------------------------------

FASTAVRO = {
    SharePartitionKey: SingleObject("share_partition"),
    Snapshot: SingleObject("share_snapshot"),
    Update: SingleObject("share_update"),
}


FINGERPRINTS = {
    "SharePartitionKey": "c301fa54a69d78540445",
    "Snapshot": "c3012b6da5941c6ba8ff",
    "Update": "c301846e44c8e3b38313",
}


def test_the_prefix_is_the_fingerprint_of_the_avro_specification() -> None:
    def fingerprint(canonical_form: bytes) -> int:
        value = empty = 0xC15D213AA4D7A795
        for byte in canonical_form:
            low = (value ^ byte) & 0xFF
            for _ in range(8):
                low = low >> 1 ^ (empty if low & 1 else 0)
            value = value >> 8 ^ low
        return value

    assert fingerprint(b'"int"') == 0x7275D51A3F395C8F  # from the specification's own tests
    for schema in FASTAVRO.values():
        canonical_form = to_parsing_canonical_form(schema.schema).encode()
        assert schema.prefix == b"\xc3\x01" + fingerprint(canonical_form).to_bytes(8, "little")


def as_avro(record: Any) -> dict[str, Any]:
    fields: dict[str, Any] = record._asdict()
    if "state_batches" in fields:
        fields["state_batches"] = [batch._asdict() for batch in fields["state_batches"]]
    return fields


@given(keys)
def test_our_keys_are_those_of_fastavro(key: SharePartitionKey) -> None:
    by_fastavro = FASTAVRO[SharePartitionKey].encode(as_avro(key))
    assert avro.encode_key(key) == by_fastavro
    assert avro.decode_key(by_fastavro) == key


@given(values)
def test_our_values_are_those_of_fastavro(value: Snapshot | Update) -> None:
    reference = FASTAVRO[type(value)]
    by_fastavro = reference.encode(as_avro(value))
    assert avro.encode_value(value) == by_fastavro
    assert avro.decode_value(by_fastavro) == value
    assert reference.decode("value", avro.encode_value(value)) == as_avro(value)


@given(values, st.data())
def test_avro_arrays_in_several_blocks_are_read(value: Snapshot | Update, data: st.DataObject) -> None:
    """Avro allows what we never write: blocks of any length, and their size in bytes before the items."""
    batches = list(value.state_batches)
    body = FASTAVRO[type(value)].encode(as_avro(value._replace(state_batches=())))
    # An empty array is one zero byte; in a snapshot the two fences follow it.
    fences = b"" if isinstance(value, Update) else encode_numbers(value[8:])
    head = body[: len(body) - len(fences) - 1]
    blocks = b""
    while batches:
        size = data.draw(st.integers(1, len(batches)))
        items = b"".join(encode_numbers(batch) for batch in batches[:size])
        with_size = data.draw(st.booleans())
        blocks += encode_numbers((-size, len(items)) if with_size else (size,)) + items
        del batches[:size]
    assert avro.decode_value(head + blocks + b"\x00" + fences) == value


@pytest.mark.parametrize("schema", FASTAVRO.values(), ids=lambda schema: schema.schema_name)
def test_every_schema_says_what_its_fields_mean(schema: SingleObject) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, dict) and node["type"] == "record":
            assert node["doc"].endswith(".")
            for field in node["fields"]:
                assert field["doc"].endswith(".")
                visit(field["type"])
        elif isinstance(node, dict) and node["type"] == "array":
            visit(node["items"])

    assert schema.schema["namespace"] == "io.holdfast"
    visit(schema.schema)


def test_the_fingerprints_of_released_schemas_never_change() -> None:
    prefixes = {type_.__name__: schema.prefix.hex() for type_, schema in FASTAVRO.items()}
    assert prefixes == FINGERPRINTS


# ---- Kafka: fences and tags ------------------------------------------------------------------------------------------


def test_fences_travel_only_where_they_differ_from_the_stored_epochs() -> None:
    fenced = SNAPSHOT._replace(leader_epoch=0, leader_epoch_fence=9)
    value_bytes = kafka.encode_value(fenced)
    assert value_bytes[-13:].hex(" ") == "01 e6 d0 01 08 00 00 00 09 00 00 00 02"
    assert kafka.decode_value(kafka.SNAPSHOT_TYPE, value_bytes) == (fenced, kafka.NO_TAGS, 0)


def test_tags_are_in_ascending_order_whoever_knows_them() -> None:
    fenced = SNAPSHOT._replace(delivery_complete_count=4, state_epoch_fence=9)
    tags = kafka.UnknownTags(((3, b"abc"), (99999, b"")), (((1, b"x"),),))
    value_bytes = kafka.encode_value(fenced, tags)
    of_batch, of_value = (
        "01 01 01 78",
        "04 00 04 00 00 00 04 03 03 61 62 63 e6 d0 01 08 00 00 00 05 00 00 00 09 9f 8d 06 00",
    )
    assert value_bytes.endswith(bytes.fromhex(of_batch + of_value))
    assert kafka.decode_value(kafka.SNAPSHOT_TYPE, value_bytes) == (fenced, tags, 0)


tag_lists = st.dictionaries(
    st.integers(1, 20000) | st.integers(30000, (1 << 31) - 1), st.binary(max_size=4), max_size=3
).map(lambda tags: tuple(sorted(tags.items())))


@given(values, tag_lists, st.data())
def test_unknown_tags_travel_both_ways(value: Snapshot | Update, tags: kafka.Tags, data: st.DataObject) -> None:
    batch_tags = tuple(data.draw(tag_lists) for _ in value.state_batches)
    unknown = kafka.UnknownTags(tags, batch_tags if any(batch_tags) else ())
    value_bytes = kafka.encode_value(value, unknown)
    record_type = kafka.UPDATE_TYPE if isinstance(value, Update) else kafka.SNAPSHOT_TYPE
    assert kafka.decode_value(record_type, value_bytes) == (value, unknown, 0)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_the_announced_size_of_a_known_tag_is_ignored_as_kafka_does(size: int) -> None:
    # Seen by running Kafka's own serde.
    value_bytes = (
        bytes.fromhex("00000000000300000005000000000000006e01") + bytes((1, 0, size)) + bytes.fromhex("00000004")
    )
    assert decode_record(UPDATE_KEY_BYTES, value_bytes) == (KEY, UPDATE._replace(state_batches=()), 0)


def test_fences_of_another_size_are_undecodable() -> None:
    with pytest.raises(Undecodable):
        decode_record(SNAPSHOT_KEY_BYTES, SNAPSHOT_BYTES[:-1] + bytes.fromhex("01 e6 d0 01 04 00000009"))


def test_a_group_id_too_long_for_kafka_is_refused_by_name() -> None:
    key = KEY._replace(group_id="ä" * 16384)
    with pytest.raises(InvalidKey, match="the group id has more than 32767 bytes in UTF-8"):
        encode_record(Codec.KAFKA, key, None)
    assert decode_record(*encode_record(Codec.AVRO, key, None)).key == key
    longest = KEY._replace(group_id="a" * 32767)
    assert decode_record(*encode_record(Codec.KAFKA, longest, None)).key == longest


# ---- one outcome for everything --------------------------------------------------------------------------------------

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
    for read in (decode_record, peek_kind):
        try:
            read(start + key, value)
        except RecordError:
            continue


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


def test_a_corrupt_length_asks_for_no_memory() -> None:
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
