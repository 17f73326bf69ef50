"""Inputs that decoders take, from which a fuzzer makes others."""

from __future__ import annotations

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.static.primitive import i8

from holdfast.api import admin, share_state, state_requests, state_responses
from holdfast.api.results import (
    DeletePartition,
    DeleteResult,
    InitializePartition,
    InitializeResult,
    PartitionRequest,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    SummaryPartition,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.daemon.login.credentials import KeptUsers
from holdfast.daemon.login.users_file import render_kept
from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError, encode_assignment
from holdfast.daemon.membership.division.metadata import MemberMetadata, encode_metadata
from holdfast.daemon.membership.division.ownership_map import AbsentNode, FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.aiokafka_parts import make_batch_builder
from holdfast.kafka.exchange import to_bytes
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.frames import encode_request
from holdfast.kafka.protocol.sasl_calls import encode_authenticate
from holdfast.kafka.protocol.scram import SCRAM_SHA_256, Keys
from holdfast.records.log.checkpoint import Checkpoint, encode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import format_key
from holdfast.records.share.snapshot_store import entries
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES
from tests.pure.api.share_samples import CODECS
from tests.pure.kafka.records.samples import ABORT, make_batch, make_marker
from tests.world.records import encode_record
from tests.world.samples import KEY, OTHER_TOPIC, TOPIC, batch

BATCHES = (batch(0, 9, 2, 1), batch(10, 12, 0, 2))
SNAPSHOT = Snapshot(1, 2, 3, 4, 5, 6, 7, BATCHES, 8, 9)
NODE = Node(1, "host", 9492)

_ASKED: dict[int, PartitionRequest] = {
    share_state.INITIALIZE: InitializePartition(0, 1, 0),
    share_state.READ: ReadPartition(0, 1),
    share_state.WRITE: WritePartition(0, 1, 1, 5, 5, BATCHES),
    share_state.DELETE: DeletePartition(0),
    share_state.SUMMARY: SummaryPartition(0, 1),
}
_ANSWERED: dict[int, PartitionResult] = {
    share_state.INITIALIZE: InitializeResult(3, "why"),
    share_state.READ: ReadResult(0, None, 1, 2, BATCHES),
    share_state.WRITE: WriteResult(),
    share_state.DELETE: DeleteResult(),
    share_state.SUMMARY: SummaryResult(0, None, 1, 2, 3, 4),
}


def state_requests_of(api_key: int, version: int) -> list[bytes]:
    """Return requests for share partitions of one topic and of two."""
    topics = [(TOPIC, [_ASKED[api_key]]), (OTHER_TOPIC, [_ASKED[api_key]] * 3)]
    return [state_requests.encode_request(api_key, version, StateRequest("group", topics[:count])) for count in (1, 2)]


def state_responses_of(api_key: int, version: int) -> list[bytes]:
    """Return an answer about two topics."""
    answered = [(TOPIC, [(0, _ANSWERED[api_key])]), (OTHER_TOPIC, [(1, _ANSWERED[api_key])] * 2)]
    return [state_responses.encode_response(api_key, version, answered)]


def consumer_calls_of(name: str) -> list[bytes]:
    """Return the sample of a call of share consumers."""
    return [CODECS[name].encode(CODECS[name].sample)]


def admin_requests() -> list[bytes]:
    """Return commands with and without arguments."""
    return [
        admin.encode_admin_request(admin.AdminRequest("status", {})),
        admin.encode_admin_request(admin.AdminRequest("status", {"wrong": [1, {"a": None}], "b": "ü"})),
    ]


def admin_responses() -> list[bytes]:
    """Return an answer and an error."""
    return [
        admin.encode_admin_response(admin.AdminResponse(0, None, {"a": [1, 2]})),
        admin.encode_admin_response(admin.AdminResponse(42, "why", None)),
    ]


def logins() -> list[bytes]:
    """Return a mechanism by its number, and bodies of SaslAuthenticate, a line each."""
    first = encode_authenticate(0, b"n,,n=alice,r=rOprNGfwEbeRWgbNEkqO")
    last = encode_authenticate(1, b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    return [b"\x00" + encode_authenticate(0, b"\0alice\0sesame"), b"\x01" + first + b"\n" + last, b"\x02" + first]


def users_files() -> list[bytes]:
    """Return files of users."""
    keys = Keys(b"salt" * 4, bytes(32), bytes(32), 4_096)
    return [render_kept(KeptUsers({"alice": {SCRAM_SHA_256: keys}, "bob": {SCRAM_SHA_256: keys}}, bytes(32))).encode()]


def frames() -> list[bytes]:
    """Return whole requests of each call, alone and one behind another."""
    find = to_bytes(FindCoordinatorRequest(key_type=i8(2), coordinator_keys=(format_key(KEY), "wrong")))
    single = [
        encode_request(api_keys.API_VERSIONS, 4, 1, b"me", b"\x05name\x021\x00"),
        encode_request(api_keys.API_VERSIONS, 0, 1, b"me", b""),
        encode_request(
            api_keys.METADATA,
            12,
            2,
            b"",
            to_bytes(MetadataRequest(topics=None, include_topic_authorized_operations=False)),
        ),
        encode_request(api_keys.FIND_COORDINATOR, 6, 3, b"", find),
        encode_request(admin.ADMIN, admin.ADMIN_VERSION, 4, b"cli", admin_requests()[1]),
        *(
            encode_request(api_key, version, 5, b"me", body)
            for api_key, (low, high) in share_state.VERSIONS.items()
            for version in range(low, high + 1)
            for body in state_requests_of(api_key, version)
        ),
    ]
    return [*single, b"".join(single)]


def records() -> list[bytes]:
    """Return records of each kind in both codecs, the length of the key before each."""
    values = (SNAPSHOT, Update(1, 2, 3, 4, BATCHES), None)
    pairs = [encode_record(codec, KEY, value) for codec in Codec for value in values]
    return [bytes([len(key)]) + key + (value or b"") for key, value in pairs]


def record_batches() -> list[bytes]:
    """Return a fetch of two batches, without and with each compression."""
    fetched = []
    for compression in range(5):
        built = b""
        for number in range(2):
            builder = make_batch_builder(compression, 10_000)
            builder.append(0, 1_000 + number, b"key", b"value" * 20, [(HEADER_NAME, encode_header(1, number))])
            data = bytearray(builder.build())
            data[:8] = number.to_bytes(8, "big")
            built += bytes(data)
        fetched.append(built)
    return fetched


def heads_of_batches() -> list[bytes]:
    """Return a fetch as `record_batches` has it, and one of a transaction that was aborted."""
    written = make_batch(0, producer=(3, 0), is_transactional=True)
    return [*record_batches(), written + make_marker(1, (3, 0), ABORT)]


def compressed_records() -> list[bytes]:
    """Return the records of a batch with each compression, and the same without end, behind the number of its codec."""
    return [
        bytes((codec,)) + _batch(codec, value)[BATCH_HEAD_BYTES:]
        for codec in range(1, 5)
        for value in (b"value" * 20, bytes(900_000))
    ]


def _batch(codec: int, value: bytes) -> bytes:
    builder = make_batch_builder(codec, 8 << 20)
    builder.append(0, 1_000, b"key", value, [])
    return bytes(builder.build())


def headers() -> list[bytes]:
    """Return a record header."""
    return [encode_header(5, 17)]


def checkpoints() -> list[bytes]:
    """Return a checkpoint with all that it can say."""
    found = Checkpoint(5, bytes(16), "1", 7, "cluster", TOPIC, 4, "why", "host:9492", "why", 9)
    return [encode_checkpoint(found)]


def snapshot_keys() -> list[bytes]:
    """Return the keys of an entry and of a manifest."""
    share_key, _ = encode_record(Codec.AVRO, KEY, None)
    return [
        entries.encode_entry_key(TOPIC, share_key, 7),
        entries.encode_manifest_key(entries.ManifestKey(TOPIC, 1, 7)),
    ]


def snapshot_entries() -> list[bytes]:
    """Return an entry, and one that says deleted."""
    return [entries.encode_entry(entries.Entry(SNAPSHOT, 3, 5)), entries.encode_entry(entries.Entry(None, 0, -1))]


def manifests() -> list[bytes]:
    """Return a manifest."""
    manifest = entries.Manifest(4, Position(5, bytes(16), 9), checkpoints()[0], 3, 1 << 100, 2)
    return [entries.encode_manifest(entries.ManifestKey(TOPIC, 1, 7), manifest)[1]]


def keys() -> list[bytes]:
    """Return a coordinator key."""
    return [format_key(KEY).encode()]


def member_metadata() -> list[bytes]:
    """Return what a member says of itself."""
    duties, may_serve = ("compaction",), (FormerOwner(NODE, (0, 1), 9),)
    return [encode_metadata(MemberMetadata(NODE, "kelp 1f3c", 5, 3, 4, (0, 1, 7), duties, duties, may_serve))]


def assignments() -> list[bytes]:
    """Return an assignment with members and an absent node, and a refusal."""
    divided = OwnershipMap(3, (MappedMember("m", NODE, Work((0, 1), ("x",))),), (AbsentNode(2, 500, Work((2,))),))
    return [
        encode_assignment(Assignment(AssignmentError.NONE, "", "m", NODE, 5, Work((0, 1), ("x",)), divided)),
        encode_assignment(
            Assignment(AssignmentError.CONFIG_MISMATCH, "why", "m", NODE, 5, Work(), OwnershipMap(0, ()))
        ),
    ]
