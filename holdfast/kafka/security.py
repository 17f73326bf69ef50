"""How the brokers are reached, as librdkafka's properties say it, for the other clients that reach them.

The same `kafka.*` properties serve librdkafka, which takes them as they are, our own connections (`connection_options`) and Kafka's Java
client (`java_properties`). So they are read once, and what cannot be said to all of them is refused with a clear error.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException

from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection import Address, ConnectionOptions
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.oauth.sources import MECHANISM, Bearer, parse_bearer
from holdfast.kafka.oauth.tokens import TokenKeeper

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", MECHANISM)
_DEFAULT_PORT: Final = 9092

#: Properties about security that are carried over; any other that begins alike is refused.
_MAPPED: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "https.ca.location",
        "https.ca.pem",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """Who we are, by a password."""

    #: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Whom we trust and how we show who we are; files are named, not read."""

    #: An authority's certificates; with neither, those of this machine.
    authority_file: str | None
    authority_pem: str | None
    #: Our own certificate; None: we have none.
    certificate_file: str | None
    #: None: it is in the certificate's file.
    key_file: str | None
    key_password: str = field(repr=False)
    #: Whether a broker's certificate must be signed by the authority.
    is_verified: bool
    #: Whether it must name the broker's host.
    is_host_verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What librdkafka's properties say about security."""

    #: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    protocol: str
    #: None without SASL.
    sasl: Sasl | Bearer | None
    #: None without TLS.
    tls: Tls | None


def parse_security(properties: Mapping[str, str]) -> Security:
    """Return what the properties say about security.

    Raises:
        PropertyRefused: one has no counterpart in the other clients, or a value is wrong.
    """
    for name in properties:
        if name.startswith(_SECURITY_PREFIXES) and name not in _MAPPED:
            raise PropertyRefused(
                f"kafka.{name} is not supported for the metadata connection; use {', '.join(sorted(_MAPPED))}."
            )
    protocol = properties.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise _wrong("security.protocol", protocol.lower(), "plaintext, ssl, sasl_plaintext or sasl_ssl")
    return Security(
        protocol=protocol,
        sasl=_parse_sasl(properties) if protocol.startswith("SASL_") else None,
        tls=_parse_tls(properties) if protocol.endswith("SSL") else None,
    )


def connection_options(properties: Mapping[str, str]) -> ConnectionOptions:
    """Return how our own connections reach the brokers.

    Raises:
        PropertyRefused: a property about security has no counterpart here, a value is wrong, or a file cannot be read.
    """
    security = parse_security(properties)
    sasl = security.sasl
    return ConnectionOptions(
        bootstrap=_parse_servers(properties.get("bootstrap.servers", "")),
        security_protocol=security.protocol,
        sasl={
            "sasl_mechanism": sasl.mechanism,
            "sasl_plain_username": sasl.username,
            "sasl_plain_password": sasl.password,
        }
        if isinstance(sasl, Sasl)
        else {},
        tokens=TokenKeeper(sasl) if isinstance(sasl, Bearer) else None,
        ssl_context=None if security.tls is None else _make_ssl_context(security.tls),
        client_id=properties.get("client.id", "holdfast"),
    )


def check_properties(properties: Mapping[str, str]) -> None:
    """Check librdkafka's properties by its own rules and by ours, without a word to any broker.

    Raises:
        PropertyRefused: one is unknown, or a value is wrong.
    """
    connection_options(properties)
    try:
        KafkaClients(_without_tokens(properties)).consumer("holdfast-check", {}).close()
    except KafkaException as refused:
        raise PropertyRefused(f"The Kafka client refuses a `kafka.` property: {refused.args[0].str()}.") from None


def _without_tokens(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Leave out a login by tokens, which we have parsed ourselves: librdkafka would fetch one as soon as a client is made."""
    protocol, _, tls = properties.get("security.protocol", "").upper().rpartition("_")
    if protocol != "SASL" or _mechanism(properties) != MECHANISM:
        return properties
    others = {name: value for name, value in properties.items() if not name.startswith(("sasl.", "https."))}
    return others | {"security.protocol": tls}


def _mechanism(properties: Mapping[str, str]) -> str | None:
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")


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


def _parse_sasl(properties: Mapping[str, str]) -> Sasl | Bearer:
    mechanism = _mechanism(properties)
    right = f"{', '.join(_MECHANISMS[:-1])} or {_MECHANISMS[-1]}"
    if mechanism is None:  # which means GSSAPI to librdkafka, and must not mean another one to us
        raise PropertyRefused(f"kafka.sasl.mechanism is not set; it must be {right}.")
    if mechanism not in _MECHANISMS:
        raise _wrong("sasl.mechanism", mechanism, right)
    if mechanism == MECHANISM:
        return parse_bearer(properties)
    if "sasl.username" not in properties or "sasl.password" not in properties:
        raise PropertyRefused(f"sasl.mechanism {mechanism} needs kafka.sasl.username and kafka.sasl.password.")
    return Sasl(mechanism=mechanism, username=properties["sasl.username"], password=properties["sasl.password"])


def _parse_tls(properties: Mapping[str, str]) -> Tls:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", "none"):
        raise _wrong("ssl.endpoint.identification.algorithm", algorithm, "https or none")
    return Tls(
        authority_file=properties.get("ssl.ca.location"),
        authority_pem=properties.get("ssl.ca.pem"),
        certificate_file=properties.get("ssl.certificate.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password", ""),
        is_verified=properties.get("enable.ssl.certificate.verification", "true") == "true",
        is_host_verified=algorithm == "https",
    )


def _make_ssl_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authority_file, cadata=tls.authority_pem)
        if tls.certificate_file:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    except (OSError, ValueError) as error:
        raise PropertyRefused(f"The files that kafka.ssl.* name cannot be used: {error}.") from None
    context.check_hostname = tls.is_verified and tls.is_host_verified
    if not tls.is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context
