"""The files with one independent case per line: keys, codec, combining, offsets."""

from __future__ import annotations

from holdfast.records.errors import InvalidKey, RecordError, Undecodable, UnknownRecordType, UnknownVersion
from holdfast.records.share.codecs import codec, kafka
from holdfast.records.share.codecs.codec import Codec, Kind
from holdfast.records.share.combining import combine
from holdfast.records.share.keys import SharePartitionKey, format_key, java_string_hash, log_partition, parse_key
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.values import NOOP, Snapshot, Update
from holdfast.share.operations import find_malformed
from tests.vectors.fields import Fields, Mismatch, check
from tests.vectors.parity import join, last_redundant_offset
from tests.world.records import encode_record


def run_partition(case: Fields) -> None:
    """Check a coordinator key, its hash and its log partition."""
    key = case.take_key()
    check("coordinator key", format_key(key), case.take("key"))
    check("hash", java_string_hash(format_key(key)), case.take("hash"))
    _check_partitions(key, case)


def run_share_key(case: Fields) -> None:
    """Check whether a text is a coordinator key, and what it parses to."""
    text, is_valid = case.take("key"), case.take("valid")
    try:
        key = parse_key(text)
    except InvalidKey:
        check("valid", False, is_valid)
        case.take("exception")
        return
    check("valid", True, is_valid)
    check("key", key, case.take_key())
    check("canonical key", format_key(key), case.take("canonicalKey"))
    _check_partitions(key, case)


def _check_partitions(key: SharePartitionKey, case: Fields) -> None:
    for count, partition in case.take("partitionFor").items():
        check(f"log partition of {count}", log_partition(key, int(count)), partition)


def run_codec(case: Fields) -> None:
    """Check that bytes decode to the fields, and that the fields encode back to the bytes."""
    key_bytes, value_bytes = _take_bytes(case)
    record_type = case.take("recordType")
    type_name = case.take("type")
    with case.take_object("key") as fields:
        key = fields.take_key()
    check("decoded key", kafka.decode_key(key_bytes), (record_type, key, 0))
    check("encoded key", kafka.encode_key(key, record_type), key_bytes)
    record = codec.decode_record(key_bytes, value_bytes)
    if value_bytes is None:
        check("type", "tombstone", type_name)
        check("value", None, case.take("value"))
        # Kafka never writes a null update; to us it means nothing.
        check("decoded value", record.value, None if record_type == kafka.SNAPSHOT_TYPE else NOOP)
        check(
            "kind", codec.peek_kind(key_bytes, None), Kind.NOOP if record_type == kafka.UPDATE_TYPE else Kind.TOMBSTONE
        )
        return
    check("type", {0: "snapshot", 1: "update"}[record_type], type_name)
    check("value version", int.from_bytes(value_bytes[:2], "big"), case.take("valueVersion"))
    with case.take_object("value") as fields:
        value, unknown_tags = take_value(fields), _take_tags(fields)
    check("decoded value", kafka.decode_value(record_type, value_bytes), (value, unknown_tags, 0))
    check("encoded value", kafka.encode_value(value, unknown_tags).hex(), value_bytes.hex())
    check("decoded record", record, (key, value, 0))
    check("kind", codec.peek_kind(key_bytes, value_bytes), {0: Kind.SNAPSHOT, 1: Kind.UPDATE}[record_type])
    if unknown_tags == kafka.NO_TAGS:
        check("encoded record", encode_record(Codec.KAFKA, key, value), (key_bytes, value_bytes))


def run_codec_malformed(case: Fields) -> None:
    """Check what broken or unusual bytes lead to."""
    case.take("what")
    key_bytes, value_bytes = _take_bytes(case)
    is_ok = case.take("ok")
    try:
        record = codec.decode_record(key_bytes, value_bytes)
    except RecordError as error:
        check("ok", False, is_ok)
        case.take("message")
        match case.take("exception").rpartition("$")[2]:
            case "UnknownRecordTypeException":
                expected: type[RecordError] = UnknownRecordType
            case "UnknownRecordVersionException":
                expected = UnknownVersion
            case _:
                expected = Undecodable
        check("exception", type(error), expected)
        return
    check("ok", True, is_ok)
    decoded_key = kafka.decode_key(key_bytes)
    with case.take_object("key") as fields:
        check("key", record.key, fields.take_key())
    value_bytes_left = 0
    if value_bytes is None:
        check("value", None, case.take("value"))
    else:
        decoded_value = kafka.decode_value(decoded_key.record_type, value_bytes)
        with case.take_object("value") as fields:
            check("value", decoded_value.value, take_value(fields))
            check("unknown tags", decoded_value.unknown_tags, _take_tags(fields))
        check("value of the record", record.value, decoded_value.value)
        value_bytes_left = decoded_value.bytes_left
    check("bytes behind the key", decoded_key.bytes_left, case.take("keyBytesLeft"))
    check("bytes behind the value", value_bytes_left, case.take("valueBytesLeft"))
    check("trailing bytes", record.trailing_bytes, decoded_key.bytes_left + value_bytes_left)


def run_combiner(case: Fields) -> None:
    """Check the exact shape of combined batches, in which 4.4.0 counts where 4.3.1 left two as they were."""
    for remark in ("name", "table", "upstreamRuns", "upstreamTableSays", "kind"):
        case.take_if_there(remark)
    with case.take_object("in") as fields:
        current, incoming = fields.take_batches("sofar"), fields.take_batches("new")
        start_offset = fields.take("startOffset")
    batches = (*current, *incoming)
    combined = combine(current, incoming, start_offset)
    if any(case.take_if_there(remark) for remark in ("throws", "hang")):
        # A Write of such a batch is refused; a log of before may hold it, and then the other batches are combined.
        check("refused", find_malformed(batches) is not None, True)
        others = [batch for batch in batches if batch.first_offset <= batch.last_offset]
        check("combined", combined, combine(others, (), start_offset))
        return
    check("combined", tuple(combined), join(case.take_batches("out")))


def run_offsets(case: Fields) -> None:
    """Check the redundant offset after each snapshot or tombstone."""
    tracker, key_count = RedundantOffsetTracker(), case.take("keys")
    keys = [SharePartitionKey("group", number.to_bytes(16, "big"), 0) for number in range(key_count)]
    offsets = []
    for number, offset, is_tombstone in case.take_list("updates"):
        tracker.update(keys[number], offset, is_tombstone=is_tombstone)
        offsets.append(last_redundant_offset(tracker, offset))
    check("last redundant offsets", offsets, case.take_list("lastRedundantOffset"))


def take_value(fields: Fields) -> Snapshot | Update:
    """Return a snapshot or an update given by Kafka's fields; the fences of a snapshot are its epochs."""
    snapshot_epoch = fields.take("snapshotEpoch")
    leader_epoch, start_offset = fields.take("leaderEpoch"), fields.take("startOffset")
    delivery_complete_count, batches = fields.take("deliveryCompleteCount"), fields.take_batches("stateBatches")
    if "stateEpoch" not in fields:
        return Update(snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
    state_epoch = fields.take("stateEpoch")
    return Snapshot(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        delivery_complete_count,
        fields.take("createTimestamp"),
        fields.take("writeTimestamp"),
        batches,
        leader_epoch,
        state_epoch,
    )


def _take_tags(fields: Fields) -> kafka.UnknownTags:
    def tags(pairs: list[tuple[int, str]]) -> kafka.Tags:
        return tuple((tag, bytes.fromhex(content)) for tag, content in pairs)

    return kafka.UnknownTags(
        tags(fields.take_if_there("unknownTags", [])),
        tuple(tags(pairs) for pairs in fields.take_if_there("batchUnknownTags", [])),
    )


def _take_bytes(case: Fields) -> tuple[bytes, bytes | None]:
    value_hex = case.take("valueHex")
    key_hex = case.take("keyHex")
    if not isinstance(key_hex, str):
        raise Mismatch("keyHex is not a text")
    return bytes.fromhex(key_hex), None if value_hex is None else bytes.fromhex(value_hex)
