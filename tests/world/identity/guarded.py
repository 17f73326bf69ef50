"""A listener on loopback with TLS and logins, and who came in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.settings import ClientSettings
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.login.credentials import SECRET_BYTES, KeptUsers, derive
from holdfast.daemon.login.users_file import write_kept
from holdfast.daemon.server.security import NodeSecurity
from holdfast.daemon.server.wire.requests import Body, Request, WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings, SecuritySettings
from holdfast.kafka.protocol.api_keys import API_VERSIONS
from holdfast.kafka.security import Sasl
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from tests.waiting import PATIENCE_MS
from tests.world.context import make_context
from tests.world.identity.access import AUDIT
from tests.world.identity.certificates import Authority, Pair
from tests.world.identity.mechanisms import SCRAM
from tests.world.serving import Served, serve
from tests.world.tenants import APIS

CLIENT = ClientSettings(connect_timeout_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS)
CROWD = 200
SESAME = Sasl(mechanism="SCRAM-SHA-256", username="alice", password="sesame")
SECRET = bytes(SECRET_BYTES)
KEYS = {each: derive(each, "sesame", 4_096) for each in SCRAM}


@dataclass
class Guarded:
    """A server with TLS or logins, who came in, and what it reports."""

    served: Served
    security: NodeSecurity
    files: FileWatch
    registry: Registry
    #: Counts those of its logins.
    bugs: Counter
    principals: list[str] = field(default_factory=list)

    async def open(self, tls: ssl.SSLContext | None = None, sasl: Sasl | None = None) -> NodeConnection:
        return await open_connection(Address("127.0.0.1", self.served.server.port), CLIENT, tls, sasl)

    async def call(self, connection: NodeConnection) -> str:
        """Make a call, and return whose it is."""
        await connection.request(85, 1, b"whatever")
        return self.principals[-1]


def tls_files(node: Pair, clients: Authority | None = None) -> dict[str, Any]:
    """Return the settings of a listener that shows this certificate; clients may have theirs from the authority."""
    shown = {"ssl_certificate_location": str(node.certificate), "ssl_key_location": str(node.key)}
    return shown if clients is None else shown | {"ssl_ca_location": str(clients.certificate)}


@asynccontextmanager
async def guarded(
    protocol: Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"],
    tmp_path: Path,
    limits: LimitSettings | None = None,
    bounds: WireBounds | None = None,
    plain_logins_waiting_per_address_max: int = 100,
    **given: Any,
) -> AsyncIterator[Guarded]:
    users = tmp_path / "users"
    write_kept(users, KeptUsers({"alice": KEYS}, SECRET))
    values: dict[str, Any] = {
        "connection_failed_authentication_delay_ms": 0,
        "login_timeout_ms": PATIENCE_MS,
        "sasl_enabled_mechanisms": ("PLAIN", *SCRAM),
    } | {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    settings = SecuritySettings(
        security_protocol=protocol, users_file=str(users), client_properties_file="unused", **values
    )
    registry = Registry()
    bugs = Counter()
    context = make_context(registry=registry, bugs=bugs)
    files, principals = FileWatch(context), list[str]()

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        if request.api_key == API_VERSIONS:
            respond(VERSIONS)
        else:
            principals.append(request.principal)
            respond(b"done")

    security = NodeSecurity(settings, files, context, AUDIT, plain_logins_waiting_per_address_max)
    try:
        async with serve(limits, handler=handler, security=security, bounds=bounds) as served:
            yield Guarded(served, security, files, registry, bugs, principals)
    finally:
        await security.stop()


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
