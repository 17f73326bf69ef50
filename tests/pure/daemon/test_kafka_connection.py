"""Connections to brokers: properties carried over, TLS and SASL, and brokers that misbehave."""

import asyncio
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from kio.schema.api_versions.v0 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as metadata
from kio.schema.sasl_authenticate.v0 import response as sasl_authenticate
from kio.schema.sasl_handshake.v1 import response as sasl_handshake
from kio.schema.types import BrokerId
from kio.serial import entity_writer
from kio.static.primitive import i16, i32Timedelta
from kio.static.protocol import Entity

from holdfast.daemon.config import ConfigError
from holdfast.daemon.kafka_connection import connection_options
from holdfast.daemon.metadata_client import MetadataClient
from holdfast.runtime.broker_connection import ConnectionFailed, ConnectionOptions

BROKERS = {"bootstrap.servers": "broker:9092"}


def options_of(**properties: str) -> ConnectionOptions:
    return connection_options({**BROKERS, **{name.replace("_", "."): v for name, v in properties.items()}})


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a , SSL://b:2 ,", (("a", 9092), ("b", 2))),
        ("[::1]:3,[::2]", (("::1", 3), ("::2", 9092))),
    ],
)
def test_servers_are_written_as_librdkafka_allows(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert options_of(bootstrap_servers=text).bootstrap == servers


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:70000", ":1"])
def test_servers_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is .*; it must be host:port,host:port\."):
        options_of(bootstrap_servers=text)


def test_without_security_there_is_none() -> None:
    options = options_of(client_id="me", socket_keepalive_enable="true")
    assert (options.security_protocol, options.sasl, options.ssl_context) == ("PLAINTEXT", {}, None)
    assert options.client_id == "me"


def test_sasl_is_carried_over_and_its_password_not_shown() -> None:
    options = options_of(
        security_protocol="sasl_plaintext", sasl_mechanisms="SCRAM-SHA-512", sasl_username="ali", sasl_password="sesame"
    )
    assert options.sasl == {
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ali",
        "sasl_plain_password": "sesame",
    }
    assert "sesame" not in repr(options)


def test_verification_of_the_broker_is_on_unless_switched_off() -> None:
    def context_of(**properties: str) -> ssl.SSLContext:
        context = options_of(security_protocol="SSL", **properties).ssl_context
        assert context is not None
        return context

    default = context_of()
    assert (default.verify_mode, default.check_hostname) == (ssl.CERT_REQUIRED, True)
    any_name = context_of(ssl_endpoint_identification_algorithm="none")
    assert (any_name.verify_mode, any_name.check_hostname) == (ssl.CERT_REQUIRED, False)
    anyone = context_of(enable_ssl_certificate_verification="false")
    assert (anyone.verify_mode, anyone.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "tls"}, "kafka.security.protocol is 'tls'; it must be plaintext, ssl, "),
        ({"security.protocol": "sasl_ssl"}, "kafka.sasl.mechanism is 'GSSAPI'; it must be PLAIN, "),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "it must be PLAIN, SCRAM-SHA-256 or"),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "needs kafka.sasl.username and kafka.sasl.password",
        ),
        (
            {"ssl.keystore.location": "x.p12"},
            "kafka.ssl.keystore.location is not supported for the metadata connection",
        ),
        ({"sasl.kerberos.principal": "x"}, "kafka.sasl.kerberos.principal is not supported"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "missing.pem"},
            "The files that kafka.ssl.* name cannot be used",
        ),
        ({"security.protocol": "ssl", "ssl.ca.pem": "nonsense"}, "The files that kafka.ssl.* name cannot be used"),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "x"}, "it must be https or none"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_name(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connection_options(BROKERS | properties)
    assert problem in str(refused.value)


def to_bytes(entity: Entity) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


SUPPORTED = ((17, 0, 1), (18, 0, 4), (36, 0, 0))
API_VERSIONS = api_versions.ApiVersionsResponse(
    error_code=ErrorCode.none,
    api_keys=tuple(
        api_versions.ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
        for key, low, high in (*SUPPORTED, (3, 0, 13))
    ),
)
WITHOUT_METADATA = api_versions.ApiVersionsResponse(
    error_code=ErrorCode.none,
    api_keys=tuple(
        api_versions.ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
        for key, low, high in (*SUPPORTED, (3, 0, 8))
    ),
)
NO_TIME = i32Timedelta.parse(timedelta(0))
METADATA = to_bytes(
    metadata.MetadataResponse(
        throttle_time=NO_TIME, brokers=(), cluster_id="cluster-a", controller_id=BrokerId(1), topics=()
    )
)


class Broker:
    """Answers what a connection asks while it is set up, and then every request with the same bytes."""

    def __init__(self, answer: bytes | None = METADATA, versions: Entity = API_VERSIONS) -> None:
        self.answer = answer
        self.versions = versions
        self.tokens: list[bytes] = []
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self.serving.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                body = self._answer(api_key, frame)
                if body is None:
                    continue
                tags = b"\x00" if api_key == 3 else b""
                reply = struct.pack(">i", correlation_id) + tags + body
                writer.write(struct.pack(">i", len(reply)) + reply)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()
            with suppress(OSError):  # the other side was as quick
                await writer.wait_closed()

    def _answer(self, api_key: int, frame: bytes) -> bytes | None:
        if api_key == 18:
            return to_bytes(self.versions)
        if api_key == 17:
            return to_bytes(
                sasl_handshake.SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN", "SCRAM-SHA-256"))
            )
        if api_key == 36:
            self.tokens.append(frame.rpartition(b"\x00ali\x00")[2])
            is_right = self.tokens[-1] == b"sesame"
            return to_bytes(
                sasl_authenticate.SaslAuthenticateResponse(
                    error_code=ErrorCode.none if is_right else ErrorCode.sasl_authentication_failed,
                    error_message=None if is_right else "who are you",
                    auth_bytes=b"",
                )
            )
        return self.answer


@asynccontextmanager
async def listening(broker: Broker, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        if broker.serving:
            await asyncio.wait(broker.serving, timeout=10)


async def ask(port: int, **properties: str) -> str:
    """Ask the broker at this port for its cluster id; 500 ms are enough on loopback, and silence has an end."""
    options = options_of(bootstrap_servers=f"127.0.0.1:{port}", **properties)
    client = MetadataClient(options, timeout_ms=500, random=Random(1))
    try:
        return (await client.ask_ids([])).cluster_id
    finally:
        client.close()


async def test_a_question_without_security() -> None:
    async with listening(Broker()) as port:
        assert await ask(port) == "cluster-a"


async def test_a_client_that_moves_on_asks_another_broker_when_nothing_is_under_way() -> None:
    first, second = Broker(), Broker(METADATA.replace(b"cluster-a", b"cluster-b"))
    async with listening(first) as port, listening(second) as other_port:
        options = options_of(bootstrap_servers=f"127.0.0.1:{port},127.0.0.1:{other_port}")
        client = MetadataClient(options, timeout_ms=5_000, random=Random(1))
        answers = []
        for _ in range(2):
            asking = asyncio.create_task(client.ask_ids([]))
            await asyncio.sleep(0)
            client.move_on()
            answers += [(await asking).cluster_id, (await client.ask_ids([])).cluster_id]
            client.move_on()
        client.close()
    assert sorted(zip(answers[::2], answers[1::2], strict=True)) == [("cluster-a",) * 2, ("cluster-b",) * 2]


async def test_sasl_plain_is_spoken() -> None:
    broker = Broker()
    sasl = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_username": "ali"}
    async with listening(broker) as port:
        assert await ask(port, **sasl, sasl_password="sesame") == "cluster-a"
        with pytest.raises(ConnectionFailed, match="who are you"):
            await ask(port, **sasl, sasl_password="wrong")
    assert broker.tokens == [b"sesame", b"wrong"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for 127.0.0.1 that vouches for itself, and its encrypted key."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=broker"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-passout", "pass:sesame"),
            *("-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return directory


async def test_tls_is_spoken_with_a_certificate_of_our_own(certificates: Path) -> None:
    certificate, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    context.load_cert_chain(certificate, key, "sesame")
    context.verify_mode = ssl.CERT_REQUIRED
    tls = {"security_protocol": "ssl", "ssl_ca_location": certificate}
    async with listening(Broker(), context) as port:
        found = await ask(
            port, **tls, ssl_certificate_location=certificate, ssl_key_location=key, ssl_key_password="sesame"
        )
        assert found == "cluster-a"
        with pytest.raises(ConnectionFailed, match=r"cannot be reached: .*certificate verify failed"):
            await ask(
                port,
                security_protocol="ssl",
                ssl_certificate_location=certificate,
                ssl_key_location=key,
                ssl_key_password="sesame",
            )
        with pytest.raises(ConfigError, match=r"The files that kafka\.ssl\.\* name cannot be used"):
            await ask(port, **tls, ssl_certificate_location=certificate, ssl_key_location=key, ssl_key_password="wrong")


@pytest.mark.parametrize(
    ("broker", "problem"),
    [
        (lambda: Broker(versions=WITHOUT_METADATA), "does not speak version 12 of API 3"),
        (lambda: Broker(answer=b""), "sent an answer that cannot be read"),
        (lambda: Broker(answer=METADATA[:9]), "sent an answer that cannot be read"),
        (lambda: Broker(answer=b"\xff" * 40), "sent an answer that cannot be read"),
        (lambda: Broker(answer=None), "did not answer"),
    ],
    ids=["too old", "empty", "cut", "nonsense", "silent"],
)
async def test_a_broker_that_misbehaves_fails_the_question_alone(broker: Callable[[], Broker], problem: str) -> None:
    async with listening(broker()) as port:
        with pytest.raises(ConnectionFailed, match=problem):
            await ask(port)


async def test_nobody_listens() -> None:
    async with listening(Broker()) as port:
        pass
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port} cannot be reached"):
        await ask(port)
