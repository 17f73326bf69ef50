"""How clients come in over loopback: logins, and what is refused before them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from holdfast.client import LoginRefused
from holdfast.client.connection import NodeConnection
from holdfast.client.errors import Disconnected
from holdfast.client.login import log_in
from holdfast.daemon.login.credentials import KeptUsers
from holdfast.daemon.login.users_file import write_kept
from holdfast.daemon.server.wire.requests import WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames, sasl_calls
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.scram import ClientSide
from holdfast.kafka.security import Sasl
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until
from tests.world.identity.certificates import Authority, Pair
from tests.world.identity.guarded import CROWD, SECRET, SESAME, Guarded, crowd, guarded, tls_files, tls_of
from tests.world.identity.mechanisms import SCRAM
from tests.world.serving import connected, is_cut_off, write_frame


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
async def test_who_logs_in_is_the_principal_of_its_requests(tmp_path: Path, mechanism: str) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at:
        connection = await at.open(sasl=Sasl(mechanism=mechanism, username="alice", password="sesame"))
        assert await at.call(connection) == "User:alice"
        connection.close()
    assert at.served.reports == []


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
async def test_who_gives_a_wrong_password_is_told_and_loses_its_connection(tmp_path: Path, mechanism: str) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at:
        for name in ("alice", "mallory"):
            with pytest.raises(LoginRefused, match=f"invalid credentials with SASL mechanism {mechanism}"):
                await at.open(sasl=Sasl(mechanism=mechanism, username=name, password="guess"))
        await wait_until(lambda: not len(at.served.server.connections))
    assert at.served.reports.kinds == ["login_failed"] * 2
    assert at.principals == []


async def test_who_knows_no_mechanism_of_the_node_is_told_which_server_knows_what(tmp_path: Path) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path, sasl_enabled_mechanisms=tuple(SCRAM)) as at:
        with pytest.raises(LoginRefused) as refused:
            await at.open(sasl=Sasl(mechanism="PLAIN", username="alice", password="sesame"))
        assert str(refused.value) == (
            f"The login at {at.served.address} failed: the server knows SCRAM-SHA-256, SCRAM-SHA-512, and sasl.mechanism is PLAIN."
        )


async def test_logins_are_in_the_audit_log(tmp_path: Path, authority: Authority, node: Pair) -> None:
    with structlog.testing.capture_logs() as lines:
        async with guarded("SASL_PLAINTEXT", tmp_path) as at:
            (await at.open(sasl=SESAME)).close()
            for mechanism, name in (("PLAIN", "alice"), ("SCRAM-SHA-512", "mallory")):
                with pytest.raises(LoginRefused):
                    await at.open(sasl=Sasl(mechanism=mechanism, username=name, password="guess"))
        async with guarded(
            "SSL",
            tmp_path,
            **tls_files(node, authority),
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=(alice)$/$1/",
        ) as at:
            (await at.open(tls_of(authority, authority.sign("alice", "/CN=alice")))).close()
            for context in (tls_of(authority, authority.sign("bob", "/CN=bob")), tls_of(authority)):
                with pytest.raises(Disconnected):
                    await at.open(context)
            await wait_until(lambda: not len(at.served.server.connections))
    found = [line for line in lines if line["event"].startswith("login_")]
    assert all(line["client"].startswith("127.0.0.1:") for line in found)
    assert [(line["event"], line.get("principal", line.get("claimed_name")), line["mechanism"]) for line in found] == [
        ("login_accepted", "User:alice", "SCRAM-SHA-256"),
        ("login_refused", "alice", "PLAIN"),
        ("login_refused", "mallory", "SCRAM-SHA-512"),
        ("login_accepted", "User:alice", "SSL"),
        ("login_refused", "CN=bob", "SSL"),
        ("login_refused", "", "SSL"),
    ]
    assert found[1]["why"] == "its password is wrong"
    assert "no rule fits" in found[4]["why"]


async def test_the_answer_to_a_failed_login_is_held_back_and_others_are_not(tmp_path: Path) -> None:
    delay_ms = 300
    async with guarded("SASL_PLAINTEXT", tmp_path, connection_failed_authentication_delay_ms=delay_ms) as at:
        began_s = asyncio.get_running_loop().time()
        failing = asyncio.ensure_future(at.open(sasl=Sasl(mechanism="PLAIN", username="alice", password="guess")))
        with pytest.raises(LoginRefused):
            await failing
        assert asyncio.get_running_loop().time() - began_s >= delay_ms / 1_000


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (write_frame(1), "login_skipped"),
        (frames.encode_request(3, 12, 1, b"", b"\x00\x00\x00\x00"), "login_skipped"),
        ((64 * 1024 + 1).to_bytes(4, "big"), "frame_size_exceeded"),
        (frames.encode_request(17, 2, 1, b"", b"", False), "unsupported_version_requested"),
        (frames.encode_request(17, 1, 1, b"", b"\x00\x09PLAIN", False), "malformed_request_received"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame_size_exceeded"),
    ],
)
async def test_what_comes_before_a_login_and_is_none_ends_the_connection(
    tmp_path: Path, data: bytes, kind: str
) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at, connected(at.served) as (reader, writer):
        writer.write(data)
        assert await is_cut_off(reader)
    assert at.served.reports.kinds == [kind]
    assert at.principals == []


async def test_a_request_behind_a_login_that_is_not_decided_ends_the_connection(tmp_path: Path) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at, connected(at.served) as (reader, writer):
        is_over = threading.Event()
        at.security._checker.submit(is_over.wait)  # no password is checked before
        writer.write(frames.encode_request(17, 1, 1, b"", sasl_calls.encode_handshake("PLAIN"), False))
        writer.write(frames.encode_request(36, 2, 2, b"", sasl_calls.encode_authenticate(2, b"\0alice\0sesame")))
        writer.write(write_frame(3))
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        is_over.set()
    assert at.served.reports.kinds == ["login_skipped"]
    assert at.principals == []


async def test_hundreds_of_wrong_passwords_of_one_address_delay_another_by_a_check_or_two(tmp_path: Path) -> None:
    crowd, places = 300, 100
    async with guarded("SASL_PLAINTEXT", tmp_path, plain_logins_waiting_per_address_max=places) as at:
        checks, is_over = at.security._checks, threading.Event()
        at.security._checker.submit(is_over.wait)  # until all are there
        begin, begun = checks._begin, list[str]()

        def begin_counted(check: Callable[[], bool], done: Callable[[bool], None]) -> None:
            assert checks._current is not None
            begun.append(checks._current.address)
            begin(check, done)

        checks._begin = begin_counted
        choice = frames.encode_request(17, 1, 1, b"", sasl_calls.encode_handshake("PLAIN"), False)
        guess = frames.encode_request(36, 2, 2, b"", sasl_calls.encode_authenticate(2, b"\0alice\0guess"))
        clients = [await attack(at, choice + guess)]
        await wait_until(lambda: checks._current is not None)
        clients += [await attack(at, choice + guess) for _ in range(crowd - 1)]
        reads = [asyncio.ensure_future(reader.read()) for reader, _ in clients]
        await wait_until(lambda: checks.waiting == places)
        # Those without a place are told so, whoever they are: on a busy machine a later one may overtake.
        await wait_until(lambda: sum(each.done() for each in reads) == crowd - places - 1)
        assert at.served.reports.kinds == ["login_put_off"] * (crowd - places - 1)
        for answer in (each.result() for each in reads if each.done()):
            second = answer[4 + int.from_bytes(answer[:4], "big") + 4 :]
            _, offset = frames.read_response_header(second, has_tags=True)
            found = sasl_calls.decode_authenticate_answer(2, second, offset)
            assert found.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        placed = [writer for (_, writer), read in zip(clients, reads, strict=True) if not read.done()]
        healthy = asyncio.ensure_future(at.open(sasl=Sasl(mechanism="PLAIN", username="alice", password="sesame")))
        await wait_until(lambda: checks.waiting == places + 1)
        # Who goes takes its password along.
        for writer in placed[places // 2 : places + 1]:
            writer.transport.abort()
        await wait_until(lambda: checks.waiting == places // 2)
        is_over.set()
        connection = await healthy
        assert begun.index("127.0.0.1") <= 2
        assert await at.call(connection) == "User:alice"
        connection.close()
        for _, writer in clients:
            writer.transport.abort()
        await asyncio.gather(*reads)
    metrics = dict(at.registry.numbers())
    assert metrics["holdfast_plain_logins_put_off_total"] == crowd - places - 1


async def test_our_client_may_try_a_login_again_that_is_put_off(tmp_path: Path) -> None:
    plain = Sasl(mechanism="PLAIN", username="alice", password="sesame")
    async with guarded("SASL_PLAINTEXT", tmp_path, plain_logins_waiting_per_address_max=1) as at:
        is_over = threading.Event()
        at.security._checker.submit(is_over.wait)
        first, second = (asyncio.ensure_future(at.open(sasl=plain)) for _ in range(2))
        await wait_until(lambda: at.security._checks.waiting == 1 and at.security._checks._is_busy)
        with pytest.raises(Disconnected, match="puts the login off: Too many logins wait"):
            await at.open(sasl=plain)
        is_over.set()
        for each in await asyncio.gather(first, second):
            each.close()


async def attack(at: Guarded, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send bytes from another address of this machine."""
    port = at.served.server.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    writer.write(data)
    return reader, writer


async def test_hundreds_who_do_not_log_in_lose_their_places_and_others_come_in(tmp_path: Path) -> None:
    limits = LimitSettings(connections_max=250, connections_per_address_max=250)
    now_s = [0.0]
    async with guarded(
        "SASL_PLAINTEXT", tmp_path, limits, WireBounds(silent_ms=PATIENCE_MS), login_timeout_ms=5_000
    ) as at:
        at.served.server.connections.clock = lambda: now_s[0]
        half = frames.encode_request(17, 1, 1, b"", b"\x00\x05PLAIN", False)[:-2]
        with crowd(at, half):
            await wait_until(lambda: len(at.served.server.connections) == CROWD)
            healthy = await at.open(sasl=SESAME)
            now_s[0] = 5.1
            at.served.server.connections.close_overdue()
            await wait_until(lambda: len(at.served.server.connections) == 1)
            assert await at.call(healthy) == "User:alice"
            healthy.close()
    assert at.served.reports.kinds == ["login_timed_out"] * CROWD


async def test_a_login_that_has_ended_is_to_be_made_anew(tmp_path: Path) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path, connections_max_reauth_ms=60_000) as at:
        connection = await at.open(sasl=SESAME)
        assert await at.call(connection) == "User:alice"
        [client] = list(at.served.server.connections._open)
        login = client._login  # type: ignore[attr-defined]
        assert login.violation(login._ends_ms) is None
        login._ends_ms = -1.0
        with pytest.raises(Disconnected):
            await at.call(connection)
    assert at.served.reports.kinds == ["login_expired"]


async def test_a_login_that_is_begun_again_and_held_loses_its_connection(tmp_path: Path) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path, connections_max_reauth_ms=60_000) as at:
        connection = await at.open(sasl=SESAME)
        for _ in range(2):
            await log_in(connection, SESAME)
        [client] = list(at.served.server.connections._open)
        login = client._login  # type: ignore[attr-defined]
        assert login._timeout is None, "one that ends has no time left to keep"
        login._timeout_ms = 1
        handshake = sasl_calls.encode_handshake(SESAME.mechanism)
        await connection.exchange(sasl_calls.SASL_HANDSHAKE, sasl_calls.HANDSHAKE_VERSION, handshake)
        await wait_until(lambda: not len(at.served.server.connections))
    assert at.served.reports.kinds == ["login_timed_out"]


async def test_a_user_who_was_removed_cannot_end_a_login_begun_before(tmp_path: Path) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path, connections_max_reauth_ms=60_000) as at:
        connection = await at.open(sasl=SESAME)
        side = ClientSide(SESAME.mechanism, SESAME.username, SESAME.password)
        handshake = sasl_calls.encode_handshake(SESAME.mechanism)
        await connection.exchange(sasl_calls.SASL_HANDSHAKE, sasl_calls.HANDSHAKE_VERSION, handshake)
        challenge = await say(connection, side.begin())
        write_kept(tmp_path / "users", KeptUsers({}, SECRET))
        at.files.look()
        refused = await say(connection, side.prove(challenge.message))
        assert (challenge.error_code, refused.error_code) == (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
        await wait_until(lambda: not len(at.served.server.connections))
    assert at.served.reports.kinds == ["login_failed"]


async def say(connection: NodeConnection, message: bytes) -> sasl_calls.AuthenticateAnswer:
    request = sasl_calls.encode_authenticate(2, message)
    body = await connection.exchange(sasl_calls.SASL_AUTHENTICATE, 2, request, is_flexible=True)
    return sasl_calls.decode_authenticate_answer(2, body, 0)


async def test_a_request_behind_an_expired_login_gives_back_its_place(tmp_path: Path) -> None:
    limits = LimitSettings(requests_in_flight_per_principal_max=1)
    async with guarded("SASL_PLAINTEXT", tmp_path, limits, connections_max_reauth_ms=60_000) as at:
        connections = at.served.server.connections
        for _ in range(2):
            connection = await at.open(sasl=SESAME)
            assert await at.call(connection) == "User:alice"
            [client] = list(connections._open)
            client._login._ends_ms = -1.0  # type: ignore[attr-defined]
            with pytest.raises(Disconnected):
                await at.call(connection)
            await wait_until(lambda: not len(connections))
            assert (connections.memory.requests, connections.memory.work_bytes) == (0, 0)


async def test_who_leaves_while_its_password_is_checked_gives_back_its_place(tmp_path: Path) -> None:
    """Else whoever sends passwords and goes locks out all who come from its address, which it needs no login for."""
    limits = LimitSettings(requests_in_flight_per_principal_max=2)
    async with guarded("SASL_PLAINTEXT", tmp_path, limits) as at:
        connections = at.served.server.connections
        may_check = threading.Event()
        at.security._checker.submit(may_check.wait, PATIENCE_S)
        try:
            for _ in range(3):
                async with connected(at.served) as (reader, writer):
                    handshake = sasl_calls.encode_handshake("PLAIN")
                    writer.write(frames.encode_request(17, 1, 1, b"", handshake, False))
                    await reader.readexactly(4)
                    password = sasl_calls.encode_authenticate(2, b"\0alice\0guess")
                    writer.write(frames.encode_request(36, 2, 2, b"", password))
                    await wait_until(lambda: connections.memory.requests)
                await wait_until(lambda: not len(connections))
                assert (connections.memory.requests, connections.memory.work_bytes) == (0, 0)
        finally:
            may_check.set()
        connection = await at.open(sasl=SESAME)
        assert await at.call(connection) == "User:alice"
        connection.close()


async def test_a_check_that_raises_refuses_and_does_not_hold_the_others(tmp_path: Path) -> None:
    def check() -> bool:
        raise RuntimeError("bug")

    async with guarded("SASL_PLAINTEXT", tmp_path) as at:
        found: list[bool] = []
        at.security._begin_check(check, found.append)
        await wait_until(lambda: found)
        assert found == [False]
        assert at.bugs.value == 1
