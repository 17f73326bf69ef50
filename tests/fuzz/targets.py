"""What is fuzzed: functions of bytes, the errors that they may raise, and inputs to begin with.

Whatever else one raises is a bug, and so is one that takes long or much memory for few bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from holdfast.api import admin, share_state, state_requests, state_responses
from holdfast.api.results import PATIENT_CALLER
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest, find_malformed_acknowledge
from holdfast.api.share_consumer import NamedTopics, find_malformed_batches
from holdfast.api.share_fetch import ShareFetchRequest, find_malformed_fetch
from holdfast.api.share_group_heartbeat import HeartbeatRequest, find_malformed_heartbeat
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.login.credentials import KeptUsers, Users
from holdfast.daemon.login.mechanisms import MECHANISMS
from holdfast.daemon.login.sasl_login import LoggedIn, LoginRules, Refused, SaslLogin, Undecided
from holdfast.daemon.login.users_file import parse_kept
from holdfast.daemon.membership.division.assignment import decode_assignment
from holdfast.daemon.membership.division.metadata import decode_metadata
from holdfast.daemon.server.admin import Admin, AdminError
from holdfast.daemon.server.api_table import ApiHandler
from holdfast.daemon.server.wire.connection import Connection
from holdfast.daemon.server.wire.requests import Request, RequestMemory, Violation
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.gateway import refusals
from holdfast.kafka.decompression import decompress
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.sasl_calls import SASL_AUTHENTICATE, SASL_HANDSHAKE, encode_handshake
from holdfast.kafka.protocol.scram import SCRAM_SHA_256, Keys
from holdfast.kafka.records import batches
from holdfast.kafka.records.transactions import AbortedTransaction, mark_aborted
from holdfast.metrics.instruments import Counter
from holdfast.records.errors import InvalidKey, RecordError
from holdfast.records.log.checkpoint import decode_checkpoint
from holdfast.records.log.header import decode_header
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.keys import parse_key
from holdfast.records.share.snapshot_store import entries
from holdfast.runtime.kafka_log import record_batches
from tests.fuzz import brokers, seeds
from tests.pure.api.share_samples import CODECS, result_of
from tests.world.identity.access import OPEN
from tests.world.serving import FakeCluster, FakeService
from tests.world.tenants import APIS, NEEDS, make_handler

#: As small as the bounds of a node may be set, so that inputs of a fuzzer reach them.
LIMITS = LimitSettings(frame_size_bytes_max=65_536)
USERS = Users(KeptUsers({"alice": {SCRAM_SHA_256: Keys(bytes(16), bytes(32), bytes(32), 4_096)}}))
BOUNDS = state_requests.Bounds(100, 100, 200)


class Target(NamedTuple):
    """A decoder."""

    run: Callable[[bytes], object]
    #: What it may raise.
    errors: tuple[type[Exception], ...]
    #: Inputs that it takes, from which others are made.
    seeds: Callable[[], list[bytes]]


def try_input(target: Target, data: bytes) -> None:
    """Give an input to a target.

    Raises:
        Exception: what the target must not raise.
    """
    try:
        target.run(data)
    except target.errors:
        return


# ---- a login ---------------------------------------------------------------------------------------------------------


def _run_login(data: bytes) -> None:
    """Choose a mechanism by the first byte, and make a SaslAuthenticate of each line that follows; nobody comes in."""
    login = SaslLogin(LoginRules(MECHANISMS, 4_096, 0, lambda: USERS))
    mechanism = MECHANISMS[data[0] % len(MECHANISMS)] if data else ""
    outcome = login.take(SASL_HANDSHAKE, 1, encode_handshake(mechanism), 0)
    for number, body in enumerate(data[1:].split(b"\n")):
        if isinstance(outcome, Undecided):
            outcome = login.checked(False)
        assert not isinstance(outcome, LoggedIn)
        if isinstance(outcome, Refused):
            return
        outcome = login.take(SASL_AUTHENTICATE, number % 3, body, 0)


# ---- a client connection ---------------------------------------------------------------------------------------------


def _run_connection(data: bytes) -> None:
    """Let a client send these bytes, in pieces whose size the first byte says, and answer all that comes of it."""
    size, data = (data[0] or 256, data[1:]) if data else (1, b"")
    handler = make_handler(
        FakeService(), FakeCluster(), Admin({"status": _status}, NEEDS, 1_000, InternalErrors(Counter())), OPEN, BOUNDS
    )
    connection = Connection(APIS, LIMITS, "10.0.0.1:5", 0.0)
    for start in range(0, len(data), size):
        connection.receive(data[start : start + size])
        for _ in range(len(data)):
            event = connection.next_event(0.0)
            if isinstance(event, Violation):
                connection.close()
                return
            if not isinstance(event, Request):
                break
            try:
                _answer(handler, connection, event)
            except MalformedBody:  # for which the owner of a connection closes it
                connection.close()
                return
    connection.close()


def _answer(handler: ApiHandler, connection: Connection, request: Request) -> None:
    answers: list[Any] = []
    steps = handler(request, answers.append)
    for _ in steps or ():
        pass
    (answer,) = answers
    connection.reply(request, answer)
    while connection.has_more_to_encode:
        connection.encode_piece()
    assert all(isinstance(piece, bytes) for piece in connection.take_output())


def _status(arguments: dict[str, Any]) -> object:
    if "wrong" in arguments:
        raise AdminError("It is wrong.")
    return arguments


def _state_request(api_key: int, version: int, data: bytes) -> None:
    """Decode a request in one go and in steps: what both take is the same."""
    outcomes: list[object] = []
    in_steps = state_requests.decode_in_steps(api_key, version, data, 0, BOUNDS, PATIENT_CALLER)
    decoders: list[Callable[[], object]] = [
        partial(state_requests.decode_request, api_key, version, data, 0, BOUNDS),
        partial(_last, in_steps),
    ]
    for decode in decoders:
        try:
            outcomes.append(decode())
        except MalformedBody:
            outcomes.append(None)
    if None not in outcomes:
        assert outcomes[0] == outcomes[1]


def _run_consumer_call(name: str, data: bytes) -> None:
    """Decode a call of share consumers and apply its rules; the value can be sent again, and comes back as it was."""
    codec = CODECS[name]
    value = codec.decode(data, 0)
    decoded = codec.decode(codec.encode(value), 0)
    if codec.decode_in_steps is not None:
        assert result_of(codec.decode_in_steps(data, 0)) == value
    if isinstance(value, ShareFetchRequest | ShareAcknowledgeRequest | HeartbeatRequest):
        assert decoded == value
    if isinstance(value, ShareFetchRequest):
        find_malformed_fetch(value)
        _check_acknowledgements(value.topics, value.is_renew)
    elif isinstance(value, ShareAcknowledgeRequest):
        find_malformed_acknowledge(value)
        _check_acknowledgements(value.topics, value.is_renew)
    elif isinstance(value, HeartbeatRequest):
        find_malformed_heartbeat(value)


def _check_acknowledgements(topics: NamedTopics, is_renew: bool) -> None:
    for _, partitions in topics:
        for _, acknowledged in partitions:
            if find_malformed_batches(acknowledged, is_renew) is None:
                assert all(batch.types for batch in acknowledged)


def _last(steps: Iterator[bool]) -> object:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: object = end.value
            return result


def _refuse(api_key: int, version: int, data: bytes) -> None:
    """Have a gateway refuse a call: the one answer holds no more than what names the partitions, and a text for each."""
    answers: list[Any] = []
    request = Request(api_key, version, 1, None, data, 0, "10.0.0.1:5", RequestMemory(), 0)
    assert refusals.ANSWERS[api_key](request, answers.append) is None
    (answer,) = answers
    assert len(answer) <= len(data) * 100 + 1_000


def _refused_calls() -> Iterator[tuple[str, Target]]:
    for api_key, (api, _) in refusals.CALLS.items():
        call = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
        for version in range(api.min_version, api.max_version + 1):
            request_type = getattr(import_module(f"kio.schema.{call}.v{version}.request"), f"{api.name}Request")
            target = Target(
                partial(_refuse, api_key, version), (MalformedBody,), partial(brokers.encoded, request_type)
            )
            yield f"refused {api.name} v{version}", target


# ---- the log ---------------------------------------------------------------------------------------------------------


def _run_record(data: bytes) -> object:
    """Take the first byte for the length of the key."""
    key_size = data[0] if data else 0
    return decode_record(data[1 : 1 + key_size], data[1 + key_size :] or None)


def _run_decompression(data: bytes) -> object:
    """Take the first byte for the codec."""
    return decompress(data[0] % 5 if data else 0, data[1:], 1 << 20)


def _run_batches(data: bytes) -> None:
    for batch in record_batches.iter_batches(data, 0, begins_there=False):
        for _ in record_batches.decode(batch.data, 0, 1 << 20, 3):
            pass


def _run_heads(data: bytes) -> None:
    """Read the heads of batches as a reader of any topic does, and the markers among them."""
    taken, aborted = 0, [AbortedTransaction(3, 0), AbortedTransaction(-1, 0)]
    for batch, _ in mark_aborted(batches.iter_batches(memoryview(data), 0), aborted):
        assert 0 <= batch.base_offset <= batch.last_offset
        taken += len(batch.data)
    assert taken <= len(data)


TARGETS: dict[str, Target] = {
    "login": Target(_run_login, (MalformedBody,), seeds.logins),
    "users file": Target(lambda data: parse_kept(data.decode("utf-8", "replace")), (ValueError,), seeds.users_files),
    "connection": Target(_run_connection, (), lambda: [b"\x00" + frame for frame in seeds.frames()]),
    **{
        f"request {api_key} v{version}": Target(
            partial(_state_request, api_key, version), (), partial(seeds.state_requests_of, api_key, version)
        )
        for api_key, (low, high) in share_state.VERSIONS.items()
        for version in range(low, high + 1)
    },
    **{
        f"response {api_key} v{version}": Target(
            partial(state_responses.decode_response, api_key, version),
            (MalformedBody,),
            partial(seeds.state_responses_of, api_key, version),
        )
        for api_key, (low, high) in share_state.VERSIONS.items()
        for version in range(low, high + 1)
    },
    **{
        f"consumer's {name}": Target(
            partial(_run_consumer_call, name), (MalformedBody,), partial(seeds.consumer_calls_of, name)
        )
        for name in CODECS
    },
    **dict(_refused_calls()),
    "admin request": Target(admin.decode_admin_request, (MalformedBody,), seeds.admin_requests),
    "admin response": Target(admin.decode_admin_response, (MalformedBody,), seeds.admin_responses),
    "record": Target(_run_record, (RecordError,), seeds.records),
    "record batches": Target(_run_batches, (record_batches.DamagedBatch,), seeds.record_batches),
    "heads of record batches": Target(_run_heads, (batches.DamagedRecords,), seeds.heads_of_batches),
    # The libraries raise what they like; what counts is room and time.
    "compressed records": Target(_run_decompression, (Exception,), seeds.compressed_records),
    "record header": Target(decode_header, (RecordError,), seeds.headers),
    "checkpoint": Target(decode_checkpoint, (RecordError,), seeds.checkpoints),
    "snapshot key": Target(entries.decode_key, (RecordError,), seeds.snapshot_keys),
    "snapshot entry": Target(entries.decode_entry, (RecordError,), seeds.snapshot_entries),
    "manifest": Target(entries.decode_manifest, (RecordError,), seeds.manifests),
    "coordinator key": Target(lambda data: parse_key(data.decode("utf-8", "replace")), (InvalidKey,), seeds.keys),
    "member metadata": Target(decode_metadata, (MalformedBody,), seeds.member_metadata),
    "assignment": Target(decode_assignment, (MalformedBody,), seeds.assignments),
    **{f"broker's {name}": Target(each.read, brokers.REFUSALS, each.seeds) for name, each in brokers.answers().items()},
}
