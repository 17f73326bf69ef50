"""Records of a log of share state, as the log has them."""

from holdfast.records.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.keys import SharePartitionKey
from holdfast.records.values import Update, Value


def encode_record(codec: Codec, key: SharePartitionKey, value: Value) -> tuple[bytes, bytes | None]:
    """Return key and value of a record, the value None for a tombstone."""
    kind = Kind.UPDATE if type(value) is Update else Kind.SNAPSHOT
    return encode_key(codec, key, kind), None if value is None else value_encoder(codec)(value)
