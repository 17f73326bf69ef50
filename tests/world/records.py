"""Records of a log of share state, as the log has them."""

from holdfast.records.share.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Update, Value


def encode_record(codec: Codec, key: SharePartitionKey, value: Value) -> tuple[bytes, bytes | None]:
    """Return key and value of a record, the value None for a tombstone."""
    kind = Kind.UPDATE if type(value) is Update else Kind.SNAPSHOT
    return encode_key(codec, key, kind), None if value is None else value_encoder(codec)(value)
