"""Tokens: read, fetched, kept, renewed, and refused with the reason."""

from __future__ import annotations

import json
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.kafka.errors import ConnectionFailed, PropertyRefused, SetupRefused
from holdfast.kafka.librdkafka import _with_tokens
from holdfast.kafka.oauth.sources import Bearer, TokenEndpoint, TokenFile, parse_bearer
from holdfast.kafka.oauth.tokens import TokenKeeper
from tests.waiting import PATIENCE_S, block_until

NOW_S = 1_000_000.0


def token_until(expires_s: object) -> str:
    payload = urlsafe_b64encode(json.dumps({"sub": "me", "exp": expires_s}).encode()).decode().rstrip("=")
    return f"head.{payload}.signature"


class Clock:
    """A clock that a test sets."""

    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


class Endpoint:
    """A token endpoint that gives what it is told to, once each."""

    def __init__(self) -> None:
        #: While it is not set, requests wait for their answers.
        self.is_answering = threading.Event()
        self.is_answering.set()
        self.answers: list[tuple[int, bytes]] = []
        #: Path, login and form of each request.
        self.requests: list[tuple[str, str | None, bytes]] = []

    def gives(self, token: str) -> None:
        self.answers.append((200, json.dumps({"access_token": token}).encode()))


@contextmanager
def served(endpoint: Endpoint) -> Iterator[TokenEndpoint]:
    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.requests.append((self.path, self.headers["Authorization"], form))
            assert endpoint.is_answering.wait(PATIENCE_S)
            status, body = endpoint.answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield TokenEndpoint(
                url=f"http://127.0.0.1:{server.server_port}/token?tenant=1",
                client_id="me",
                client_secret="se:same",
                scope="kafka read",
                authority_file=None,
                authority_pem=None,
            )
        finally:
            server.shutdown()
            thread.join()


class CountedLock:
    """A lock that counts who waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting = 0

    def acquire(self, blocking: bool = True) -> bool:
        self.waiting += blocking
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


def keeper_of(source: TokenEndpoint | TokenFile, clock: Clock) -> TokenKeeper:
    return TokenKeeper(Bearer(source=source, extensions={}), clock)


def test_a_token_is_kept_until_most_of_its_time_is_over_and_then_renewed() -> None:
    endpoint, clock = Endpoint(), Clock()
    with served(endpoint) as source:
        keeper = keeper_of(source, clock)
        first, second = token_until(NOW_S + 100), token_until(NOW_S + 200)
        endpoint.gives(first)
        assert keeper.token(5) == (first, NOW_S + 100)
        clock.now_s = NOW_S + 79
        assert keeper.token(5).text == first
        clock.now_s = NOW_S + 80
        endpoint.gives(second)
        assert keeper.token(5).text == second
    assert (
        endpoint.requests
        == [("/token?tenant=1", "Basic bWU6c2U6c2FtZQ==", b"grant_type=client_credentials&scope=kafka+read")] * 2
    )


@pytest.mark.parametrize("kind", ["refuses", "says nothing"])
def test_an_endpoint_of_several_addresses_is_requested_at_the_next_one(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    endpoint, clock = Endpoint(), Clock()
    with served(endpoint) as source, socket.socket() as silent:
        port = urlsplit(source.url).port
        if kind == "says nothing":
            silent.bind(("127.0.0.2", port))
            silent.listen()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port)) for place in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        endpoint.gives(token_until(NOW_S + 100))
        assert keeper_of(source, clock).token(1).expires_s == NOW_S + 100
    assert len(endpoint.requests) == 1


def test_while_the_next_token_is_fetched_the_one_before_serves() -> None:
    endpoint, clock = Endpoint(), Clock()
    with served(endpoint) as source, ThreadPoolExecutor() as threads:
        keeper = keeper_of(source, clock)
        first, second = token_until(NOW_S + 100), token_until(NOW_S + 200)
        endpoint.gives(first)
        keeper.token(PATIENCE_S)
        clock.now_s = NOW_S + 90
        endpoint.is_answering.clear()
        endpoint.gives(second)
        fetching = threads.submit(keeper.token, PATIENCE_S)
        block_until(lambda: len(endpoint.requests) == 2)
        assert keeper.token(PATIENCE_S).text == first
        assert not fetching.done()
        endpoint.is_answering.set()
        assert fetching.result().text == second


def test_callers_that_wait_for_a_fetch_share_its_failure() -> None:
    endpoint, clock = Endpoint(), Clock()
    with served(endpoint) as source, ThreadPoolExecutor(8) as threads:
        keeper = keeper_of(source, clock)
        keeper._lock = lock = CountedLock()  # type: ignore[assignment]  # it has what is used of one
        endpoint.is_answering.clear()
        endpoint.answers = [(500, b"{}")]
        waiting = [threads.submit(keeper.token, PATIENCE_S) for _ in range(5)]
        block_until(lambda: endpoint.requests and lock.waiting == 4)
        endpoint.is_answering.set()
        failures = [each.exception() for each in waiting]
    assert [type(failure) for failure in failures] == [ConnectionFailed] * 5
    assert len(endpoint.requests) == 1


def test_while_the_endpoint_is_away_the_token_holds_to_its_end_and_no_longer() -> None:
    endpoint, clock = Endpoint(), Clock()
    with served(endpoint) as source:
        keeper = keeper_of(source, clock)
        endpoint.gives(token_until(NOW_S + 100))
        first = keeper.token(5)
    clock.now_s = NOW_S + 99
    assert keeper.token(5) == first
    clock.now_s = NOW_S + 100
    with pytest.raises(ConnectionFailed, match=r"^http://127\.0\.0\.1:\d+/token\?tenant=1 gave no token: .*refused"):
        keeper.token(5)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((401, b'{"error": "invalid_client"}'), "gave no token: HTTP status 401, invalid_client"),
        ((400, b'{"error": "x", "error_description": "the client is unknown"}'), "status 400, the client is unknown"),
        ((500, b"<html>"), "gave no token: HTTP status 500"),
        ((200, b"[]"), "gave no token: HTTP status 200"),
        ((200, b'{"access_token": 7}'), "gave no token: HTTP status 200"),
        ((200, b'{"access_token": "opaque"}'), "is no JSON Web Token that says when it expires"),
        ((200, json.dumps({"access_token": token_until(NOW_S)}).encode()), "expired at 1970-01-12T13:46:40"),
    ],
)
def test_an_endpoint_that_gives_none_is_named_with_its_reason(answer: tuple[int, bytes], problem: str) -> None:
    endpoint = Endpoint()
    endpoint.answers.append(answer)
    with served(endpoint) as source, pytest.raises(ConnectionFailed, match=problem) as failed:
        keeper_of(source, Clock()).token(5)
    assert "se:same" not in str(failed.value)


@pytest.mark.parametrize(
    ("status", "is_refused"), [(400, True), (403, True), (404, True), (408, False), (429, False), (503, False)]
)
def test_an_endpoint_that_may_give_one_later_refuses_nothing(status: int, is_refused: bool) -> None:
    endpoint = Endpoint()
    endpoint.answers.append((status, b"{}"))
    with served(endpoint) as source, pytest.raises(ConnectionFailed) as failed:
        keeper_of(source, Clock()).token(5)
    assert isinstance(failed.value, SetupRefused) is is_refused


def test_a_file_is_read_whenever_a_token_is_wanted(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    keeper = keeper_of(TokenFile(path=file), clock)
    with pytest.raises(SetupRefused, match=f"the token of {file} cannot be read: .*No such file"):
        keeper.token(0)
    for end in (NOW_S + 10, NOW_S + 20):
        file.write_text(f"{token_until(end)}\n")
        assert keeper.token(0) == (token_until(end), end)
    clock.now_s = NOW_S + 20
    with pytest.raises(SetupRefused, match=f"the token of {file} expired at"):
        keeper.token(0)
    for text in ("", "a.b.c", "a.b", "x" * 100_000, token_until("soon"), "ü"):
        file.write_text(text)
        with pytest.raises(SetupRefused, match=f"the token of {file} (is no JSON Web Token|cannot be read)"):
            keeper.token(0)


OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "sesame",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}


def test_what_the_properties_say_of_tokens() -> None:
    bearer = parse_bearer(OIDC | {"sasl.oauthbearer.extensions": "cluster=a,pool=b", "https.ca.location": "ca.pem"})
    assert bearer == Bearer(
        source=TokenEndpoint(
            url="https://id.example/token",
            client_id="me",
            client_secret="sesame",
            scope="",
            authority_file="ca.pem",
            authority_pem=None,
        ),
        extensions={"cluster": "a", "pool": "b"},
    )
    assert "sesame" not in repr(bearer)
    named = parse_bearer(OIDC | {"sasl.oauthbearer.token.endpoint.url": "file:///var/a%20token"})
    assert named.source == TokenFile(path=Path("/var/a token"))


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"sasl.oauthbearer.method": "default"}, r"kafka\.sasl\.oauthbearer\.method is 'default'; it must be oidc"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"},
            r"url is 'ftp://x/y'; it must be https://…, or file:///…",
        ),
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "it must be https://…"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://[::1"}, "it must be https://…"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://x:port/"}, "it must be https://…"),
        ({"sasl.oauthbearer.extensions": "a"}, r"extensions is 'a'; it must be name=value,name=value"),
        ({"sasl.oauthbearer.extensions": "a\x01b=c"}, "it must be name=value"),
    ],
)
def test_what_makes_no_sense_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(PropertyRefused, match=problem):
        parse_bearer(OIDC | properties)


def test_a_client_without_a_secret_is_refused() -> None:
    wanting = {name: value for name, value in OIDC.items() if not name.endswith("secret")}
    with pytest.raises(PropertyRefused, match=r"needs kafka\.sasl\.oauthbearer\.client\.secret\.$"):
        parse_bearer(wanting)


def test_librdkafka_fetches_tokens_itself_and_is_given_those_of_files(tmp_path: Path) -> None:
    assert _with_tokens(OIDC) == OIDC
    file = tmp_path / "token"
    end = 32_503_680_000
    file.write_text(token_until(end))
    of_file = {"sasl.oauthbearer.token.endpoint.url": file.as_uri(), "sasl.oauthbearer.extensions": "pool=b"}
    made = _with_tokens(OIDC | of_file)
    assert made.pop("oauth_cb")("") == (token_until(end), end, "", {"pool": "b"})
    assert made == {"sasl.mechanism": "OAUTHBEARER"}
