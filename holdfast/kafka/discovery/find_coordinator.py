"""FindCoordinator from a client's side, versions 0 to 6: keys of three types, batched from version 4 on.

    v0     Key                                     → ErrorCode NodeId Host Port
    v1–3   Key KeyType                             → ThrottleTimeMs ErrorCode ErrorMessage NodeId Host Port
    v4–6   KeyType [CoordinatorKeys]               → ThrottleTimeMs [Key NodeId Host Port ErrorCode ErrorMessage]

Version 0 has no key types: it would look up a group of the name of a transaction, so such a key is never sent in it.

Source: Apache Kafka's message schemas FindCoordinatorRequest and FindCoordinatorResponse; KIP-699, KIP-932.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Answer, Call
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import encode_legacy_string, encode_string, encode_varint

_KEY_TYPES_FROM: Final = 1
_FLEXIBLE_FROM: Final = 3
_BATCHED_FROM: Final = 4
_INT8: Final = Struct(">b")


class KeyType(IntEnum):
    """What a key names, by Kafka's number."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


#: The first version that can name a key of a type.
LOWEST_VERSION: Final = {KeyType.GROUP: 0, KeyType.TRANSACTION: _KEY_TYPES_FROM, KeyType.SHARE: 6}


class Key(NamedTuple):
    """What is coordinated: the id of a group, of a transaction, or `group:topic id:partition`."""

    type: KeyType
    text: str


class Found(NamedTuple):
    """The server that coordinates a key, or why none is known."""

    node_id: int
    host: str
    port: int
    #: 0: it is known.
    error_code: int = 0
    error_message: str | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.host, self.port


def refuse(error_code: int, error_message: str | None) -> Found:
    """Return what stands for a key without a coordinator."""
    return Found(-1, "", -1, error_code, error_message)


def _encode(version: int, keys: Sequence[Key]) -> bytes:
    key_type = _INT8.pack(keys[0].type)
    if version >= _BATCHED_FROM:
        texts = b"".join(encode_string(key.text) for key in keys)
        return b"%b%b%b\x00" % (key_type, encode_varint(len(keys) + 1), texts)
    (key,) = keys
    if version >= _FLEXIBLE_FROM:
        return b"%b%b\x00" % (encode_string(key.text), key_type)
    text = encode_legacy_string(key.text)
    return text + key_type if version >= _KEY_TYPES_FROM else text


def _decode(version: int, keys: Sequence[Key], body: bytes) -> Answer[Key, Found]:
    reader = BodyReader(body, 0, is_flexible=version >= _FLEXIBLE_FROM)
    throttle_time_ms = reader.int32("ThrottleTimeMs") if version >= 1 else 0
    found: dict[Key, Found] = {}
    if version >= _BATCHED_FROM:
        for _ in range(reader.count("Coordinators")):
            key = Key(keys[0].type, reader.string("Coordinators.Key"))
            node_id, host, port = _server(reader, "Coordinators.")
            error_code = reader.int16("Coordinators.ErrorCode")
            found[key] = Found(node_id, host, port, error_code, reader.nullable_string("Coordinators.ErrorMessage"))
            reader.tags("Coordinators")
    else:
        error_code = reader.int16("ErrorCode")
        error_message = reader.nullable_string("ErrorMessage") if version >= 1 else None
        found[keys[0]] = Found(*_server(reader, ""), error_code, error_message)
    reader.end()
    return Answer(throttle_time_ms, found)


def _server(reader: BodyReader, path: str) -> tuple[int, str, int]:
    return reader.int32(f"{path}NodeId"), reader.string(f"{path}Host"), reader.int32(f"{path}Port")


FIND_COORDINATOR: Final[Call[Key, Found]] = Call(
    api_key=api_keys.FIND_COORDINATOR,
    name="FindCoordinator",
    versions=(0, 6),
    flexible_from=_FLEXIBLE_FROM,
    batched_from=_BATCHED_FROM,
    encode=_encode,
    decode=_decode,
    refuse=refuse,
    error_of=lambda found: found.error_code,
    kind=lambda key: key.type,
    lowest=lambda key: LOWEST_VERSION[key.type],
)
