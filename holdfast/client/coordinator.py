"""Which node coordinates a share partition: looked up in batches, and remembered until a node says it does not (any more).

Share keys exist since version 6 of FindCoordinator; to a server that only knows older versions they cannot be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from holdfast.client.connection import Address, NodeConnection
from holdfast.client.errors import Disconnected, RequestTimedOut
from holdfast.client.nodes import Nodes
from holdfast.client.settings import ClientSettings
from holdfast.kafka.protocol.api_keys import FIND_COORDINATOR
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import SHARE_STATE_RETRIABLE, ErrorCode
from holdfast.kafka.protocol.primitives import encode_string, encode_varint
from holdfast.records.keys import SharePartitionKey, format_key

_SHARE_KEYS_FROM: Final = 6
_VERSION_MAX: Final = 6
_SHARE: Final = Struct(">b").pack(2)


class Refusal(tuple[int, str | None]):
    """The error code and the text with which the look-up of one key was answered."""

    __slots__ = ()


class Coordinators:
    """The coordinators of share partitions, looked up and remembered."""

    def __init__(self, nodes: Nodes, settings: ClientSettings) -> None:
        self._nodes = nodes
        self._settings = settings
        self._known: dict[SharePartitionKey, Address] = {}
        #: Which node named a coordinator.
        self._named_by: dict[Address, Address] = {}

    async def find(self, keys: Sequence[SharePartitionKey]) -> list[Address | Refusal]:
        """Return the coordinator of each key, or why there is none, in the order of `keys`.

        Where a node knows none now, the next node is queried.

        Raises:
            ClientError: no node answered, or none that knows share keys.
        """
        known = self._known
        missing = list(dict.fromkeys(key for key in keys if key not in known))
        refusals: dict[SharePartitionKey, Refusal] = {}
        found: dict[SharePartitionKey, Address] = {}
        batch_size = self._settings.share_partitions_per_request_max
        for start in range(0, len(missing), batch_size):
            batch = missing[start : start + batch_size]
            await self._query_nodes(batch, found, refusals)
        results: list[Address | Refusal] = [refusals.get(key) or found.get(key) or known[key] for key in keys]
        known.update(found)
        if (excess := len(known) - self._settings.coordinators_cached_max) > 0:
            for key in list(islice(known, excess)):
                del known[key]
        return results

    def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Look these keys up again the next time, and first at another node than the one whose answer led nowhere."""
        for key in keys:
            coordinator = self._known.pop(key, None)
            if coordinator is not None and (named_by := self._named_by.pop(coordinator, None)) is not None:
                self._nodes.put_last(named_by)

    async def _query_nodes(
        self,
        keys: Sequence[SharePartitionKey],
        found: dict[SharePartitionKey, Address],
        refusals: dict[SharePartitionKey, Refusal],
    ) -> None:
        """Query one node after the other, each for the keys of which those before knew no coordinator."""
        failures: list[str] = []
        has_answer = False
        for address in self._nodes.in_turn():
            try:
                connection = await self._nodes.to(address)
                answers = await self._query(connection, keys)
            except (Disconnected, RequestTimedOut) as error:
                failures.append(str(error))
                self._nodes.put_last(address)
                continue
            has_answer = True
            for key, answer in zip(keys, answers, strict=True):
                if isinstance(answer, Refusal):
                    refusals[key] = answer
                else:
                    refusals.pop(key, None)
                    found[key] = answer
                    self._named_by[answer] = address
                    if len(self._named_by) > self._settings.coordinators_cached_max:
                        del self._named_by[next(iter(self._named_by))]
            keys = [key for key in keys if key in refusals and refusals[key][0] in SHARE_STATE_RETRIABLE]
            if not keys:
                return
        if not has_answer:
            raise Disconnected(" ".join(failures))

    async def _query(self, connection: NodeConnection, keys: Sequence[SharePartitionKey]) -> list[Address | Refusal]:
        version = connection.version_of("FindCoordinator", FIND_COORDINATOR, _SHARE_KEYS_FROM, _VERSION_MAX)
        texts = [format_key(key) for key in keys]
        body = b"%b%b%b\x00" % (_SHARE, encode_varint(len(texts) + 1), b"".join(map(encode_string, texts)))
        frame, offset = await connection.request(FIND_COORDINATOR, version, body)
        return _read_answers(BodyReader(frame, offset, is_flexible=True), texts, connection)


def _read_answers(reader: BodyReader, texts: Sequence[str], connection: NodeConnection) -> list[Address | Refusal]:
    reader.int32("ThrottleTimeMs")
    answers: dict[str, Address | Refusal] = {}
    for _ in range(reader.count("Coordinators")):
        key = reader.string("Coordinators.Key")
        reader.int32("Coordinators.NodeId")
        address = Address(reader.string("Coordinators.Host"), reader.int32("Coordinators.Port"))
        error_code = reader.int16("Coordinators.ErrorCode")
        error_message = reader.nullable_string("Coordinators.ErrorMessage")
        reader.tags("Coordinators")
        answers[key] = Refusal((error_code, error_message)) if error_code else address
    reader.end()
    absent = Refusal(
        (ErrorCode.UNKNOWN_SERVER_ERROR, f"The server at {connection.address} did not answer for this key.")
    )
    return [answers.get(text, absent) for text in texts]
