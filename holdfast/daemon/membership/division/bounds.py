"""Bounds of each number and text that a member says of itself or is sent, checked where its bytes are read.

Anyone who may join the group of the nodes can say anything in it.
Each node takes over the highest ownership generation that it hears of, and shows the names of all others.
A number that no honest node reaches is therefore refused with all the bytes that hold it, and never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import MalformedBody

#: A group that divides its work a thousand times a second reaches it after 8,900 years.
GENERATION_MAX: Final = 2**48
#: How far one division may raise the ownership generation for what members have seen and the leader has not.
#: One that is further ahead is reached in several divisions, and a member that only claims to be ahead moves the number a little.
GENERATION_STEP: Final = 2**20
#: An offset of the config topic, which gets a record for each change by an admin.
OFFSET_MAX: Final = 2**48
#: A host name has at most 253 characters; a machine is a host name and some more.
HOST_CHARACTERS_MAX: Final = 255
#: Kafka's name of a member holds the client id of its node.
NAME_CHARACTERS_MAX: Final = 1_024
#: There are two duties now.
DUTIES_MAX: Final = 64
#: Entries of former owners: each node has one for each time at which it lost something.
FORMER_OWNERS_MAX: Final = 1_024
#: Above the sum of the largest values of the settings from which such a time comes, a day and an hour.
WAIT_MS_MAX: Final = 48 * 3_600_000
_PORT_MAX: Final = 2**16 - 1


def bounded(number: int, least: int, most: int, reader: BodyReader, field: str) -> int:
    """Return a number that was just read.

    Raises:
        MalformedBody: it lies outside its bounds, which are inclusive.
    """
    if not least <= number <= most:
        raise MalformedBody(field, reader.offset, f"it is {number}, and must be {least} to {most}")
    return number


def read_text(reader: BodyReader, field: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Take a string of printable characters, which goes into log lines, tables and answers to clients.

    Raises:
        MalformedBody: it is cut off, too long, or holds anything else.
    """
    text = reader.string(field)
    if len(text) > characters_max:
        raise MalformedBody(field, reader.offset, f"it has {len(text)} characters, at most {characters_max} are taken")
    if not text.isprintable():
        raise MalformedBody(field, reader.offset, "it holds characters that cannot be printed")
    return text


def read_host(reader: BodyReader, field: str) -> str:
    """Take a host name or an address.

    Raises:
        MalformedBody: it is cut off, too long, or holds blanks or what cannot be printed.
    """
    host = read_text(reader, field, HOST_CHARACTERS_MAX)
    if " " in host:
        raise MalformedBody(field, reader.offset, "a host has no blanks")
    return host


def read_port(reader: BodyReader, field: str) -> int:
    """Take a port.

    Raises:
        MalformedBody: it is cut off, or no port.
    """
    return bounded(reader.int32(field), 0, _PORT_MAX, reader, field)


def read_node_id(reader: BodyReader, field: str) -> int:
    """Take the id of a node; -1: nowhere.

    Raises:
        MalformedBody: it is cut off, or no id.
    """
    return bounded(reader.int32(field), -1, 2**31 - 1, reader, field)


def read_generation(reader: BodyReader, field: str) -> int:
    """Take an ownership generation.

    Raises:
        MalformedBody: it is cut off, or none that a node ever reaches.
    """
    return bounded(reader.int64(field), 0, GENERATION_MAX, reader, field)


def read_offset(reader: BodyReader, field: str) -> int:
    """Take an offset of the config topic; -1: nothing was read.

    Raises:
        MalformedBody: it is cut off, or none that the topic ever reaches.
    """
    return bounded(reader.int64(field), -1, OFFSET_MAX, reader, field)


def read_wait(reader: BodyReader, field: str) -> int:
    """Take a time in ms.

    Raises:
        MalformedBody: it is cut off, negative, or longer than two days.
    """
    return bounded(reader.int64(field), 0, WAIT_MS_MAX, reader, field)


def check_ascending(values: Sequence[Any], reader: BodyReader, field: str) -> None:
    """Check that values stand in order, each once.

    Raises:
        MalformedBody: they do not.
    """
    if any(before >= after for before, after in pairwise(values)):
        raise MalformedBody(field, reader.offset, "they do not ascend")
