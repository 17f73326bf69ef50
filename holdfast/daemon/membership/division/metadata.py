"""What a member says when it joins: where it is, what it holds, the highest ownership generation that it has seen, who may serve what.

One version of these bytes has one name of a group protocol for each way to rebalance, and members offer the newest first;
the broker picks the best that all of them know, so an upgrade may go from node to node.
Numbers are big-endian, strings and arrays Kafka's compact ones; tagged fields that a reader does not know are passed over:

    host string | port int32 | node id int32 | machine string
    | config offset int64 | ownership generation int64 | highest one seen int64
    | tasks [int32] | duties [string] | duties that it can do [string]
    | nodes that may serve [host string, port int32, node id int32, tasks [int32], wait in ms int64, tagged fields] | tagged fields

    tagged field 0, absent where it is empty: log partitions out of reach [int32]

Source: Kafka Connect's `WorkerState` (`ConnectProtocol`), KIP-482.
"""

from __future__ import annotations

from struct import Struct, pack, unpack
from typing import Final, NamedTuple

from holdfast.daemon.membership.division.bounds import (
    DUTIES_MAX,
    FORMER_OWNERS_MAX,
    HOST_CHARACTERS_MAX,
    bounded,
    check_ascending,
    read_generation,
    read_host,
    read_node_id,
    read_offset,
    read_port,
    read_text,
    read_wait,
)
from holdfast.daemon.membership.division.ownership_map import FormerOwner
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import MalformedBody, encode_string, encode_tags, encode_varint
from holdfast.records.log.checkpoint import Placement

#: Of the protocol that a group of nodes speaks; no other program's members may join it.
PROTOCOL_TYPE: Final = "holdfast"
#: What moves is given up when the new assignment has come, and everything else goes on.
COOPERATIVE: Final = "cooperative-1"
#: Everything is given up before a member joins again.
EAGER: Final = "eager-1"
#: Ends the names where share partitions lie by topic partition. A version that knows no placement offers none of these names, so
#: the broker lets it into no group whose log it could not serve, or lets nobody else into its own.
_BY_TOPIC_PARTITION: Final = "-by-topic-partition"

#: Number of a tagged field of the body.
_OUT_OF_REACH: Final = 0
_PLACE: Final = Struct(">ii")
_NUMBERS: Final = Struct(">qqq")
_WAIT: Final = Struct(">q")


def protocol_names(*names: str, placement: Placement) -> tuple[str, ...]:
    """Return the names of protocols in a group that serves a log of this placement."""
    return names if placement is Placement.BY_GROUP else tuple(f"{name}{_BY_TOPIC_PARTITION}" for name in names)


def is_eager(name: str) -> bool:
    """Tell whether a protocol has everything given up before a member joins again."""
    return name.removesuffix(_BY_TOPIC_PARTITION) == EAGER


class MemberMetadata(NamedTuple):
    """What one member says of itself."""

    #: Where clients and other nodes reach it.
    node: Node
    #: Which machine it runs on, where that address leads to another node on each; empty where it does not.
    machine: str
    #: Up to which it has read the config topic; -1: nothing.
    config_offset: int
    #: Ownership generation of the assignment that it works by; 0: it has none.
    generation: int
    #: Highest ownership generation that it has seen, in assignments and logs; at least `generation`.
    generation_seen: int
    #: Log partitions of that assignment, in numeric order.
    tasks: tuple[int, ...]
    #: Duties of that assignment, sorted.
    duties: tuple[str, ...]
    #: Duties that this node can do, sorted.
    duties_offered: tuple[str, ...]
    #: Who may serve which log partitions now, as far as it knows: this node, those of its map, and former owners.
    may_serve: tuple[FormerOwner, ...]
    #: Log partitions whose leading brokers do not answer this node, in numeric order.
    out_of_reach: tuple[int, ...] = ()


def encode_metadata(metadata: MemberMetadata) -> bytes:
    """Return the bytes of a member's metadata."""
    return b"".join(
        (
            encode_place(metadata.node),
            encode_string(metadata.machine),
            _NUMBERS.pack(metadata.config_offset, metadata.generation, metadata.generation_seen),
            encode_numbers(metadata.tasks),
            encode_strings(metadata.duties),
            encode_strings(metadata.duties_offered),
            encode_former_owners(metadata.may_serve),
            encode_tags([(_OUT_OF_REACH, encode_numbers(metadata.out_of_reach))] if metadata.out_of_reach else []),
        )
    )


def decode_metadata(data: bytes) -> MemberMetadata:
    """Return the metadata in these bytes.

    Raises:
        MalformedBody: they hold none, or a number or text that no honest node would say (`division.bounds`).
    """
    reader = BodyReader(data, 0, is_flexible=True)
    metadata = MemberMetadata(
        decode_place(reader, "node"),
        read_text(reader, "machine", HOST_CHARACTERS_MAX),
        read_offset(reader, "config offset"),
        read_generation(reader, "generation"),
        read_generation(reader, "generation seen"),
        decode_numbers(reader, "tasks"),
        decode_strings(reader, "duties"),
        decode_strings(reader, "duties offered"),
        decode_former_owners(reader),
    )
    bounded(metadata.generation, 0, metadata.generation_seen, reader, "generation")
    tagged = reader.end_with_tags().get(_OUT_OF_REACH)
    if tagged is None:
        return metadata
    tag_reader = BodyReader(tagged, 0, is_flexible=True)
    out_of_reach = decode_numbers(tag_reader, "log partitions out of reach")
    if not out_of_reach or tag_reader.offset != len(tagged):
        raise MalformedBody("log partitions out of reach", reader.offset, "it is empty, or more bytes follow")
    return metadata._replace(out_of_reach=out_of_reach)


def encode_place(node: Node) -> bytes:
    """Return where a node is reached, and its id."""
    return encode_string(node.host) + _PLACE.pack(node.port, node.node_id)


def decode_place(reader: BodyReader, field: str) -> Node:
    """Take where a node is reached, and its id.

    Raises:
        MalformedBody: it is cut off, or no place.
    """
    host, port, node_id = read_host(reader, field), read_port(reader, field), read_node_id(reader, field)
    return Node(node_id, host, port)


def encode_former_owners(owners: tuple[FormerOwner, ...]) -> bytes:
    """Return an array of nodes that may serve log partitions."""
    parts = [encode_varint(len(owners) + 1)]
    for node, tasks, wait_ms in owners:
        parts += (encode_place(node), encode_numbers(tasks), _WAIT.pack(wait_ms), b"\x00")
    return b"".join(parts)


def decode_former_owners(reader: BodyReader) -> tuple[FormerOwner, ...]:
    """Take an array of nodes that may serve log partitions.

    Raises:
        MalformedBody: it is cut off, or has too many or impossible entries.
    """
    count = bounded(reader.count("former owners"), 0, FORMER_OWNERS_MAX, reader, "number of former owners")
    return tuple(_decode_former_owner(reader) for _ in range(count))


def _decode_former_owner(reader: BodyReader) -> FormerOwner:
    place, tasks = decode_place(reader, "former owner"), decode_numbers(reader, "tasks")
    owner = FormerOwner(place, tasks, read_wait(reader, "wait"))
    reader.tags("former owners")
    return owner


def encode_numbers(numbers: tuple[int, ...]) -> bytes:
    """Return an array of int32."""
    return encode_varint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)


def decode_numbers(reader: BodyReader, field: str) -> tuple[int, ...]:
    """Take an array of log partitions, in numeric order.

    Raises:
        MalformedBody: it is cut off, or holds one twice, out of order or negative.
    """
    count = reader.count(field)
    numbers = unpack(f">{count}i", reader.raw(4 * count, field))
    check_ascending((-1, *numbers), reader, field)
    return numbers


def encode_strings(texts: tuple[str, ...]) -> bytes:
    """Return an array of strings."""
    return b"".join((encode_varint(len(texts) + 1), *map(encode_string, texts)))


def decode_strings(reader: BodyReader, field: str) -> tuple[str, ...]:
    """Take an array of duties, in order.

    Raises:
        MalformedBody: it is cut off or too long, or a string is no name, or stands twice or out of order.
    """
    count = bounded(reader.count(field), 0, DUTIES_MAX, reader, field)
    texts = tuple(read_text(reader, field, HOST_CHARACTERS_MAX) for _ in range(count))
    check_ascending(texts, reader, field)
    return texts
