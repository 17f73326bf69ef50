"""Share partition keys: their identity, their text form and the log partition they live in.

The text form ("coordinator key") is `group:topic:partition`; the group id may itself contain colons, so it is read
from the right. The bytes of keys and values are in `codecs`.

Source: the key grammar and hash of Apache Kafka (4.3.1 and 4.4.0 agree), as recorded in the share_key and partition vectors.
"""

from __future__ import annotations

import sys
from operator import mul
from typing import Final, NamedTuple

from holdfast.kafka.topic_ids import InvalidTopicId, format_topic_id, parse_topic_id
from holdfast.records.errors import InvalidKey
from holdfast.records.log.checkpoint import Placement

#: Bytes that a group id may take in UTF-8, as many as Kafka's record keys can carry; in any codec, so that a log can be moved to the other.
GROUP_ID_BYTES_MAX: Final = 0x7FFF
_UTF_8_BYTES_MAX: Final = 4

_LAST_OF_BASIC_PLANE: Final = "\uffff"
#: Digits of the largest numbers of 32 bits.
_INT32_DIGITS: Final = 10
# The characters that Java's String.trim removes.
_TRIMMED = "".join(map(chr, range(0x21)))

_HASH_CHUNK = 256
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_HASH_CHUNK + 1))
_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def is_group_id_too_long(group_id: str) -> bool:
    """Tell whether a group id takes more than `GROUP_ID_BYTES_MAX`; most are so short that they need not be encoded for that."""
    return len(group_id) * _UTF_8_BYTES_MAX > GROUP_ID_BYTES_MAX and len(group_id.encode()) > GROUP_ID_BYTES_MAX


class SharePartitionKey(NamedTuple):
    """Name one topic partition as seen by one share group."""

    group_id: str
    #: 16 bytes.
    topic_id: bytes
    partition: int


def format_key(key: SharePartitionKey) -> str:
    """Return the canonical coordinator key, `group:topic:partition`."""
    return f"{key.group_id}:{format_topic_id(key.topic_id)}:{key.partition}"


def parse_key(text: str) -> SharePartitionKey:
    """Return the share partition that a coordinator key names.

    Empty pieces at the end are dropped first; the last piece is the partition, the one before it the topic id, all
    others the group id.

    Raises:
        InvalidKey: fewer than three pieces, a blank group id, no topic id, or a partition that is not a 32 bit number.
    """
    pieces = text.rstrip(":").rsplit(":", 2)
    if len(pieces) < 3:
        raise InvalidKey(text, "a coordinator key is group:topic:partition")
    group_id, topic_id, partition = pieces
    if not group_id.strip(_TRIMMED):
        raise InvalidKey(text, "the group id is blank")
    number = _parse_int32(partition)
    if number is None:
        raise InvalidKey(text, "the partition is not a 32 bit number")
    try:
        return SharePartitionKey(group_id, parse_topic_id(topic_id), number)
    except InvalidTopicId as error:
        raise InvalidKey(topic_id, error.reason) from None


def _parse_int32(text: str) -> int | None:
    """Return the number that Java's `Integer.parseInt` reads, None where it reads none.

    It takes any number of zeros in front, and decimal digits of any script, but those outside of the basic plane: it looks
    at UTF-16 code units. `int` would refuse thousands of digits, and take time that grows with their square.
    """
    is_signed = text[:1] in ("+", "-")
    digits = text[is_signed:]
    if not digits.isdecimal() or max(set(digits)) > _LAST_OF_BASIC_PLANE:
        return None
    if any(map(int, set(digits[:-_INT32_DIGITS]))):
        return None
    number = int(digits[-_INT32_DIGITS:])
    if text[0] == "-":
        number = -number
    return number if -(1 << 31) <= number < 1 << 31 else None


def java_string_hash(text: str, before: int = 0) -> int:
    """Return Java's `String.hashCode` of `text`: signed 32 bit, over its UTF-16 code units.

    Args:
        text: what is hashed.
        before: the hash of the characters before `text` in the same string.
    """
    units = _code_units(text)
    value = before & 0xFFFFFFFF
    # One chunk is one call into C; the chunk bounds the sum to what a machine word holds.
    for start in range(0, len(units), _HASH_CHUNK):
        chunk = units[start : start + _HASH_CHUNK]
        value = value * _POWERS[len(chunk)] + sum(map(mul, chunk[::-1], _POWERS)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _code_units(text: str) -> bytes | memoryview:
    """Return the UTF-16 code units of `text` as numbers; ASCII text needs no second form."""
    if text.isascii():
        return text.encode("ascii")
    return memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")


def group_hash(group_id: str, placement: Placement = Placement.BY_GROUP) -> int:
    """Return what all keys of a group have in common, for `log_partition`; it takes the time of reading the group id."""
    return 0 if placement is Placement.BY_TOPIC_PARTITION else java_string_hash(f"{group_id}:")


def log_partition(
    key: SharePartitionKey,
    partition_count: int,
    placement: Placement = Placement.BY_GROUP,
    hash_of_group: int | None = None,
) -> int:
    """Return the log partition, 0 ≤ result < `partition_count`, that holds the state of `key`.

    Args:
        key: the share partition; of one by topic partition the group does not matter.
        partition_count: of the log.
        placement: of the log; Kafka's own is by group.
        hash_of_group: `group_hash` of its group and this placement, if that is known already.
    """
    before = group_hash(key.group_id, placement) if hash_of_group is None else hash_of_group
    value = java_string_hash(f"{format_topic_id(key.topic_id)}:{key.partition}", before)
    return partition_of_hash(value, partition_count)


def partition_of_hash(value: int, partition_count: int) -> int:
    """Return the log partition of a key by its hash."""
    # Java's abs(-2^31) overflows; Kafka takes 0 in its place.
    return 0 if value == -(1 << 31) else abs(value) % partition_count
