"""Who gives out the tokens of a test: signed with a key that the broker knows, and fetched over HTTP from an endpoint on loopback."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs

from tests.real.secured.certificates import Signed

_SECRET: Final = b"the token endpoint and the broker know this, and nobody else does"
AUDIENCE: Final = "kafka"


def key_set() -> str:
    """Return what a broker checks signatures with, as a JSON Web Key Set."""
    return json.dumps({"keys": [{"kty": "oct", "kid": "tests", "alg": "HS256", "k": _base64(_SECRET)}]})


def sign_token(subject: str, life_s: float, **claims: object) -> str:
    """Return a token that names a principal for so long; it is over already where that is below 0."""
    now_s = int(time.time())
    head = {"alg": "HS256", "typ": "JWT", "kid": "tests"}
    body = {"sub": subject, "aud": AUDIENCE, "iat": now_s - 3_600, "exp": now_s + int(life_s), **claims}
    signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
    return f"{signed}.{_base64(hmac.digest(_SECRET, signed.encode(), hashlib.sha256))}"


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenEndpoint:
    """An OpenID provider's token endpoint, over TLS, for clients that show their id and their secret."""

    def __init__(self, identity: Signed, secrets: dict[str, str]) -> None:
        """Listen on loopback.

        Args:
            identity: its certificate.
            secrets: of each client, by its id, which is also the principal.
        """
        #: How long a token lasts.
        self.life_s = 600.0
        #: The clients that were given a token, one after the other.
        self.given: list[str] = []
        #: The scopes that were wanted.
        self.scopes: list[str] = []
        self._secrets = secrets
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, answer = endpoint._answer(self.headers.get("Authorization", ""), form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*identity)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def _answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        client, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if form.get("grant_type") != ["client_credentials"] or self._secrets.get(client) != secret:
            return 401, {"error": "invalid_client", "error_description": "the client id or its secret is wrong"}
        self.given.append(client)
        self.scopes += form.get("scope", [])
        token = sign_token(client, self.life_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": int(self.life_s)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def write_key_set(directory: Path) -> Path:
    """Write the key set into a file, and return that."""
    written = directory / "keys.json"
    written.write_text(key_set())
    return written
