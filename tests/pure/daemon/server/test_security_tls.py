"""How clients come in over loopback: TLS and certificates, and files that change meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from holdfast.client import LoginRefused
from holdfast.client.connection import NodeConnection
from holdfast.client.errors import Disconnected
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.login.credentials import KeptUsers
from holdfast.daemon.login.users_file import write_kept
from holdfast.daemon.server.security import CannotAdmit, NodeSecurity
from holdfast.daemon.settings.components.listener import SecuritySettings
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.security import Sasl
from holdfast.metrics.registry import Registry
from tests.waiting import PATIENCE_MS, wait_until
from tests.world.context import make_context
from tests.world.identity.access import AUDIT
from tests.world.identity.certificates import Authority, Pair
from tests.world.identity.guarded import CROWD, KEYS, SECRET, SESAME, VERSIONS, crowd, guarded, tls_files, tls_of
from tests.world.identity.subjects import make_subject
from tests.world.serving import clients_of, connected, is_cut_off


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
            **tls_files(node, authority),
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
        async with guarded("SASL_SSL", tmp_path, **tls_files(node)) as at:
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

    async def fail_handshakes() -> None:
        async with guarded(
            "SSL",
            tmp_path,
            **tls_files(node, authority),
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

    run_on(loop, fail_handshakes)


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
        "decomposed": make_subject({name: "Zoe\u0308"}),
    }
    async with guarded(
        "SSL",
        tmp_path,
        **tls_files(node, authority),
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
        (
            "client_not_admitted",
            "ssl.principal.mapping.rules make a principal of 'CN=Zoe\u0308' that is 'User:CN=Zoe\\u0308'; it must be normalised "
            "by Unicode's NFKC, as logins are: 'User:CN=Zoë'",
        ),
    ]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_hundreds_who_do_not_end_their_handshake_hold_places_for_a_time_only(
    tmp_path: Path, authority: Authority, node: Pair, loop: str
) -> None:
    async def besiege() -> None:
        async with guarded(
            "SSL",
            tmp_path,
            **tls_files(node),
            login_timeout_ms=2_000,
        ) as at:
            connections = at.served.server.connections
            with crowd(at, b"\x16\x03\x01\x02\x00\x01\x00"):
                # Not those that are open: where accepting all takes longer than a handshake may, the first are gone by then.
                await wait_until(lambda: connections.accepted == CROWD, "that all came")
                at.security.login_timeout_ms = PATIENCE_MS
                healthy = await at.open(tls_of(authority))
                assert await at.call(healthy) == "User:ANONYMOUS"
                await wait_until(lambda: len(connections) == 1, "that those are closed that do not end their handshake")
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
        **tls_files(node),
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
    async with guarded("SSL", tmp_path, **tls_files(node)) as at:
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


async def test_a_change_while_files_are_read_for_the_first_time_is_not_missed(
    tmp_path: Path, authority: Authority
) -> None:
    shown, users = tmp_path / "node.pem", tmp_path / "users"
    pairs = [authority.sign(name, "/CN=node", days=days) for name, days in (("old", 2), ("new", 9))]
    texts = [pair.certificate.read_text() + pair.key.read_text() for pair in pairs]
    shown.write_text(texts[0])
    write_kept(users, KeptUsers({"alice": KEYS}, SECRET))

    class Meddled(FileWatch):
        """A file changes in the moment before it is followed."""

        def follow(self, setting: str, paths: Callable[[], Sequence[Path]], reload: Callable[[], bool]) -> None:
            if users in paths():
                write_kept(users, KeptUsers({"bob": KEYS}, SECRET))
            else:
                shown.write_text(texts[1])
            super().follow(setting, paths, reload)

    settings = SecuritySettings(
        security_protocol="SASL_SSL",
        client_properties_file="unused",
        ssl_certificate_location=str(shown),
        users_file=str(users),
    )
    registry = Registry()
    files = Meddled(make_context(registry=registry))
    security = NodeSecurity(settings, files, make_context(registry=registry), AUDIT)
    files.look()
    assert dict(registry.numbers())["holdfast_certificate_days_left{port=listener}"] > 8
    with structlog.testing.capture_logs() as lines:
        users.write_text("no users here")
        files.look()
    assert [line["event"] for line in lines] == ["users_refused"]
    assert "holdfast_file_refusal_age_seconds{setting=listener.users.file}" in dict(registry.numbers())
    mechanism = next(iter(KEYS))
    assert security._users.find("bob", mechanism) == KEYS[mechanism]
    await security.stop()


async def test_a_certificate_that_ends_soon_is_a_metric_and_a_warning(
    tmp_path: Path, authority: Authority, node: Pair
) -> None:
    def settings(pair: Pair) -> SecuritySettings:
        return SecuritySettings(
            security_protocol="SSL",
            client_properties_file="unused",
            **tls_files(pair),
        )

    for pair, days, events in (
        (node, 30, ["certificate_loaded"]),
        (authority.sign("brief", "/CN=brief", days=3), 3, ["certificate_loaded", "certificate_expiring"]),
    ):
        registry = Registry()
        with structlog.testing.capture_logs() as lines:
            security = NodeSecurity(
                settings(pair),
                FileWatch(make_context()),
                make_context(registry=registry),
                AUDIT,
            )
        assert days - 0.1 < dict(registry.numbers())["holdfast_certificate_days_left{port=listener}"] <= days
        assert [line["event"] for line in lines] == events
        await security.stop()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl_certificate_location": "/nowhere.pem"}, r"ssl\.certificate\.location=/nowhere\.pem"),
        ({"ssl_principal_mapping_rules": "default"}, r"ssl\.principal\.mapping\.rules is wrong: 'default'"),
    ],
)
async def test_what_cannot_be_used_is_said_at_the_start(node: Pair, given: dict[str, str], why: str) -> None:
    settings = SecuritySettings(security_protocol="SSL", client_properties_file="unused", **tls_files(node) | given)
    with pytest.raises(CannotAdmit, match=why):
        NodeSecurity(settings, FileWatch(make_context()), make_context(), AUDIT)
