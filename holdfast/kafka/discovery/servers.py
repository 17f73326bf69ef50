"""Metadata, versions 1 to 13, for the one thing that every client needs of it: which servers there are.

The servers stand at the beginning of an answer, so nothing behind them is read; the request names no topic.

Source: Apache Kafka's message schemas MetadataRequest and MetadataResponse.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Answer, Call
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.body import BodyReader

_THROTTLE_FROM: Final = 3
_AUTO_CREATION_FROM: Final = 4
_TOPIC_OPERATIONS_FROM: Final = 8
_CLUSTER_OPERATIONS: Final = range(8, 11)
_FLEXIBLE_FROM: Final = 9

#: The one item of such a call: all servers.
ALL: Final = "servers"


class Servers(NamedTuple):
    """The servers of a cluster, as one of them knows them."""

    addresses: tuple[Address, ...] = ()
    error_code: int = 0
    error_message: str | None = None


def _encode(version: int, _: Sequence[str]) -> bytes:
    is_flexible = version >= _FLEXIBLE_FROM
    no_topics = b"\x01" if is_flexible else bytes(4)
    flags = (version >= _AUTO_CREATION_FROM) + (version in _CLUSTER_OPERATIONS) + (version >= _TOPIC_OPERATIONS_FROM)
    return no_topics + bytes(flags) + bytes(is_flexible)


def _decode(version: int, items: Sequence[str], body: bytes) -> Answer[str, Servers]:
    reader = BodyReader(body, 0, is_flexible=version >= _FLEXIBLE_FROM)
    throttle_time_ms = reader.int32("ThrottleTimeMs") if version >= _THROTTLE_FROM else 0
    addresses = []
    for _ in range(reader.count("Brokers")):
        reader.int32("Brokers.NodeId")
        addresses.append((reader.string("Brokers.Host"), reader.int32("Brokers.Port")))
        reader.nullable_string("Brokers.Rack")
        reader.tags("Brokers")
    return Answer(throttle_time_ms, {items[0]: Servers(tuple(addresses))})


METADATA: Final[Call[str, Servers]] = Call(
    api_key=api_keys.METADATA,
    name="Metadata",
    versions=(1, 13),
    flexible_from=_FLEXIBLE_FROM,
    batched_from=None,
    encode=_encode,
    decode=_decode,
    refuse=lambda error_code, error_message: Servers((), error_code, error_message),
    error_of=lambda servers: servers.error_code,
)
