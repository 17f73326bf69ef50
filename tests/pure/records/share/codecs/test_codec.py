"""Both codecs: round trips and the worked bytes of the specification; fastavro is the reference of one, Kafka of the other."""

from __future__ import annotations

from typing import Any

import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import InvalidKey, Undecodable
from holdfast.records.log.single_object import SingleObject
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs import avro, kafka
from holdfast.records.share.codecs.codec import (
    Codec,
    DecodedRecord,
    Kind,
    decode_key,
    decode_record,
    encode_key,
    peek_kind,
    value_encoder,
)
from holdfast.records.share.codecs.numbers import encode_numbers
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, Value
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
def test_encoded_values_decode_to_the_same(codec: Codec, key: SharePartitionKey, value: Value) -> None:
    key_bytes, value_bytes = encode_record(codec, key, value)
    assert decode_record(key_bytes, value_bytes) == DecodedRecord(key, value, 0)
    assert decode_key(key_bytes) == key
    kinds: dict[type, Kind] = {Snapshot: Kind.SNAPSHOT, Update: Kind.UPDATE}
    kind = kinds.get(type(value), Kind.TOMBSTONE)
    assert peek_kind(key_bytes, value_bytes) is kind
    assert encode_key(codec, key, kind) == key_bytes
    if value is not None:
        assert value_encoder(codec)(value) == value_bytes


@CODECS
def test_decoded_values_are_of_our_types_throughout(codec: Codec) -> None:
    for value in (SNAPSHOT, UPDATE):
        decoded = decode_record(*encode_record(codec, KEY, value))
        assert type(decoded.key) is SharePartitionKey
        assert type(decoded.value) is type(value)
        assert isinstance(decoded.value, Snapshot | Update)
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
