"""The calls of the attacks by who has no rights: each is well formed, and none gives anything away."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.attacks.probes import SECRET_GROUP, armed, calls
from holdfast.api import share_state
from holdfast.api.admin import ADMIN
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.wire.connection import Connection
from holdfast.daemon.server.wire.requests import Request, Violation
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.metrics.instruments import Counter
from tests.world.identity.access import closed
from tests.world.samples import TOPIC
from tests.world.serving import FakeCluster, FakeService
from tests.world.tenants import APIS, NEEDS, make_handler

CALLS = list(calls(TOPIC, SECRET_GROUP))


def give(api_key: int, version: int, body: bytes) -> tuple[bytes | None, FakeService]:
    """Return what a node answers to a client without rights, None where it closes, and what its service was asked."""
    service = FakeService()
    handler = make_handler(service, FakeCluster(), Admin({}, NEEDS, 1_000, InternalErrors(Counter())), closed())
    connection = Connection(APIS, LimitSettings(), "10.0.0.1:5", 0.0)
    has_tags = version >= APIS[api_key].flexible_from
    connection.receive(frames.encode_request(api_key, version, 7, b"prober", body, has_tags))
    request = connection.next_event(0.0)
    if isinstance(request, Violation):
        return None, service
    assert isinstance(request, Request), request
    answers: list[Any] = []
    try:
        for _ in handler(request, answers.append) or ():
            pass
    except MalformedBody:
        return None, service
    (answer,) = answers
    return answer if isinstance(answer, bytes) else b"".join(answer), service


def test_every_call_in_every_version_is_among_them() -> None:
    assert {(api_key, version) for api_key, version, _ in CALLS} == {
        (api_key, version) for api_key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)
    }
    assert sum(api_key == ADMIN for api_key, _, _ in CALLS) == len(NEEDS.commands)


@pytest.mark.parametrize(("api_key", "version", "body"), CALLS)
def test_each_is_well_formed_and_reaches_no_state(api_key: int, version: int, body: bytes) -> None:
    answer, service = give(api_key, version, body)
    assert answer is not None
    assert service.requests == []
    if api_key in share_state.VERSIONS:
        assert SECRET_GROUP.encode() not in answer


def test_a_length_that_is_too_large_is_no_error_of_ours() -> None:
    answered = 0
    for api_key, version, body in CALLS:
        for bomb in armed(body):
            answer, service = give(api_key, version, bomb)
            assert service.requests == []
            answered += answer is not None
    assert 0 < answered < 50 * len(CALLS)
