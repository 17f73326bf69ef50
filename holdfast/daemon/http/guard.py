"""Who may read over HTTP: a token compared in constant time, and the TLS of the port."""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Mapping
from typing import Final, Protocol

from holdfast.daemon.settings.components.http import HttpSettings

#: Characters of the file that are read.
_TOKEN_MAX: Final = 4_096


class GuardRefused(Exception):
    """A file that guards the HTTP port cannot be used; the text names the setting."""


class HttpGuard(Protocol):
    """What decides whether a request is answered in full."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request with these headers is, whose names are in lower case."""


class OpenGuard:
    """A guard that admits everybody who reaches the port."""

    def admits(self, headers: Mapping[str, str]) -> bool:
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

    def _refresh(self) -> None:
        found = os.stat(self._path)
        read_of = (found.st_mtime_ns, found.st_size, found.st_ino)
        if read_of != self._read_of:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                self._token = file.readline(_TOKEN_MAX).strip().encode()
            self._read_of = read_of


def make_guard(settings: HttpSettings) -> HttpGuard:
    """Return what the settings ask of a request.

    Raises:
        GuardRefused: the file of the token cannot be used.
    """
    return TokenGuard(settings.token_file) if settings.token_file else OpenGuard()


def make_ssl_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return the TLS of the port; None: it has none.

    Raises:
        GuardRefused: a file cannot be used.
    """
    if not settings.tls_certificate_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise GuardRefused(
            f"http.tls.certificate.file {settings.tls_certificate_file} cannot be used, with its key ({error})."
        ) from error
    if settings.tls_client_ca_file:
        try:
            context.load_verify_locations(settings.tls_client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise GuardRefused(
                f"http.tls.client.ca.file {settings.tls_client_ca_file} cannot be used ({error})."
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
