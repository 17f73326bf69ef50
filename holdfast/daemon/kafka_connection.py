"""Connections to Kafka's brokers over the wire, for what librdkafka cannot ask.

kio makes and reads the bytes of requests; aiokafka connects, and does TLS and SASL.
The same `kafka.*` properties serve librdkafka and this: what cannot be said to both is refused with a clear error.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, Self, TypeVar

from aiokafka.conn import AIOKafkaConnection  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32
from kio.static.protocol import Entity, Payload, RequestPayload

from holdfast.daemon.config import ConfigError

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
Address = tuple[str, int]


class ConnectionFailed(Exception):
    """A broker could not be reached, hung up, or answered what cannot be read; another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to any broker of one cluster."""

    bootstrap: tuple[Address, ...]  #: not empty
    security_protocol: str
    sasl: Mapping[str, str] = field(repr=False)  #: aiokafka's arguments; empty without SASL
    ssl_context: ssl.SSLContext | None
    client_id: str

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Carry over librdkafka's properties.

        Raises:
            ConfigError: a property about security has no counterpart here, or a value is wrong.
        """
        for name in properties:
            if name.startswith(_SECURITY_PREFIXES) and name not in _MAPPED:
                raise ConfigError(
                    [f"kafka.{name} is not supported for the metadata connection; use {', '.join(sorted(_MAPPED))}."]
                )
        protocol = properties.get("security.protocol", "plaintext").upper()
        if protocol not in _PROTOCOLS:
            raise _wrong("security.protocol", protocol.lower(), "plaintext, ssl, sasl_plaintext or sasl_ssl")
        return cls(
            bootstrap=_parse_servers(properties.get("bootstrap.servers", "")),
            security_protocol=protocol,
            sasl=_sasl(properties) if protocol.startswith("SASL_") else {},
            ssl_context=_ssl_context(properties) if protocol.endswith("SSL") else None,
            client_id=properties.get("client.id", "holdfast"),
        )


class Connection:
    """One open connection to one broker."""

    def __init__(self, inner: AIOKafkaConnection) -> None:
        self._inner = inner

    @classmethod
    async def open(cls, address: Address, options: ConnectionOptions, timeout_ms: int) -> Self:
        """Connect, and authenticate if the options say so.

        Args:
            address: host and port of the broker.
            options: how to connect.
            timeout_ms: bound of each step here, and of every later request.

        Raises:
            ConnectionFailed: it did not come about.
        """
        host, port = address
        inner = AIOKafkaConnection(
            host,
            port,
            client_id=options.client_id,
            request_timeout_ms=timeout_ms,
            ssl_context=options.ssl_context,
            security_protocol=options.security_protocol,
            **options.sasl,
        )
        try:
            await inner.connect()
        except (OSError, KafkaError) as error:
            raise ConnectionFailed(f"{host}:{port} cannot be reached: {_tell(error)}") from error
        return cls(inner)

    async def send(self, request: RequestPayload, response_type: type[R]) -> R:
        """Send one request and wait for its answer.

        Raises:
            ConnectionFailed: no answer in time, none that can be read, or the broker does not know this version.
        """
        name = f"{self._inner.host}:{self._inner.port}"
        try:
            body: bytes = await self._inner.send(_Framed(request, response_type))
        except (OSError, KafkaError) as error:
            raise ConnectionFailed(f"{name} did not answer: {_tell(error)}") from error
        try:
            response, _ = entity_reader(response_type)(body, 0)
        except (SerialError, ValueError) as error:
            raise ConnectionFailed(f"{name} sent an answer that cannot be read: {error}") from error
        return response

    def close(self) -> None:
        """Hang up; requests under way fail."""
        self._inner.close()


class _Framed:
    """What aiokafka's connection wants to know of a request, about one of kio's."""

    def __init__(self, request: RequestPayload, response_type: Any) -> None:  # noqa: ANN401 - kio types the header of an instance only
        self._request = request
        self._response_type = response_type
        self.RESPONSE_TYPE = self  #: asked to `decode` the answer

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Self:
        key, version = self._request.__api_key__, self._request.__version__
        lowest, highest = versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            raise ConnectionFailed(f"the broker does not speak version {version} of API {key}")
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> "_Header":
        schema = self._request.__header_schema__
        return _Header(
            schema(
                request_api_key=self._request.__api_key__,
                request_api_version=self._request.__version__,
                correlation_id=i32(correlation_id),
                client_id=client_id,
            )
        )

    def encode(self) -> bytes:
        return _to_bytes(self._request)

    def parse_response_header(self, buffer: BytesIO) -> Any:  # noqa: ANN401
        header, size = entity_reader(self._response_type.__header_schema__)(buffer.getvalue(), 0)
        buffer.seek(size)
        return header

    def decode(self, buffer: BytesIO) -> bytes:
        return buffer.read()


class _Header:
    def __init__(self, header: Entity) -> None:
        self._header = header

    def encode(self) -> bytes:
        return _to_bytes(self._header)


def _to_bytes(entity: Entity) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _tell(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _wrong(name: str, value: str, right: str) -> ConfigError:
    return ConfigError([f"kafka.{name} is {value!r}; it must be {right}."])


def _parse_servers(text: str) -> tuple[Address, ...]:
    servers = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        address = part.rpartition("://")[2]
        bare = ":" not in address or address.endswith("]")
        host, _, port = (address, "", str(_DEFAULT_PORT)) if bare else address.rpartition(":")
        if not (host and port.isdecimal() and int(port) <= 65_535):
            raise _wrong("bootstrap.servers", text, "host:port,host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise _wrong("bootstrap.servers", text, "host:port,host:port")
    return tuple(servers)


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    # GSSAPI is librdkafka's own default, so silence means GSSAPI to it and must not mean another mechanism to us.
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in _MECHANISMS:
        raise _wrong("sasl.mechanism", mechanism, "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    if "sasl.username" not in properties or "sasl.password" not in properties:
        raise ConfigError([f"sasl.mechanism {mechanism} needs kafka.sasl.username and kafka.sasl.password."])
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
        raise ConfigError([f"The files that kafka.ssl.* name cannot be used: {_tell(error)}."]) from None
    is_verified = properties.get("enable.ssl.certificate.verification", "true") == "true"
    context.check_hostname = is_verified and algorithm == "https"
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context
