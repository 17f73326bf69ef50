"""Connections to Kafka's brokers over the wire, for what librdkafka cannot ask.

kio makes and reads the bytes of requests; `kafka.connection` carries them.
The same `kafka.*` properties serve librdkafka and this: what cannot be said to both is refused with a clear error.
"""

import ssl
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.protocol import Entity, Payload, RequestPayload

from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection import Address, BrokerConnection, ConnectionFailed, ConnectionOptions
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.leaders import first_answer
from holdfast.kafka.librdkafka import KafkaClients

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_PORT: Final = 9092

#: Properties about security that are carried over; any other that begins alike is refused.
_MAPPED: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")

R = TypeVar("R", bound=Payload)


def connection_options(properties: Mapping[str, str]) -> ConnectionOptions:
    """Carry over librdkafka's properties.

    Raises:
        PropertyRefused: a property about security has no counterpart here, or a value is wrong.
    """
    for name in properties:
        if name.startswith(_SECURITY_PREFIXES) and name not in _MAPPED:
            raise PropertyRefused(
                f"kafka.{name} is not supported for the metadata connection; use {', '.join(sorted(_MAPPED))}."
            )
    protocol = properties.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise _wrong("security.protocol", protocol.lower(), "plaintext, ssl, sasl_plaintext or sasl_ssl")
    return ConnectionOptions(
        bootstrap=_parse_servers(properties.get("bootstrap.servers", "")),
        security_protocol=protocol,
        sasl=_sasl(properties) if protocol.startswith("SASL_") else {},
        ssl_context=_ssl_context(properties) if protocol.endswith("SSL") else None,
        client_id=properties.get("client.id", "holdfast"),
    )


def check_properties(properties: Mapping[str, str]) -> None:
    """Check librdkafka's properties by its own rules and by ours, without a word to any broker.

    Raises:
        PropertyRefused: one is unknown, or a value is wrong.
    """
    connection_options(properties)
    try:
        KafkaClients(properties).consumer("holdfast-check", {}).close()
    except KafkaException as refused:
        raise PropertyRefused(f"The Kafka client refuses a `kafka.` property: {refused.args[0].str()}.") from None


async def ask(connection: BrokerConnection, request: RequestPayload, response_type: type[R]) -> R:
    """Send one of kio's requests and wait for its answer.

    Raises:
        ConnectionFailed: no answer in time, none that can be read, or the broker does not know this version.
    """
    body = await connection.exchange(
        request.__api_key__, request.__version__, _to_bytes(request), is_flexible=request.__flexible__
    )
    try:
        response, _ = entity_reader(response_type)(body, 0)
    except (SerialError, ValueError) as error:
        raise ConnectionFailed(f"a broker sent an answer that cannot be read: {error}") from error
    return response


async def ask_any(
    addresses: Iterable[Address],
    options: ConnectionOptions,
    timeout_ms: int,
    request: RequestPayload,
    response_type: type[R],
) -> R:
    """Return the first answer of some brokers, each asked over a connection that lasts for the question; see `first_answer`.

    Raises:
        ConnectionFailed: no broker answered.
    """

    async def ask_one(address: Address) -> R:
        connection = await BrokerConnection.open(address, options, timeout_ms)
        try:
            return await ask(connection, request, response_type)
        finally:
            connection.close()

    return await first_answer(addresses, ask_one)


def _to_bytes(entity: Entity) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _wrong(name: str, value: str, right: str) -> PropertyRefused:
    return PropertyRefused(f"kafka.{name} is {value!r}; it must be {right}.")


def _parse_servers(text: str) -> tuple[Address, ...]:
    servers = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            servers.append(parse_address(part.rpartition("://")[2], _DEFAULT_PORT))
        except ValueError:
            raise _wrong("bootstrap.servers", text, "host:port,host:port") from None
    if not servers:
        raise _wrong("bootstrap.servers", text, "host:port,host:port")
    return tuple(servers)


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    right = f"{', '.join(_MECHANISMS[:-1])} or {_MECHANISMS[-1]}"
    if mechanism is None:  # which means GSSAPI to librdkafka, and must not mean another one to us
        raise PropertyRefused(f"kafka.sasl.mechanism is not set; it must be {right}.")
    if mechanism not in _MECHANISMS:
        raise _wrong("sasl.mechanism", mechanism, right)
    if "sasl.username" not in properties or "sasl.password" not in properties:
        raise PropertyRefused(f"sasl.mechanism {mechanism} needs kafka.sasl.username and kafka.sasl.password.")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties["sasl.username"],
        "sasl_plain_password": properties["sasl.password"],
    }


def _ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", "none"):
        raise _wrong("ssl.endpoint.identification.algorithm", algorithm, "https or none")
    certificate, key = properties.get("ssl.certificate.location"), properties.get("ssl.key.location")
    try:
        context = ssl.create_default_context(
            cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
        )
        if certificate:
            context.load_cert_chain(certificate, key, properties.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:
        raise PropertyRefused(f"The files that kafka.ssl.* name cannot be used: {error}.") from None
    is_verified = properties.get("enable.ssl.certificate.verification", "true") == "true"
    context.check_hostname = is_verified and algorithm == "https"
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context
