"""The admin call: commands at once, as coroutines and in steps; refusals, failures, bounds, and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.api.admin import ADMIN, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminError
from holdfast.daemon.server.wire.requests import Body, Request, RequestMemory
from holdfast.metrics.instruments import Counter
from tests.pure.daemon.server.calls import (
    ApiWorld,
    admin_world,
)
from tests.waiting import wait_until
from tests.world.tenants import NEEDS


@pytest.mark.parametrize(
    ("command", "code", "message", "result"),
    [
        ("echo", 0, None, {"a": [1, "ü"]}),
        ("slow", 0, None, {"slow": {"a": [1, "ü"]}}),
        ("ecko", 42, "The admin command 'ecko' is unknown to this node; did you mean echo.", None),
        ("refuse", 42, "Partition 9 does not exist; there are 3.", None),
        ("fail", -1, "The command fail failed in the node; its log says why.", None),
        ("odd", -1, "The command odd failed in the node; its log says why.", None),
        ("endless", -1, "The command endless took longer than 20 ms and was given up.", None),
    ],
)
async def test_admin_commands(command: str, code: int, message: str | None, result: object) -> None:
    world = admin_world()
    answers: list[Body] = []
    body = encode_admin_request(AdminRequest(command, {"a": [1, "ü"]}))
    world.handler(Request(ADMIN, 0, 1, b"", body, 0, "client", RequestMemory(), 0), answers.append)
    await wait_until(lambda: bool(answers))
    (answer,) = answers
    assert isinstance(answer, bytes)
    assert decode_admin_response(answer) == (code, message, result)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_large_admin_command_is_worked_off_in_steps_while_its_client_waits(is_wanted: bool) -> None:
    done: list[int] = []

    def count(arguments: dict[str, Any]) -> Any:
        for step in range(3):
            done.append(step)
            yield
        return done

    answers: list[Body] = []
    body = encode_admin_request(AdminRequest("count", {}))
    request = Request(ADMIN, 0, 1, b"", body, 0, "client", RequestMemory(), 0)
    steps = ApiWorld({"count": count}).handler(request, answers.append)
    assert steps is not None
    assert next(steps)
    assert (done, answers) == ([0], [])
    request.is_wanted = is_wanted
    assert len(list(steps)) == (2 if is_wanted else 0)
    if is_wanted:
        assert isinstance(answers[0], bytes)
        assert decode_admin_response(answers[0]).result == [0, 1, 2]
    else:
        assert answers == [b""]


def test_the_refusal_of_an_admin_command_is_short_and_can_be_sent_whatever_it_repeats() -> None:
    def refuse(arguments: dict[str, Any]) -> object:
        raise AdminError(f"There is no {arguments['what']}.")

    answers: list[bytes] = []
    admin = Admin({"refuse": refuse}, NEEDS, 60_000, InternalErrors(Counter()))
    for what in ("\ud800", "x" * 8_000_000, "\ud800" * 8_000_000):
        admin.handle(AdminRequest("refuse", {"what": what}), answers.append)
    texts = [decode_admin_response(answer).error_message or "" for answer in answers]
    assert texts[0] == "There is no \\ud800."
    assert max(map(len, texts)) < 10_000


def test_a_failed_admin_command_names_its_client_in_the_log() -> None:
    def fail(arguments: dict[str, Any]) -> object:
        raise RuntimeError("secret")

    bugs = Counter()
    with capture_logs() as lines:
        Admin({"fail": fail}, NEEDS, 60_000, InternalErrors(bugs)).handle(
            AdminRequest("fail", {}), lambda _: None, "10.0.0.1:5"
        )
    assert [(line["command"], line["client"]) for line in lines] == [("fail", "10.0.0.1:5")]
    assert bugs.value == 1


def test_an_admin_command_above_its_bound_is_refused_in_few_words_and_not_run() -> None:
    ran: list[object] = []
    world = ApiWorld({"echo": ran.append})
    answer = world.ask_raw(ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": "x" * 1_024})))
    assert len(answer) < 300
    assert decode_admin_response(answer) == (
        42,
        "The command has 1041 bytes with its arguments, and this node takes 1024; make the arguments shorter.",
        None,
    )
    assert ran == []
    world.ask_raw(ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": "x" * 900})))
    assert len(ran) == 1


async def test_closing_cancels_admin_commands_in_flight() -> None:
    async def endless(arguments: dict[str, Any]) -> object:
        await asyncio.Event().wait()
        return None

    admin = Admin({"endless": endless}, NEEDS, 60_000, InternalErrors(Counter()))
    answers: list[bytes] = []
    admin.handle(AdminRequest("endless", {}), answers.append)
    await admin.close()
    assert answers == []
    assert not admin._tasks
