"""The table: what ApiVersions advertises, share-state calls, and malformed bodies of every call and version."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.api import state_requests, state_responses
from holdfast.api.admin import ADMIN, AdminRequest, encode_admin_request
from holdfast.api.results import ReadPartition, ReadResult, StateRequest
from holdfast.kafka.protocol import sasl_calls
from holdfast.kafka.protocol.primitives import MalformedBody, encode_string
from holdfast.tenants import TABLES
from tests.pure.daemon.server.calls import (
    ApiWorld,
    admin_world,
    key,
    kio_bytes,
    metadata_fields,
    schema,
)
from tests.world.samples import TOPIC
from tests.world.tenants import APIS

# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_api_versions_advertises_the_table(version: int) -> None:
    fields = {"client_software_name": "c", "client_software_version": "1"} if version >= 3 else {}
    response = ApiWorld().ask("api_versions", version, **fields)
    assert response.error_code is ErrorCode.none
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == {
        3: (0, 13),
        10: (0, 6),
        17: (0, 1),
        18: (0, 4),
        36: (0, 2),
        83: (0, 0),
        84: (0, 0),
        85: (0, 1),
        86: (0, 0),
        87: (0, 1),
        10_900: (0, 0),
    }
    if version >= 3:
        (supported,), (finalized,) = response.supported_features, response.finalized_features
        assert (supported.name, supported.min_version, supported.max_version) == ("share.version", 1, 1)
        assert (finalized.name, finalized.max_version_level) == ("share.version", 1)
        assert response.finalized_features_epoch == 0


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_an_unknown_version_of_api_versions_is_answered_with_version_0(version: int) -> None:
    answer = ApiWorld().ask_raw(18, version, b"whatever a later version holds")
    response, size = entity_reader(schema("api_versions", 0, "response", "ApiVersionsResponse"))(answer, 0)
    assert size == len(answer)
    assert response.error_code is ErrorCode.unsupported_version
    assert {key.api_key for key in response.api_keys} == set(APIS)


def test_a_gateway_has_the_calls_of_consumers_as_well() -> None:
    gateway = {key: (api.min_version, api.max_version) for key, api in TABLES.apis.items() if key not in APIS}
    assert gateway == {0: (3, 9), 1: (4, 12), 9: (2, 7), 68: (0, 1), 76: (1, 1), 78: (1, 2), 79: (1, 2)}


def test_every_call_that_is_advertised_is_named() -> None:
    assert {key: api.name for key, api in APIS.items() if key < 10_000} == {
        3: "Metadata",
        10: "FindCoordinator",
        17: "SaslHandshake",
        18: "ApiVersions",
        36: "SaslAuthenticate",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
    }
    write = APIS[85]
    assert (write.name, write.min_version, write.max_version, write.flexible_from) == ("WriteShareGroupState", 0, 1, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_where_nobody_logs_in_a_login_is_refused_and_nothing_else_comes_of_it(version: int) -> None:
    handshake = ApiWorld().ask_raw(17, 1, sasl_calls.encode_handshake("PLAIN"))
    assert sasl_calls.decode_handshake_answer(handshake, 0) == (ErrorCode.illegal_sasl_state, [])
    body = sasl_calls.encode_authenticate(version, b"\0alice\0sesame")
    answer = sasl_calls.decode_authenticate_answer(version, ApiWorld().ask_raw(36, version, body), 0)
    assert (answer.error_code, answer.message) == (ErrorCode.illegal_sasl_state, b"")


# Share-state calls


def test_a_share_call_reaches_the_service_and_its_answer_comes_back() -> None:
    world = ApiWorld()
    request = StateRequest("g", [(TOPIC, [ReadPartition(3, 4)])])
    world.service.answer = lambda api_key, key, asked: ReadResult(0, None, 7, 8, ())
    answer = world.ask_raw(84, 0, state_requests.encode_request(84, 0, request))
    assert world.service.requests == [(84, request)]
    assert state_responses.decode_response(84, 0, answer) == [(TOPIC, [(3, ReadResult(0, None, 7, 8, ()))])]


def test_a_share_call_names_a_bounded_number_of_share_partitions() -> None:
    world = ApiWorld()
    topics: list[Any] = [(TOPIC, [ReadPartition(n, 4) for n in range(count)]) for count in (30, 20)]
    assert world.ask_raw(84, 0, state_requests.encode_request(84, 0, StateRequest("g", list(topics))))
    topics.append((TOPIC, [ReadPartition(1, 4)]))
    with pytest.raises(MalformedBody, match="one request may name at most 50 share partitions"):
        world.ask_raw(84, 0, state_requests.encode_request(84, 0, StateRequest("g", list(topics))))
    assert len(world.service.requests) == 1


# Malformed bodies


def samples() -> list[tuple[int, int, bytes]]:
    """Return a body for every call and version."""
    texts = encode_string("c") + encode_string("1") + b"\x00"
    bodies = [(18, version, texts if version >= 3 else b"") for version in range(5)]
    for version in range(14):
        topics: list[tuple[str | None, uuid.UUID | None]] = [("orders", None), ("__holdfast_share_state", None)]
        request = schema("metadata", version, "request", "MetadataRequest")(**metadata_fields(version, topics))
        bodies.append((3, version, kio_bytes(request)))
    for version in range(7):
        keys: dict[str, Any] = {"coordinator_keys": (key(1), "x")} if version >= 4 else {"key": key(1)}
        types = {"key_type": 2} if version >= 1 else {}
        request = schema("find_coordinator", version, "request", "FindCoordinatorRequest")(**types, **keys)
        bodies.append((10, version, kio_bytes(request)))
    bodies.append((84, 0, state_requests.encode_request(84, 0, StateRequest("g", [(TOPIC, [ReadPartition(3, 4)])]))))
    bodies.append((ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": 1}))))
    return bodies


@pytest.mark.parametrize(("api_key", "version", "body"), [pytest.param(*s, id=f"{s[0]}-{s[1]}") for s in samples()])
def test_cut_trailing_and_mutated_bodies_are_malformed_or_answered(api_key: int, version: int, body: bytes) -> None:
    world = admin_world()
    assert world.ask_raw(api_key, version, body)
    for length in range(len(body)):
        with pytest.raises(MalformedBody):
            world.ask_raw(api_key, version, body[:length])
    if api_key in (3, 10, 18):
        assert world.ask_raw(api_key, version, body + b"\x01\x00\x00") == world.ask_raw(api_key, version, body)
    else:
        with pytest.raises(MalformedBody):
            world.ask_raw(api_key, version, body + b"\x00")
    source = random.Random(api_key * 100 + version)
    tries: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(source.randrange(len(data)), source.randrange(256)),
        lambda data: data.__setitem__(slice(source.randrange(len(data)), None), b"\xff\xff\xff\xff\x07\x01\x02\x03"),
        lambda data: data.__setitem__(slice(0, 4), b"\x7f\xff\xff\xff"),
    ]
    refused = 0
    for _ in range(300 if body else 0):
        data = bytearray(body)
        source.choice(tries)(data)
        try:
            world.ask_raw(api_key, version, bytes(data))
        except MalformedBody:
            refused += 1
    assert refused > 50 or not body
