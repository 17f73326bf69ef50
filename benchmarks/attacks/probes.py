"""Attacks by who may log in and has no rights: every call in every version, well formed, and with a bomb in place of each byte."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from benchmarks.attacks.attacks import LOST, Attack, Target, admin_body
from benchmarks.attacks.caller import Caller
from holdfast.api.admin import ADMIN, decode_admin_response
from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    SummaryPartition,
    WritePartition,
)
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, VERSIONS, WRITE
from holdfast.api.state_requests import encode_request
from holdfast.api.state_responses import decode_response
from holdfast.daemon.tenant import Tables
from holdfast.kafka.protocol.api_keys import API_VERSIONS, FIND_COORDINATOR, METADATA
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import encode_legacy_string, encode_string
from holdfast.kafka.protocol.sasl_calls import SASL_AUTHENTICATE, SASL_HANDSHAKE, encode_authenticate, encode_handshake
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.tenants import TABLES

#: The tables of the node that is attacked, which is no gateway.
NODE: Final = Tables(TABLES.shard_tenant)
#: A group of the healthy client, which has state; no answer to a prober may differ by it.
SECRET_GROUP: Final = "healthy"
_NO_GROUP: Final = "nobodys"
_PARTITIONS: Final[dict[int, PartitionRequest]] = {
    INITIALIZE: InitializePartition(0, 1, 0),
    READ: ReadPartition(0, 0),
    WRITE: WritePartition(0, 1, 0, 0, -1, (StateBatch(0, 1, 2, 1),)),
    DELETE: DeletePartition(0),
    SUMMARY: SummaryPartition(0, -1),
}
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
#: In place of a length: the largest of a varint, of 32 bits and of 16, and ones below zero.
_BOMBS: Final = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x7f\xff", b"\x80")
#: Requests on their way at a time.
_AT_ONCE: Final = 40

Call = tuple[int, int, bytes]


def calls(topic_id: bytes, group: str) -> Iterator[Call]:
    """Yield API key, version and body of each call in each version that the node knows."""
    for api_key, api in NODE.apis.items():
        for version in range(api.min_version, api.max_version + 1):
            if api_key in VERSIONS:
                request = StateRequest(group, [(topic_id, [_PARTITIONS[api_key]])])
                yield api_key, version, encode_request(api_key, version, request)
            elif api_key == FIND_COORDINATOR:
                yield from ((api_key, version, body) for body in _look_ups(version, topic_id, group))
            elif api_key == METADATA:
                # All topics, which version 0 says by none; the flags of each version behind them.
                flags = bytes((version >= 4) + 2 * (8 <= version <= 10) + (version > 10))
                topics = b"\x00" if version >= 9 else b"\xff" * 4 if version else bytes(4)
                yield api_key, version, topics + flags + b"\x00" * (version >= 9)
            elif api_key == API_VERSIONS:
                yield api_key, version, b"\x02a\x02b\x00" if version >= 3 else b""
            elif api_key == SASL_HANDSHAKE:
                yield api_key, version, encode_handshake("PLAIN")
            elif api_key == SASL_AUTHENTICATE:
                yield api_key, version, encode_authenticate(version, b"\x00admin\x00guess")
            elif api_key == ADMIN:
                yield from ((ADMIN, version, admin_body(name, group=group)) for name in NODE.needs.commands)


def _look_ups(version: int, topic_id: bytes, group: str) -> Iterator[bytes]:
    share_key = format_key(SharePartitionKey(group, topic_id, 0))
    for key_type, key in ((b"\x00", group), (b"\x01", group), (b"\x02", share_key)):
        if version >= 4:
            yield key_type + b"\x02" + encode_string(key) + b"\x00"
        elif version == 3:
            yield encode_string(key) + key_type + b"\x00"
        else:
            yield encode_legacy_string(key) + (key_type if version else b"")


async def acl_probes(target: Target) -> str:
    """P1: every call in every version by a client without rights, about a group with state and one without."""
    reports: Counter[str] = Counter()
    for group in (SECRET_GROUP, _NO_GROUP):
        for api_key, version, body in calls(target.topic_id, group):
            reports[await _probe(target, api_key, version, body)] += 1
    return ", ".join(f"{count} {what}" for what, count in sorted(reports.items()))


async def _probe(target: Target, api_key: int, version: int, body: bytes) -> str:
    """Say in a word what a call got: denied, free, or closed; anything else is a hole, and says where."""
    caller = await target.open()
    has_tags = version >= NODE.apis[api_key].flexible_from
    try:
        target.count(caller.send(api_key, version, body, has_tags=has_tags))
        answer = await caller.receive()
    except LOST:
        return "closed"
    finally:
        caller.close()
    where = f"HOLE in {NODE.apis[api_key].name} v{version}"
    if api_key in VERSIONS:
        response = decode_response(api_key, version, answer, 5)
        codes = {result.error_code for _, results in response for _, result in results}
        return "denied" if codes == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED} else f"{where}: {codes}"
    if api_key == ADMIN:
        found = decode_admin_response(answer, 5)
        is_denied = found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and found.result is None
        return "denied" if is_denied else f"{where}: {found.error_code}"
    if api_key == FIND_COORDINATOR:
        is_denied = any(code.to_bytes(2, "big") in answer for code in (*_DENIED, ErrorCode.INVALID_REQUEST))
        names_a_node = str(target.address.port).encode() in answer or target.address.port.to_bytes(4, "big") in answer
        return "denied" if is_denied and not names_a_node else f"{where}: {answer!r}"
    return "free"


async def length_bombs(target: Target) -> str:
    """P2: every call in every version, with a length that is too large at each place of its first fifty bytes."""
    reports: Counter[str] = Counter()
    bombs: list[Call] = []
    seen: set[tuple[int, int]] = set()
    for api_key, version, body in calls(target.topic_id, _NO_GROUP):
        if (api_key, version) not in seen:  # one of each
            seen.add((api_key, version))
            bombs += [(api_key, version, each) for each in armed(body)]

    async def throw(some: Sequence[Call]) -> None:
        for api_key, version, body in some:
            caller = (
                await target.open()
                if target.way is None
                else await Caller.connect(target.address, target.way.context())
            )
            with suppress(*LOST):
                if target.way is not None and api_key not in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
                    caller.close()
                    caller = await target.open()
                has_tags = version >= NODE.apis[api_key].flexible_from
                target.count(caller.send(api_key, version, body, has_tags=has_tags))
                try:
                    await caller.receive()
                    reports["answered"] += 1
                except LOST:
                    reports["closed"] += 1
            caller.close()

    await asyncio.gather(*(throw(bombs[first::_AT_ONCE]) for first in range(_AT_ONCE)))
    return ", ".join(f"{count:,} {what}" for what, count in sorted(reports.items()))


def armed(body: bytes, places: int = 50) -> Iterator[bytes]:
    """Yield a body with a bomb at each of its first places, and cut short behind it."""
    for place in range(min(len(body), places)):
        bomb = _BOMBS[place % len(_BOMBS)]
        yield body[:place] + bomb + body[place + len(bomb) :]
    yield body[: len(body) // 2]


PROBES: Final[tuple[Attack, ...]] = (acl_probes, length_bombs)
