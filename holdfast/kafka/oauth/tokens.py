"""Tokens as they are shown to brokers: fetched or read, looked at for their end, and kept until most of their time is over.

Everything here blocks; several threads may share a keeper.
A token is hidden from all lines before anything is done with it: an endpoint or a broker may repeat it in the text of a refusal.
"""

import json
import socket
import ssl
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from holdfast.hidden_texts import HIDDEN_TEXTS
from holdfast.kafka.errors import ConnectionFailed, LoginDenied, SetupRefused
from holdfast.kafka.oauth.sources import Bearer, TokenEndpoint, TokenFile

#: The share of a token's time after which the next one is fetched; what is left is for the endpoint to be away.
_RENEWED_AT: Final = 0.8
#: Of an answer of the endpoint, and of a file.
_BYTES_MAX: Final = 65_536
#: Statuses below 500 after which the same request may succeed: a time-out, and too many requests.
_AGAIN_LATER: Final = frozenset({408, 425, 429})


class Token(NamedTuple):
    """A token that has not expired."""

    #: Not to be shown to anybody but brokers.
    text: str
    #: Unix time, in seconds.
    expires_s: float


class TokenKeeper:
    """The keeper of the token that holds now."""

    def __init__(self, bearer: Bearer, clock_s: Callable[[], float] = time.time) -> None:
        """Fetch nothing yet; `clock_s` returns the Unix time."""
        self.extensions: Mapping[str, str] = bearer.extensions
        self._source = bearer.source
        self._clock_s = clock_s
        #: Held while one is fetched.
        self._lock = threading.Lock()
        #: How many fetches have failed, and why the last one did.
        self._failures = 0
        self._failure = ConnectionFailed()
        self._kept: Token | None = None
        #: When the next one is wanted.
        self._renew_s = 0.0

    def token(self, timeout_s: float) -> Token:
        """Return a token that has not expired; blocks while the first one is fetched, `timeout_s` at most in each of its steps.

        While another thread fetches the next one, the one before serves as long as it holds.
        Callers that wait for a fetch share its failure.

        Raises:
            ConnectionFailed: there is none.
        """
        if isinstance(self._source, TokenFile):
            return self._checked(_read(self._source.path), str(self._source.path))
        failures = self._failures
        if not self._lock.acquire(blocking=False):
            kept = self._kept
            if kept is not None and self._clock_s() < kept.expires_s:
                return kept
            self._lock.acquire()
        try:
            if self._kept is not None and self._clock_s() < self._renew_s:
                return self._kept
            if self._failures != failures:
                raise type(self._failure)(str(self._failure))
            return self._renew(self._source, timeout_s)
        finally:
            self._lock.release()

    def _renew(self, endpoint: TokenEndpoint, timeout_s: float) -> Token:
        try:
            token = self._checked(_fetch(endpoint, timeout_s), endpoint.url)
        except ConnectionFailed as failure:
            if self._kept is None or self._clock_s() >= self._kept.expires_s:
                self._failures += 1
                self._failure = failure
                raise
            return self._kept  # it holds for a while yet, and the next connection tries again
        now_s = self._clock_s()
        self._kept, self._renew_s = token, now_s + _RENEWED_AT * (token.expires_s - now_s)
        return token

    def _checked(self, text: str, place: str) -> Token:
        HIDDEN_TEXTS.add_token(text)
        expires_s = _read_end(text, place)
        if expires_s <= self._clock_s():
            ended = datetime.fromtimestamp(expires_s, UTC).isoformat(timespec="seconds")
            raise SetupRefused(f"the token of {place} expired at {ended}")
        return Token(text, expires_s)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(_BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        raise SetupRefused(f"the token of {path} cannot be read: {error}") from None


def _read_end(text: str, place: str) -> float:
    """Return when a token expires, as all of Kafka's clients read it: by the claim `exp` of a JSON Web Token."""
    try:
        _, payload, _ = text.split(".")
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError):
        raise SetupRefused(f"the token of {place} is no JSON Web Token that says when it expires") from None


def _fetch(endpoint: TokenEndpoint, timeout_s: float) -> str:
    try:
        status, body = _post(endpoint, timeout_s)
    except (OSError, ValueError, HTTPException) as error:
        failure = SetupRefused if isinstance(error, ssl.SSLCertVerificationError) else ConnectionFailed
        raise failure(f"{endpoint.url} gave no token: {str(error) or type(error).__name__}") from None
    try:
        answer = json.loads(body)
        token = answer["access_token"] if status == 200 else None
    except (ValueError, TypeError, KeyError):
        answer, token = {}, None
    if not isinstance(token, str):
        why = answer.get("error_description") or answer.get("error") if isinstance(answer, dict) else None
        shown = f", {HIDDEN_TEXTS.hide(str(why))}" if why else ""
        # Such a status says that what was sent is wrong; any other may be over the next time.
        failure = LoginDenied if 400 <= status < 500 and status not in _AGAIN_LATER else ConnectionFailed
        raise failure(f"{endpoint.url} gave no token: HTTP status {status}{shown}")
    return token


def _post(endpoint: TokenEndpoint, timeout_s: float) -> tuple[int, bytes]:
    """Request a token at one address of the host after the other, each of which has its part of the time."""
    parts = urlsplit(endpoint.url)
    port = parts.port or (HTTPS_PORT if parts.scheme == "https" else HTTP_PORT)
    places = socket.getaddrinfo(parts.hostname or "", port, type=socket.SOCK_STREAM)
    ends_s = time.monotonic() + timeout_s
    for number, (family, _, _, _, address) in enumerate(places, 1):
        part_s = max(0.001, ends_s - time.monotonic()) / (len(places) - number + 1)
        try:
            return _post_at(endpoint, family, address, part_s)
        except OSError:
            if number == len(places):
                raise
    raise OSError("the host has no address")


def _post_at(endpoint: TokenEndpoint, family: int, address: Any, timeout_s: float) -> tuple[int, bytes]:  # noqa: ANN401
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    with ExitStack() as opened:
        connected = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
        connected.settimeout(timeout_s)
        connected.connect(address)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=endpoint.authority_file, cadata=endpoint.authority_pem)
            connected = opened.enter_context(context.wrap_socket(connected, server_hostname=host))
        connection = HTTPConnection(host, parts.port, timeout=timeout_s)
        connection.sock = connected
        form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
        # Not encoded as in a form, against RFC 6749, 2.3.1, because librdkafka and Kafka's Java client send them as they are.
        login = f"{endpoint.client_id}:{endpoint.client_secret}"
        headers = {
            "Authorization": f"Basic {b64encode(login.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", path, urlencode(form), headers)
        response = connection.getresponse()
        return response.status, response.read(_BYTES_MAX)
