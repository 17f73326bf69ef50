"""How brokers and nodes are reached, as librdkafka's properties say it, for the other clients that reach them.

The same `kafka.*` properties serve librdkafka, which takes them as they are, our own connections (`connection.connection_options`) and
Kafka's Java client (`java_properties`). So they are read once, and what cannot be said to all of them is refused with a clear error.
Clients of a node read a file of the same properties, without the beginning `kafka.`.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.hidden_texts import HIDDEN_TEXTS
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.oauth.sources import MECHANISM, Bearer, parse_bearer

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", MECHANISM)

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
_SECRETS: Final = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password")
#: Of these, what a running node may take over: all but whether there are TLS and a login.
RENEWABLE: Final = _MAPPED - {"security.protocol"}
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


#: Without TLS and without a login.
PLAINTEXT: Final = Security(protocol="PLAINTEXT", sasl=None, tls=None)


def read_security(path: Path) -> Security:
    """Return what a file of properties says about security; what it says of anything else is left alone.

    Raises:
        PropertyRefused: it cannot be read, a line is no `name=value`, or as `parse_security`.
    """
    try:
        return parse_security(_read_properties(path))
    except PropertyRefused as error:
        # There, the names are bare.
        raise PropertyRefused(f"In {path}: {str(error).replace('kafka.', '')}") from None


def _read_properties(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PropertyRefused(f"the file cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    found = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise PropertyRefused(f"line {number} is not name=value.")
        found[name.strip()] = value.strip()
    return found


def parse_security(properties: Mapping[str, str]) -> Security:
    """Return what the properties say about security; the secrets among them stand in no log line from then on.

    Raises:
        PropertyRefused: one has no counterpart in the other clients, or a value is wrong.
    """
    HIDDEN_TEXTS.add(properties[name] for name in _SECRETS if properties.get(name))
    for name in properties:
        if name.startswith(_SECURITY_PREFIXES) and name not in _MAPPED:
            raise PropertyRefused(f"kafka.{name} is not supported; use {', '.join(sorted(_MAPPED))}.")
    protocol = properties.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise wrong_value("security.protocol", protocol.lower(), "plaintext, ssl, sasl_plaintext or sasl_ssl")
    return Security(
        protocol=protocol,
        sasl=_parse_sasl(properties) if protocol.startswith("SASL_") else None,
        tls=_parse_tls(properties) if protocol.endswith("SSL") else None,
    )


def mechanism_of(properties: Mapping[str, str]) -> str | None:
    """Return the mechanism that properties name, under either of its names."""
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")


def wrong_value(name: str, value: str, right: str) -> PropertyRefused:
    """Return the error for a property that has no such value."""
    return PropertyRefused(f"kafka.{name} is {value!r}; it must be {right}.")


def _parse_sasl(properties: Mapping[str, str]) -> Sasl | Bearer:
    mechanism = mechanism_of(properties)
    right = f"{', '.join(_MECHANISMS[:-1])} or {_MECHANISMS[-1]}"
    if mechanism is None:  # which means GSSAPI to librdkafka, and must not mean another one to us
        raise PropertyRefused(f"kafka.sasl.mechanism is not set; it must be {right}.")
    if mechanism not in _MECHANISMS:
        raise wrong_value("sasl.mechanism", mechanism, right)
    if mechanism == MECHANISM:
        return parse_bearer(properties)
    if "sasl.username" not in properties or "sasl.password" not in properties:
        raise PropertyRefused(f"sasl.mechanism {mechanism} needs kafka.sasl.username and kafka.sasl.password.")
    return Sasl(mechanism=mechanism, username=properties["sasl.username"], password=properties["sasl.password"])


def principal_of(security: Security) -> str:
    """Return who brokers take a client for, as `User:name`; where they alone know, what leads to it."""
    if isinstance(security.sasl, Sasl):
        return f"User:{security.sasl.username}"
    if isinstance(security.sasl, Bearer):
        return "this client's principal (User: and the claim `sub` of its token, unless the brokers go by another)"
    if security.tls is not None and security.tls.certificate_file:
        shown = f"openssl x509 -noout -subject -nameopt RFC2253 -in {security.tls.certificate_file}"
        return f"this client's principal (User: and what the brokers' ssl.principal.mapping.rules make of `{shown}`)"
    return "User:ANONYMOUS"


def _parse_tls(properties: Mapping[str, str]) -> Tls:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", "none"):
        raise wrong_value("ssl.endpoint.identification.algorithm", algorithm, "https or none")
    return Tls(
        authority_file=properties.get("ssl.ca.location"),
        authority_pem=properties.get("ssl.ca.pem"),
        certificate_file=properties.get("ssl.certificate.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password", ""),
        is_verified=properties.get("enable.ssl.certificate.verification", "true") == "true",
        is_host_verified=algorithm == "https",
    )


def files_of(properties: Mapping[str, str]) -> list[Path]:
    """Return the files that the properties name, tokens excepted, which are read for each connection."""
    return [Path(properties[name]) for name in sorted(RENEWABLE & properties.keys()) if name.endswith(".location")]


def make_ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return what a connection is encrypted with; the files are read now.

    Raises:
        PropertyRefused: a file cannot be read.
    """
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
