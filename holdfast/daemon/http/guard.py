"""Who may read over HTTP: a token compared in constant time, names by which the port is called, and the files of its TLS."""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.daemon.login.tls import NamedFile, TlsFiles
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.hidden_texts import HIDDEN_TEXTS
from holdfast.http_refusals import refusal
from holdfast.kafka.addresses import parse_address

#: Characters of the file that are read.
_TOKEN_MAX: Final = 4_096


class GuardRefused(Exception):
    """A file that guards the HTTP port cannot be used; the text names the setting."""


class HttpGuard(Protocol):
    """What decides what a request is shown."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request with these headers, whose names are in lower case, is answered in full."""

    def admits_scrape(self, headers: Mapping[str, str]) -> bool:
        """Return whether it is shown the metrics."""


class OpenGuard:
    """A guard that admits everybody who reaches the port."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Admit it."""
        return True

    def admits_scrape(self, headers: Mapping[str, str]) -> bool:
        """Admit it."""
        return True


class ScrapeGuard:
    """Shows whoever reaches the port the metrics, and nobody more: the listener asks who its clients are, and here nobody can say."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Do not admit it."""
        return False

    def admits_scrape(self, headers: Mapping[str, str]) -> bool:
        """Admit it."""
        return True


class TokenGuard:
    """A guard that admits who knows the token in a file, which may change."""

    def __init__(self, path: str) -> None:
        """Read the file.

        Raises:
            GuardRefused: it cannot be read, or holds no token.
        """
        self._path = path
        self._read_of: tuple[int, int, int] | None = None
        self._token = b""
        try:
            self._refresh()
        except OSError as error:
            raise GuardRefused(f"http.token.file {path} cannot be read ({error.strerror or error}).") from error
        if not self._token:
            raise GuardRefused(f"http.token.file {path} has no token in its first line.")

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether `Authorization` has the token; a file that is gone or empty admits nobody."""
        try:
            self._refresh()
        except OSError:
            self._token, self._read_of = b"", None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_equal = hmac.compare_digest(given.strip().encode(), self._token)
        return is_equal and scheme.lower() == "bearer" and bool(self._token)

    def admits_scrape(self, headers: Mapping[str, str]) -> bool:
        """Return whether `Authorization` has the token."""
        return self.admits(headers)

    def _refresh(self) -> None:
        found = os.stat(self._path)
        read_of = (found.st_mtime_ns, found.st_size, found.st_ino)
        if read_of != self._read_of:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                token = file.readline(_TOKEN_MAX).strip()
            HIDDEN_TEXTS.add_token(token)
            self._token = token.encode()
            self._read_of = read_of


def make_guard(settings: HttpSettings, *, is_listener_open: bool) -> HttpGuard:
    """Return what the settings ask of a request.

    Args:
        settings: of the HTTP port.
        is_listener_open: whether everybody who reaches the listener of the node may do everything there.

    Raises:
        GuardRefused: the file of the token cannot be used.
    """
    if settings.token_file:
        return TokenGuard(settings.token_file)
    # A certificate of a client is asked for by TLS, before any request.
    return OpenGuard() if is_listener_open or settings.tls_client_ca_file else ScrapeGuard()


def tls_files(settings: HttpSettings) -> TlsFiles | None:
    """Return what the settings name for the TLS of the port; None: it has none."""
    if not settings.tls_certificate_file:
        return None
    return TlsFiles(
        certificate=NamedFile("http.tls.certificate.file", settings.tls_certificate_file),
        key=NamedFile("http.tls.key.file", settings.tls_key_file),
        key_password="",
        authority=NamedFile("http.tls.client.ca.file", settings.tls_client_ca_file),
        client_auth=ssl.CERT_REQUIRED if settings.tls_client_ca_file else ssl.CERT_NONE,
    )


class HostCheck:
    """Admits requests that call this node by a name of its own.

    A page that a browser of this machine shows may have a name that leads to a loopback address (DNS rebinding), and would be let
    read what is answered; but its requests carry that name. A request by an address cannot come of it.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        host = dict(scope["headers"]).get(b"host")
        if host is None or self._is_own(host.decode("latin-1")):
            await self._app(scope, receive, send)
            return
        text = "The node is not called by this name; http.allowed.hosts has those by which it is."
        await refusal(scope, 421, text)(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        try:
            name = parse_address(host, default_port=0)[0].lower()
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True


def own_names(host: str, allowed_hosts: Iterable[str]) -> Collection[str]:
    """Return the names by which requests may call the port: that of the host that it is bound to is one."""
    return ("localhost", host, *allowed_hosts)
