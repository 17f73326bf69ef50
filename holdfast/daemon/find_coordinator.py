"""FindCoordinator, versions 0 to 6: which node coordinates the share partition of each key.

Keys are batched from version 4 on, and share keys exist from version 6 on. A problem of one key is an error of that key
alone; the answers stand in the order of the keys, duplicates included. Answers are packed by hand, because a group
coordinator asks for all share partitions of its groups at once.

Source: KIP-699, KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from holdfast.daemon.cluster_view import ClusterView, Node
from holdfast.daemon.errors import ErrorCode
from holdfast.records.body import BodyReader
from holdfast.records.compact import MalformedBody, encode_string, encode_varint
from holdfast.records.errors import InvalidKey
from holdfast.records.keys import SharePartitionKey, parse_key
from holdfast.runtime.errors import NotAvailable

FIND_COORDINATOR: Final = 10
MAX_VERSION: Final = 6
FLEXIBLE_FROM: Final = 3

#: Key types.
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_KEY_TYPES_FROM: Final = 1
_BATCHES_FROM: Final = 4
_SHARE_KEYS_FROM: Final = 6

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NO_NODE: Final = Node(-1, "", -1)


class Query(NamedTuple):
    """Ask for the coordinators of some keys."""

    key_type: int
    keys: list[str]


class Answer(NamedTuple):
    """Say who coordinates one key; the text is empty, not null, on success."""

    node: Node
    error_code: int = ErrorCode.NONE
    error_message: str = ""


def decode_request(version: int, data: bytes, offset: int, keys_max: int) -> Query:
    """Return what is asked.

    Raises:
        MalformedBody: the bytes are no such request, or it names more than `keys_max` keys.
    """
    reader = BodyReader(data, offset, version >= FLEXIBLE_FROM)
    if version >= _BATCHES_FROM:
        key_type = reader.int8("KeyType")
        count_offset = reader.offset
        count = reader.count("CoordinatorKeys")
        if count > keys_max:
            raise MalformedBody(
                "CoordinatorKeys", count_offset, f"{count} keys are named, at most {keys_max} are taken"
            )
        query = Query(key_type, [reader.string("CoordinatorKeys") for _ in range(count)])
    else:
        key = reader.string("Key")
        query = Query(reader.int8("KeyType") if version >= _KEY_TYPES_FROM else GROUP, [key])
    reader.lenient_end()
    return query


def find(
    version: int, query: Query, cluster: ClusterView, partition_for: Callable[[SharePartitionKey], int]
) -> list[Answer]:
    """Return one answer per key, in the order of the keys.

    Args:
        version: of the request.
        query: what is asked.
        cluster: who owns what.
        partition_for: gives the log partition of a key, and raises NotAvailable before start-up and after shutdown.
    """
    if query.key_type not in (GROUP, TRANSACTION, SHARE):
        refusal = Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, f"The key type {query.key_type} is unknown.")
        return [refusal] * len(query.keys)
    if query.key_type != SHARE or version < _SHARE_KEYS_FROM:
        refusal = Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, "this node coordinates share state only")
        return [refusal] * len(query.keys)
    answers = []
    for text in query.keys:
        try:
            partition = partition_for(parse_key(text))
        except InvalidKey as error:
            answers.append(Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, f"The key is not valid: {error.reason}."))
            continue
        except NotAvailable as error:
            answers.append(Answer(_NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            continue
        owner = cluster.owner(partition)
        if owner is None:
            reason = f"No live node owns log partition {partition}."
            answers.append(Answer(_NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))
        else:
            answers.append(Answer(owner))
    return answers


def encode_response(version: int, query: Query, answers: list[Answer]) -> bytes:
    """Return the body of the answer: one entry per key, or the one answer of versions below 4."""
    pack_int16, pack_int32 = _INT16.pack, _INT32.pack
    throttle_time = pack_int32(0)
    if version >= _BATCHES_FROM:
        parts = [throttle_time, encode_varint(len(answers) + 1)]
        #: All but the key; most keys of a batch have one of few answers.
        tails: dict[Answer, bytes] = {}
        for key, answer in zip(query.keys, answers, strict=True):
            tail = tails.get(answer)
            if tail is None:
                (node_id, host, port), error_code, message = answer
                tail = tails[answer] = b"%b%b%b%b%b\x00" % (
                    pack_int32(node_id),
                    encode_string(host),
                    pack_int32(port),
                    pack_int16(error_code),
                    encode_string(message),
                )
            parts.append(encode_string(key))
            parts.append(tail)
        parts.append(b"\x00")
        return b"".join(parts)
    ((node_id, host, port), error_code, message) = answers[0]
    encode_text = encode_string if version >= FLEXIBLE_FROM else _encode_legacy_string
    return b"".join(
        (
            throttle_time if version >= 1 else b"",
            pack_int16(error_code),
            encode_text(message) if version >= 1 else b"",
            pack_int32(node_id),
            encode_text(host),
            pack_int32(port),
            b"\x00" if version >= FLEXIBLE_FROM else b"",
        )
    )


def _encode_legacy_string(text: str | None) -> bytes:
    data = (text or "").encode()
    return _INT16.pack(len(data)) + data
