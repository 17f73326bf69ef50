"""How clients come in over loopback: TLS, logins, what is refused before them, and files that change meanwhile."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
import uvloop

from holdfast.client import LoginRefused
from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.errors import Disconnected
from holdfast.client.settings import ClientSettings
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.login.credentials import SECRET_BYTES, KeptUsers, derive
from holdfast.daemon.login.users_file import write_kept
from holdfast.daemon.server.api_table import APIS
from holdfast.daemon.server.entrance import CannotAdmit, NodeEntrance
from holdfast.daemon.server.wire.requests import Body, Request
from holdfast.daemon.settings.components.listener import LimitSettings, SecuritySettings
from holdfast.kafka.protocol import frames, sasl_calls
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.scram import KEY_BYTES
from holdfast.kafka.security import Sasl
from holdfast.metrics.registry import Counter, Registry
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until
from tests.world.access import AUDIT
from tests.world.certificates import Authority, Pair
from tests.world.serving import Served, clients_of, connected, is_cut_off, serve, write_frame
from tests.world.subjects import make_subject

CLIENT = ClientSettings(connect_timeout_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS)
SESAME = Sasl(mechanism="SCRAM-SHA-256", username="alice", password="sesame")
CROWD = 200
SECRET = bytes(SECRET_BYTES)
KEYS = {each: derive(each, "sesame", 4_096) for each in KEY_BYTES}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.sign("node", "/CN=node", days=30)


@dataclass
class Guarded:
    """A server with an entrance, who came in, and what it reports."""

    served: Served
    entrance: NodeEntrance
    files: FileWatch
    registry: Registry
    principals: list[str] = field(default_factory=list)

    async def open(self, tls: ssl.SSLContext | None = None, sasl: Sasl | None = None) -> NodeConnection:
        return await open_connection(Address("127.0.0.1", self.served.server.port), CLIENT, tls, sasl)

    async def call(self, connection: NodeConnection) -> str:
        """Make a call, and return whose it is."""
        await connection.request(85, 1, b"whatever")
        return self.principals[-1]


@asynccontextmanager
async def guarded(
    protocol: Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"],
    tmp_path: Path,
    limits: LimitSettings | None = None,
    **given: Any,
) -> AsyncIterator[Guarded]:
    users = tmp_path / "users"
    write_kept(users, KeptUsers({"alice": KEYS}, SECRET))
    values: dict[str, Any] = {
        "connection_failed_authentication_delay_ms": 0,
        "login_timeout_ms": PATIENCE_MS,
        "sasl_enabled_mechanisms": ("PLAIN", *KEY_BYTES),
    } | {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    settings = SecuritySettings(
        security_protocol=protocol, users_file=str(users), client_properties_file="unused", **values
    )
    files, registry, principals = FileWatch(InternalErrors(Counter())), Registry(), list[str]()

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        if request.api_key == API_VERSIONS:
            respond(VERSIONS)
        else:
            principals.append(request.principal)
            respond(b"done")

    entrance = NodeEntrance(settings, files, registry, AUDIT)
    try:
        async with serve(limits, handler=handler, entrance=entrance) as served:
            yield Guarded(served, entrance, files, registry, principals)
    finally:
        await entrance.stop()


def _versions() -> bytes:
    from holdfast.daemon.server.api_versions import ApiVersionsAnswers

    body = b"\x02c\x021\x00"
    return ApiVersionsAnswers(APIS).answer(3, body, 0)


VERSIONS = _versions()


def tls_of(authority: Authority, own: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


@pytest.mark.parametrize("mechanism", ["PLAIN", *KEY_BYTES])
async def test_who_logs_in_is_the_principal_of_its_requests(tmp_path: Path, mechanism: str) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at:
        connection = await at.open(sasl=Sasl(mechanism=mechanism, username="alice", password="sesame"))
        assert await at.call(connection) == "User:alice"
        connection.close()
    assert at.served.reports == []


@pytest.mark.parametrize("mechanism", ["PLAIN", *KEY_BYTES])
async def test_who_gives_a_wrong_password_is_told_and_loses_its_connection(tmp_path: Path, mechanism: str) -> None:
    async with guarded("SASL_PLAINTEXT", tmp_path) as at:
        for name in ("alice", "mallory"):
            with pytest.raises(LoginRefused, match=f"invalid credentials with SASL mechanism {mechanism}"):
                await at.open(sasl=Sasl(mechanism=mechanism, username=name, password="guess"))
        await wait_until(lambda: not len(at.served.server.connections))
    assert at.served.reports.kinds == ["login_failed"] * 2
    assert at.principals == []


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
            ssl_certificate_location=node.certificate,
            ssl_key_location=node.key,
            ssl_ca_location=authority.certificate,
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=(alice)$/$1/",
        ) as at:
            (await at.open(tls_of(authority, authority.sign("alice", "/CN=alice")))).close()
            for context in (tls_of(authority, authority.sign("bob", "/CN=bob")), tls_of(authority)):
                with pytest.raises(Disconnected):
                    await at.open(context)
            await wait_until(lambda: not len(at.served.server.connections))
    told = [line for line in lines if line["event"].startswith("login_")]
    assert all(line["client"].startswith("127.0.0.1:") for line in told)
    assert [(line["event"], line.get("principal", line.get("claimed_name")), line["mechanism"]) for line in told] == [
        ("login_accepted", "User:alice", "SCRAM-SHA-256"),
        ("login_refused", "alice", "PLAIN"),
        ("login_refused", "mallory", "SCRAM-SHA-512"),
        ("login_accepted", "User:alice", "SSL"),
        ("login_refused", "CN=bob", "SSL"),
        ("login_refused", "", "SSL"),
    ]
    assert told[1]["why"] == "its password is wrong"
    assert "no rule fits" in told[4]["why"]


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
        at.entrance._checker.submit(is_over.wait)  # no password is checked before
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
        checks, is_over = at.entrance._checks, threading.Event()
        at.entrance._checker.submit(is_over.wait)  # until all are there
        begin, begun = checks._begin, list[str]()

        def begin_counted(check: Callable[[], bool], done: Callable[[bool], None]) -> None:
            assert checks._current is not None
            begun.append(checks._current.address)
            begin(check, done)

        checks._begin = begin_counted
        choice = frames.encode_request(17, 1, 1, b"", sasl_calls.encode_handshake("PLAIN"), False)
        guess = frames.encode_request(36, 2, 2, b"", sasl_calls.encode_authenticate(2, b"\0alice\0guess"))
        clients = [await attack(at, choice + guess) for _ in range(crowd)]
        await wait_until(lambda: checks.waiting == places)
        # Those without a place are told so.
        await wait_until(lambda: at.served.reports.kinds.count("login_put_off") == crowd - places - 1)
        answers = await asyncio.gather(*(reader.read() for reader, _ in clients[places + 1 :]))
        for answer in answers:
            second = answer[4 + int.from_bytes(answer[:4], "big") + 4 :]
            _, offset = frames.read_response_header(second, has_tags=True)
            told = sasl_calls.decode_authenticate_answer(2, second, offset)
            assert told.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        healthy = asyncio.ensure_future(at.open(sasl=Sasl(mechanism="PLAIN", username="alice", password="sesame")))
        await wait_until(lambda: checks.waiting == places + 1)
        # Who goes takes its password along.
        for _, writer in clients[places // 2 : places + 1]:
            writer.transport.abort()
        await wait_until(lambda: checks.waiting == places // 2)
        is_over.set()
        connection = await healthy
        assert begun.index("127.0.0.1") <= 2
        assert await at.call(connection) == "User:alice"
        connection.close()
        for _, writer in clients:
            writer.transport.abort()
    metrics = at.registry.snapshot()
    assert metrics["holdfast_plain_logins_put_off_total"] == crowd - places - 1


async def test_our_client_may_try_a_login_again_that_is_put_off(tmp_path: Path) -> None:
    plain = Sasl(mechanism="PLAIN", username="alice", password="sesame")
    async with guarded("SASL_PLAINTEXT", tmp_path, plain_logins_waiting_per_address_max=1) as at:
        is_over = threading.Event()
        at.entrance._checker.submit(is_over.wait)
        first, second = (asyncio.ensure_future(at.open(sasl=plain)) for _ in range(2))
        await wait_until(lambda: at.entrance._checks.waiting == 1 and at.entrance._checks._is_busy)
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
    limits = LimitSettings(connections_max=250, connections_per_address_max=250, connections_silent_ms=PATIENCE_MS)
    now_s = [0.0]
    async with guarded("SASL_PLAINTEXT", tmp_path, limits, login_timeout_ms=5_000) as at:
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


@contextmanager
def crowd(at: Guarded, beginning: bytes) -> Iterator[None]:
    """Have many clients connect, of which every other one says the beginning of something, and no more."""
    clients = [socket.create_connection(("127.0.0.1", at.served.server.port)) for _ in range(CROWD)]
    for client in clients[::2]:
        client.sendall(beginning)
    try:
        yield
    finally:
        for client in clients:
            client.close()


def run_on(loop: str, test: Callable[[], Any]) -> None:
    """Run a test on asyncio's own loop, or on the one that nodes have."""
    if loop == "asyncio":
        asyncio.run(test())
    else:
        uvloop.run(test())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_over_tls_a_certificate_is_who_a_client_is(tmp_path: Path, authority: Authority, node: Pair, loop: str) -> None:
    alice = authority.sign("alice", "/O=Kelp/OU=Nodes/CN=Alice")

    async def come_in() -> None:
        async with guarded(
            "SSL",
            tmp_path,
            ssl_certificate_location=node.certificate,
            ssl_key_location=node.key,
            ssl_ca_location=authority.certificate,
            ssl_client_auth="requested",
            ssl_principal_mapping_rules="RULE:^CN=(\\w+),OU=Nodes.*$/$1/L",
        ) as at:
            named = await at.open(tls_of(authority, alice))
            assert await at.call(named) == "User:alice"
            named.close()
            unnamed = await at.open(tls_of(authority))
            assert await at.call(unnamed) == "User:ANONYMOUS"
            unnamed.close()
        assert at.served.reports == []

    run_on(loop, come_in)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_over_tls_a_login_is_who_a_client_is(tmp_path: Path, authority: Authority, node: Pair, loop: str) -> None:
    async def come_in() -> None:
        async with guarded(
            "SASL_SSL", tmp_path, ssl_certificate_location=node.certificate, ssl_key_location=node.key
        ) as at:
            connection = await at.open(tls_of(authority), SESAME)
            assert await at.call(connection) == "User:alice"
            connection.close()
            with pytest.raises(LoginRefused):
                await at.open(tls_of(authority), Sasl(mechanism="PLAIN", username="alice", password="guess"))
        assert at.served.reports.kinds == ["login_failed"]

    run_on(loop, come_in)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_fails_the_handshake_does_not_come_in(
    tmp_path: Path, authority: Authority, node: Pair, tmp_path_factory: pytest.TempPathFactory, loop: str
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger").sign("mallory", "/CN=alice")
    outsider = authority.sign("outsider", "/CN=outsider")

    async def knock() -> None:
        async with guarded(
            "SSL",
            tmp_path,
            ssl_certificate_location=node.certificate,
            ssl_key_location=node.key,
            ssl_ca_location=authority.certificate,
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=(alice)$/$1/",
        ) as at:
            for context in (tls_of(authority), tls_of(authority, stranger), tls_of(authority, outsider), None):
                with pytest.raises(Disconnected):
                    await at.open(context)
            async with connected(at.served) as (reader, writer):
                writer.write(b"\x16\x03\x01\xff\xff" + bytes(500))
                await is_cut_off(reader)
            await wait_until(lambda: not len(at.served.server.connections))
        kinds = at.served.reports.kinds
        assert kinds == [*["tls_handshake_failed"] * 2, "client_not_admitted", *["tls_handshake_failed"] * 2]
        assert at.principals == []

    run_on(loop, knock)


async def test_a_certificate_of_any_shape_is_a_principal_or_refused(
    tmp_path: Path, authority: Authority, node: Pair
) -> None:
    name, unit = "2.5.4.3", "2.5.4.11"
    subjects = {
        "two": make_subject({name: "alice", unit: "Nodes"}),
        "none": make_subject(),
        "nobody": make_subject({name: "ANONYMOUS"}),
        "nameless": make_subject({name: ""}),
        "split": make_subject({name: "alice\0"}),
    }
    async with guarded(
        "SSL",
        tmp_path,
        ssl_certificate_location=node.certificate,
        ssl_key_location=node.key,
        ssl_ca_location=authority.certificate,
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=(\\w*)$/$1/,DEFAULT",
    ) as at:
        pairs = {each: authority.sign_subject(each, subject) for each, subject in subjects.items()}
        two = await at.open(tls_of(authority, pairs.pop("two")))
        assert await at.call(two) == "User:CN=alice+OU=Nodes"
        two.close()
        for pair in pairs.values():
            with pytest.raises(Disconnected):
                await at.open(tls_of(authority, pair))
    assert [(kind, text) for kind, _, text in at.served.reports] == [
        ("client_not_admitted", "the certificate has no subject; issue it with one, as in CN=orders"),
        (
            "client_not_admitted",
            "ssl.principal.mapping.rules make 'User:ANONYMOUS' of 'CN=ANONYMOUS', which is nobody's name",
        ),
        ("client_not_admitted", "ssl.principal.mapping.rules make 'User:' of 'CN=', which is nobody's name"),
        ("client_not_admitted", "the certificate has a control character in its CN; issue it without"),
    ]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_hundreds_who_do_not_end_their_handshake_hold_places_for_a_time_only(
    tmp_path: Path, authority: Authority, node: Pair, loop: str
) -> None:
    async def besiege() -> None:
        async with guarded(
            "SSL",
            tmp_path,
            ssl_certificate_location=node.certificate,
            ssl_key_location=node.key,
            login_timeout_ms=2_000,
        ) as at:
            with crowd(at, b"\x16\x03\x01\x02\x00\x01\x00"):
                await wait_until(lambda: len(at.served.server.connections) == CROWD)
                healthy = await at.open(tls_of(authority))
                assert await at.call(healthy) == "User:ANONYMOUS"
                await wait_until(lambda: len(at.served.server.connections) == 1)
                healthy.close()
        assert at.served.reports.kinds == ["tls_handshake_failed"] * CROWD

    run_on(loop, besiege)


async def test_the_time_until_a_login_ends_counts_the_handshake_too(
    tmp_path: Path, authority: Authority, node: Pair
) -> None:
    now_s = [0.0]
    async with guarded(
        "SASL_SSL",
        tmp_path,
        ssl_certificate_location=node.certificate,
        ssl_key_location=node.key,
        login_timeout_ms=60_000,
    ) as at:
        connections = at.served.server.connections
        connections.clock = lambda: now_s[0]
        slow = socket.create_connection(("127.0.0.1", at.served.server.port))
        await wait_until(lambda: len(connections) == 1)
        now_s[0] = 50.0
        reader, writer = await asyncio.open_connection(sock=slow, ssl=tls_of(authority), server_hostname="127.0.0.1")
        await wait_until(lambda: any(each._connection is not None for each in clients_of(connections)))
        now_s[0] = 61.0
        connections.close_overdue()
        assert await is_cut_off(reader)
        writer.transport.abort()
    assert at.served.reports.kinds == ["login_timed_out"]


async def test_a_large_answer_and_many_requests_go_through_tls(
    tmp_path: Path, authority: Authority, node: Pair
) -> None:
    async with guarded("SSL", tmp_path, ssl_certificate_location=node.certificate, ssl_key_location=node.key) as at:
        at.served.server.hand_over(
            lambda request, respond: respond(VERSIONS if request.api_key == API_VERSIONS else request.frame * 100)
        )
        connection = await at.open(tls_of(authority))
        bodies = [bytes([number]) * 5_000 for number in range(30)]
        answers = await asyncio.gather(*(connection.request(85, 1, body) for body in bodies))
        for body, (frame, offset) in zip(bodies, answers, strict=True):
            assert frame[offset:].endswith(body)
            assert len(frame) > 500_000
        connection.close()


async def test_a_certificate_and_users_are_taken_over_without_dropping_a_connection(
    tmp_path: Path, authority: Authority
) -> None:
    shown = tmp_path / "node.pem"
    first, second = (authority.sign(name, f"/CN={name}") for name in ("first", "second"))

    def show(pair: Pair) -> None:
        draft = tmp_path / "draft"
        draft.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
        draft.replace(shown)

    def name_of(connection: NodeConnection) -> str:
        assert connection._transport is not None
        subject = connection._transport.get_extra_info("peercert")["subject"]
        return str(subject[0][0][1])

    show(first)
    async with guarded("SASL_SSL", tmp_path, ssl_certificate_location=shown) as at:
        before = await at.open(tls_of(authority), SESAME)
        show(second)
        write_kept(tmp_path / "users", KeptUsers({"bob": KEYS}, SECRET))
        at.files.look()
        after = await at.open(tls_of(authority), Sasl(mechanism="PLAIN", username="bob", password="sesame"))
        assert (name_of(before), name_of(after)) == ("first", "second")
        assert (await at.call(after), await at.call(before)) == ("User:bob", "User:alice")
        with pytest.raises(LoginRefused):
            await at.open(tls_of(authority), SESAME)
        # What is wrong changes nothing.
        shown.write_text("no certificate")
        (tmp_path / "users").write_text("no users here")
        with structlog.testing.capture_logs() as lines:
            at.files.look()
        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("certificate_refused", "error"),
            ("users_refused", "error"),
        ]
        assert "node.pem" in lines[0]["why"]
        assert "line 1" in lines[1]["why"]
        again = await at.open(tls_of(authority), Sasl(mechanism="PLAIN", username="bob", password="sesame"))
        assert name_of(again) == "second"
        for connection in (before, after, again):
            connection.close()


async def test_a_certificate_that_ends_soon_is_a_metric_and_a_warning(
    tmp_path: Path, authority: Authority, node: Pair
) -> None:
    def settings(pair: Pair) -> SecuritySettings:
        return SecuritySettings(
            security_protocol="SSL",
            client_properties_file="unused",
            ssl_certificate_location=str(pair.certificate),
            ssl_key_location=str(pair.key),
        )

    for pair, days, events in (
        (node, 30, ["certificate_loaded"]),
        (authority.sign("brief", "/CN=brief", days=3), 3, ["certificate_loaded", "certificate_expiring"]),
    ):
        registry = Registry()
        with structlog.testing.capture_logs() as lines:
            entrance = NodeEntrance(settings(pair), FileWatch(InternalErrors(Counter())), registry, AUDIT)
        assert days - 0.1 < registry.snapshot()["holdfast_certificate_days_left"] <= days
        assert [line["event"] for line in lines] == events
        await entrance.stop()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl_certificate_location": "/nowhere.pem"}, r"ssl\.certificate\.location=/nowhere\.pem"),
        ({"ssl_principal_mapping_rules": "default"}, r"ssl\.principal\.mapping\.rules is wrong: 'default'"),
    ],
)
async def test_what_cannot_be_used_is_said_at_the_start(node: Pair, given: dict[str, str], why: str) -> None:
    values: dict[str, Any] = {"ssl_certificate_location": str(node.certificate), "ssl_key_location": str(node.key)}
    settings = SecuritySettings(security_protocol="SSL", client_properties_file="unused", **values | given)
    with pytest.raises(CannotAdmit, match=why):
        NodeEntrance(settings, FileWatch(InternalErrors(Counter())), Registry(), AUDIT)
