"""A login to Kafka leaves no secret in any line, at any level, whatever library writes it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import pack, unpack

import pytest

from holdfast.daemon.settings.logging import LAST_LINES, configure_logging, set_level
from holdfast.daemon.settings.models import LoggingSettings
from holdfast.kafka.aiokafka_parts import Opened, open_transport
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.oauth.sources import Bearer, TokenFile
from holdfast.kafka.oauth.tokens import TokenKeeper

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
#: A part that stands in all secrets here, as it is.
PLANTED = "Secret-99"
PASSWORDS = (f"plain-{PLANTED}", f"p\xe4ss-{PLANTED}", f"both'\"-{PLANTED}", f"tab\t-{PLANTED}", f"back\\-{PLANTED}")


@asynccontextmanager
async def broker_that_says(refusal: bytes = b"") -> AsyncIterator[int]:
    """Give the port of a broker that takes every login, or answers each with a text."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readexactly(unpack(">i", await reader.readexactly(4))[0])
                writer.write(answer(request, refusal))
        except (asyncio.IncompleteReadError, ConnectionError):  # the client is gone
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    serving: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(lambda *pair: serving.append(asyncio.create_task(serve(*pair))), "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*serving)


def answer(request: bytes, refusal: bytes) -> bytes:
    api_key, _, correlation_id = unpack(">hhi", request[:8])
    if api_key == API_VERSIONS:
        speaks = ((API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 0))
        body = pack(">hi", 0, len(speaks)) + b"".join(pack(">hhh", *each) for each in speaks)
    elif api_key == SASL_HANDSHAKE:
        mechanism = b"PLAIN" if b"PLAIN" in request else b"OAUTHBEARER"
        body = pack(">hih", 0, 1, len(mechanism)) + mechanism
    else:
        body = pack(">hhi", 0, -1, len(refusal)) + refusal
    return pack(">ii", 4 + len(body), correlation_id) + body


async def log_in(port: int, password: str = "", tokens: TokenKeeper | None = None) -> Opened:
    by_password = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": password}
    address = ("127.0.0.1", port)
    options = ConnectionOptions(
        bootstrap=(address,),
        security_protocol="SASL_PLAINTEXT",
        sasl=by_password if tokens is None else {},
        tokens=tokens,
    )
    return await open_transport(address, options, 10_000)


def configured(secrets: tuple[str, ...] = ()) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LoggingSettings(log_format="json"), stream, secrets=secrets)
    set_level("debug")  # as the config topic can have it
    return stream


def keeper(path: Path) -> TokenKeeper:
    head, payload = (
        urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=")
        for each in ({"alg": "none"}, {"sub": "me", "exp": 4_000_000_000})
    )
    path.write_text(f"{head}.{payload}.{PLANTED}")
    return TokenKeeper(Bearer(source=TokenFile(path=path), extensions={}))


@pytest.mark.parametrize("password", PASSWORDS)
async def test_a_login_by_password_leaves_no_line_with_it(password: str) -> None:
    stream = configured((password,))
    async with broker_that_says() as port:
        (await log_in(port, password)).close()
    logging.getLogger("aiokafka.conn").warning("sent %r", {"auth": f"\0me\0{password}".encode()})
    assert PLANTED not in stream.getvalue()
    assert [json.loads(line)["event"].partition(" ")[0] for line in stream.getvalue().splitlines()] == [
        "Sending",
        "sent",
    ]
    assert not any(PLANTED in line for line in LAST_LINES.lines())


async def test_a_login_by_token_leaves_no_line_with_it(tmp_path: Path) -> None:
    stream = configured()
    async with broker_that_says() as port:
        (await log_in(port, tokens=keeper(tmp_path / "token"))).close()
    assert stream.getvalue() == ""


async def test_a_broker_that_repeats_the_token_it_refuses_is_cited_without_it(tmp_path: Path) -> None:
    tokens = keeper(tmp_path / "token")
    token = (tmp_path / "token").read_text()
    async with broker_that_says(b'{"status":"invalid","given":"' + token.encode() + b'"}') as port:
        with pytest.raises(ConnectionFailed, match="the broker refuses the token") as failed:
            await log_in(port, tokens=tokens)
    assert PLANTED not in str(failed.value)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_no_library_writes_below_warning_even_if_it_sets_its_level_itself(level: str) -> None:
    stream = configured()
    set_level(level)
    library = logging.getLogger("a.library")
    library.setLevel(logging.DEBUG)
    try:
        library.debug("sent %r", PLANTED)
        library.info("sent %r", PLANTED)
        logging.getLogger("holdfastish").debug("sent %r", PLANTED)
        logging.getLogger("holdfast.kafka").error("ours")
        library.warning("wrong")
    finally:
        library.setLevel(logging.NOTSET)
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["ours", "wrong"]
