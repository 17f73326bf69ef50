"""Connections to brokers: properties carried over, TLS and SASL, and brokers that misbehave."""

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from holdfast.kafka.connection_options import ConnectionOptions, connection_options
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused, SetupRefused
from holdfast.kafka.librdkafka import check_properties
from holdfast.kafka.security import parse_security, principal_of
from holdfast.kafka.topics.metadata_client import MetadataClient
from tests.pure.kafka.brokers.metadata_brokers import METADATA, WITHOUT_METADATA, Broker, listening
from tests.waiting import PATIENCE_MS

SILENCE_MS = 5_000
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


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:70000", ":1", "::1:9092", "a b:c", "a b:9092"])
def test_servers_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(PropertyRefused, match=r"kafka\.bootstrap\.servers is .*; it must be host:port,host:port\."):
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
        ({"security.protocol": "sasl_ssl"}, "kafka.sasl.mechanism is not set; it must be PLAIN, "),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"},
            "is 'GSSAPI'; it must be PLAIN, SCRAM-SHA-256, ",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
            "oauthbearer.method is 'default'; it must",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "needs kafka.sasl.username and kafka.sasl.password",
        ),
        (
            {"ssl.keystore.location": "x.p12"},
            "kafka.ssl.keystore.location is not supported; use",
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
    for check in (connection_options, check_properties):
        with pytest.raises(PropertyRefused) as refused:
            check(BROKERS | properties)
        assert problem in str(refused.value)


def test_what_librdkafka_refuses_is_a_wrong_setting_before_any_broker_is_queried() -> None:
    check_properties(BROKERS)
    for properties in ({"foo.bar": "1"}, {"socket.timeout.ms": "soon"}):
        with pytest.raises(PropertyRefused, match=next(iter(properties))):
            check_properties(BROKERS | properties)


def test_properties_are_checked_without_a_word_to_a_token_endpoint() -> None:
    nobody = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "sesame",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    }
    for protocol in ("sasl_plaintext", "SASL_SSL"):
        check_properties(BROKERS | nobody | {"security.protocol": protocol})


async def ask(port: int, timeout_ms: int = PATIENCE_MS, /, **properties: str) -> str:
    """Ask the broker at this port for its cluster id."""
    options = options_of(bootstrap_servers=f"127.0.0.1:{port}", **properties)
    client = MetadataClient(options, timeout_ms=timeout_ms, random=Random(1))
    try:
        return (await client.query_ids([])).cluster_id
    finally:
        client.close()


async def test_a_query_without_security() -> None:
    async with listening(Broker()) as port:
        assert await ask(port) == "cluster-a"


async def test_a_client_that_moves_on_queries_another_broker_when_nothing_is_in_flight() -> None:
    first, second = Broker(), Broker(METADATA.replace(b"cluster-a", b"cluster-b"))
    async with listening(first) as port, listening(second) as other_port:
        options = options_of(bootstrap_servers=f"127.0.0.1:{port},127.0.0.1:{other_port}")
        client = MetadataClient(options, timeout_ms=5_000, random=Random(1))
        answers = []
        for _ in range(2):
            asking = asyncio.create_task(client.query_ids([]))
            await asyncio.sleep(0)
            client.move_on()
            answers += [(await asking).cluster_id, (await client.query_ids([])).cluster_id]
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
        with pytest.raises(PropertyRefused, match=r"The files that kafka\.ssl\.\* name cannot be used"):
            await ask(port, **tls, ssl_certificate_location=certificate, ssl_key_location=key, ssl_key_password="wrong")


async def test_a_login_that_fails_over_tls_leaves_its_socket_to_no_other_connection(certificates: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem", "sesame")
    tls = {"security_protocol": "sasl_ssl", "ssl_ca_location": str(certificates / "cert.pem")}
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "ali"}
    async with listening(Broker(), context) as port:
        for _ in range(5):
            with pytest.raises(SetupRefused, match="who are you"):
                await ask(port, **tls, **sasl, sasl_password="wrong")
            assert await ask(port, **tls, **sasl, sasl_password="sesame") == "cluster-a"


async def test_a_certificate_that_the_broker_does_not_accept_is_a_refusal(certificates: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "cert.pem"))
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem", "sesame")
    context.verify_mode = ssl.CERT_REQUIRED
    async with listening(Broker(), context) as port:
        with pytest.raises(SetupRefused, match=f"127.0.0.1:{port} cannot be reached"):
            await ask(port, security_protocol="ssl", ssl_ca_location=str(certificates / "cert.pem"))


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
async def test_a_broker_that_misbehaves_fails_the_query_alone(broker: Callable[[], Broker], problem: str) -> None:
    async with listening(broker()) as port:
        with pytest.raises(ConnectionFailed, match=problem):
            # A silent one has long enough to be connected to on a busy machine; the others answer, or close.
            await ask(port, SILENCE_MS)


async def test_nobody_listens() -> None:
    async with listening(Broker()) as port:
        pass
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port} cannot be reached"):
        await ask(port)


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "ssl"}, "User:ANONYMOUS"),
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "node",
                "sasl.password": "x",
                "ssl.certificate.location": "/own.pem",
            },
            "User:node",
        ),
        (
            {"security.protocol": "ssl", "ssl.certificate.location": "/own.pem"},
            "`openssl x509 -noout -subject -nameopt RFC2253 -in /own.pem`",
        ),
        (
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "file:///token",
            },
            "the claim `sub` of its token",
        ),
    ],
)
def test_who_brokers_take_a_client_for_is_known_or_is_said_how_to_find(
    properties: dict[str, str], principal: str
) -> None:
    assert principal in principal_of(parse_security(properties))
