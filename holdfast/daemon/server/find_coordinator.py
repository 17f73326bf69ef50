"""FindCoordinator, versions 0 to 6: which node coordinates each key.

Keys are batched from version 4 on, and share keys exist from version 6 on. A problem of one key is an error of that key
alone; the answers are in the order of the keys, duplicates included. All keys of a request are answered from the owners as
they were when it began. Answers are packed by hand, because a group
coordinator looks up all share partitions of its groups at once.

Source: KIP-699, KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from holdfast.daemon.server.cluster_view import ClusterView, Node
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody, encode_legacy_string, encode_string, encode_varint
from holdfast.runtime.errors import NotAvailable

MAX_VERSION: Final = 6
FLEXIBLE_FROM: Final = 3

#: Key types that every client knows; a node names its own state to one that looks for them here in vain.
GROUP: Final = 0
TRANSACTION: Final = 1

_KEY_TYPES_FROM: Final = 1
_BATCHES_FROM: Final = 4

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NO_NODE: Final = Node(-1, "", -1)


#: Keys that one step of a large request answers, and about so many bytes of them.
_KEYS_PER_STEP: Final = 100
_KEY_BYTES_PER_STEP: Final = 32_768


class KeyRefused(Exception):
    """A text that is no key of its type; the text of the exception says why, a clause without its full stop."""


class KeyType(Protocol):
    """Keys of one type, whose coordinators are the owners of log partitions."""

    #: First version of FindCoordinator that has it.
    first_version: int
    #: Name of the state that the keys lead to, for a client that looks for something else.
    state_name: str

    def parse(self, text: str) -> tuple[str, Any]:
        """Return the group that a key is about, and what `partition_for` takes.

        Raises:
            KeyRefused: it is no key.
        """

    def partition_for(self, key: Any) -> int:  # noqa: ANN401 - what `parse` gave
        """Return the log partition of a key.

        Raises:
            NotAvailable: before start-up and after shutdown.
        """


class Answer(NamedTuple):
    """The node that coordinates one key; the text is empty, not null, on success."""

    node: Node
    error_code: int = ErrorCode.NONE
    error_message: str = ""


def _not_here(key_types: Iterable[KeyType]) -> Answer:
    names = " and ".join(each.state_name for each in key_types)
    text = f"this node coordinates {names} only" if names else "this node coordinates nothing that has keys"
    return Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, text)


def _unknown_type(key_type: int) -> Answer:
    return Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, f"The key type {key_type} is unknown.")


class Finder:
    """The answers to requests of one version.

    Args:
        version: of the requests.
        cluster: the owner of each log partition.
        key_types: keys that nodes coordinate, by the number of their type.
        may_look_up: says whether the client may know who coordinates a group.
        denied: what it is told if it may not.
    """

    def __init__(
        self,
        version: int,
        cluster: ClusterView,
        key_types: Mapping[int, KeyType],
        may_look_up: Callable[[str], bool],
        denied: str,
    ) -> None:
        self._version = version
        self._cluster = cluster
        self._types_of_node = key_types
        self._key_types = {number: each for number, each in key_types.items() if version >= each.first_version}
        self._may_look_up = may_look_up
        self._denied = denied

    def answer(self, data: bytes, offset: int, keys_max: int) -> Iterator[bytes]:
        """Return the body of the answer piece by piece, each after some keys: one entry for each key, in their order.

        Raises:
            MalformedBody: the bytes are no such request, or it names more than `keys_max` keys; before the first piece
                or after any.
        """
        version = self._version
        reader = BodyReader(data, offset, version >= FLEXIBLE_FROM)
        if version >= _BATCHES_FROM:
            return self._answer_batch(reader, keys_max)
        key = reader.string("Key")
        key_type = reader.int8("KeyType") if version >= _KEY_TYPES_FROM else GROUP
        reader.lenient_end()
        return iter((self._encode_one(self._refuse(key_type, key) or self.find(key_type, key)),))

    def _answer_batch(self, reader: BodyReader, keys_max: int) -> Iterator[bytes]:
        key_type = reader.int8("KeyType")
        count_offset = reader.offset
        count = reader.count("CoordinatorKeys")
        if count > keys_max:
            raise MalformedBody(
                "CoordinatorKeys", count_offset, f"{count} keys are named, at most {keys_max} are taken"
            )
        owner_of = self._owners() if count > 1 else self._cluster.owner
        parts = [_INT32.pack(0), encode_varint(count + 1)]
        #: All but the key; most keys of a batch have one of few answers.
        tails: dict[Answer, bytes] = {}
        keys_left, step_ends_at = _KEYS_PER_STEP, reader.offset + _KEY_BYTES_PER_STEP
        for _ in range(count):
            key = reader.string("CoordinatorKeys")
            answer = self._refuse(key_type, key) or self.find(key_type, key, owner_of)
            tail = tails.get(answer)
            if tail is None:
                tail = tails[answer] = self._encode_tail(answer)
            parts.append(encode_string(key))
            parts.append(tail)
            keys_left -= 1
            if not keys_left or reader.offset >= step_ends_at:
                yield b"".join(parts)
                parts.clear()
                keys_left, step_ends_at = _KEYS_PER_STEP, reader.offset + _KEY_BYTES_PER_STEP
        reader.lenient_end()
        parts.append(b"\x00")
        yield b"".join(parts)

    def _refuse(self, key_type: int, key: str) -> Answer | None:
        """Return the answer to a key of a type that is not coordinated here, else None.

        For a group, Kafka looks first whether the client may know of it.
        """
        if key_type == GROUP and not self._may_look_up(key):
            return Answer(_NO_NODE, ErrorCode.GROUP_AUTHORIZATION_FAILED, self._denied)
        if key_type in self._key_types:
            return None
        if key_type in (GROUP, TRANSACTION) or key_type in self._types_of_node:
            return _not_here(self._types_of_node.values())
        return _unknown_type(key_type)

    def _owners(self) -> Callable[[int], Node | None]:
        """Return the owners as they are now: other work runs between the steps of a request, and a view may change there."""
        state_topic = self._cluster.state_topic
        count = 0 if state_topic is None else state_topic.partition_count
        return dict(enumerate(map(self._cluster.owner, range(count)))).get

    def find(self, key_type: int, text: str, owner_of: Callable[[int], Node | None] | None = None) -> Answer:
        """Return the node that coordinates a key; an invalid key has an answer, too.

        Args:
            key_type: one that is coordinated here.
            text: the key.
            owner_of: gives the owner of a log partition; without it, as of now.
        """
        try:
            keys = self._key_types[key_type]
            group_id, key = keys.parse(text)
            if not self._may_look_up(group_id):
                return Answer(_NO_NODE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, self._denied)
            partition = keys.partition_for(key)
        except KeyRefused as error:
            return Answer(_NO_NODE, ErrorCode.INVALID_REQUEST, f"The key is not valid: {error}.")
        except NotAvailable as error:
            return Answer(_NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        owner = (owner_of or self._cluster.owner)(partition)
        if owner is None:
            reason = f"No live node owns log partition {partition}."
            return Answer(_NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return Answer(owner)

    def _encode_tail(self, answer: Answer) -> bytes:
        (node_id, host, port), error_code, message = answer
        return b"%b%b%b%b%b\x00" % (
            _INT32.pack(node_id),
            encode_string(host),
            _INT32.pack(port),
            _INT16.pack(error_code),
            encode_string(message),
        )

    def _encode_one(self, answer: Answer) -> bytes:
        """Return the body of an answer of the versions below 4."""
        version = self._version
        (node_id, host, port), error_code, message = answer
        encode_text = encode_string if version >= FLEXIBLE_FROM else encode_legacy_string
        return b"".join(
            (
                _INT32.pack(0) if version >= 1 else b"",
                _INT16.pack(error_code),
                encode_text(message) if version >= 1 else b"",
                _INT32.pack(node_id),
                encode_text(host),
                _INT32.pack(port),
                b"\x00" if version >= FLEXIBLE_FROM else b"",
            )
        )
