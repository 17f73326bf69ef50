"""One open connection to one Kafka broker, for the requests that the log makes itself.

aiokafka connects and does TLS and SASL; the bytes of requests and answers are the caller's.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from struct import Struct
from typing import Any, Self

from aiokafka.conn import AIOKafkaConnection  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above

Address = tuple[str, int]

_REQUEST_HEAD = Struct(">hhih")


class ConnectionFailed(Exception):
    """A broker could not be reached, hung up, or answered what cannot be read; another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to any broker of one cluster."""

    bootstrap: tuple[Address, ...]  #: not empty
    security_protocol: str = "PLAINTEXT"
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)  #: aiokafka's arguments; empty without SASL
    ssl_context: ssl.SSLContext | None = None
    client_id: str = "holdfast"


class BrokerConnection:
    """Requests go out in the order of the calls and are answered in that order."""

    def __init__(self, inner: AIOKafkaConnection) -> None:
        self._inner = inner

    @classmethod
    async def open(cls, address: Address, options: ConnectionOptions, timeout_ms: int) -> Self:
        """Connect, and authenticate if the options say so; `timeout_ms` bounds this and every later answer.

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
        except BaseException:
            inner.close()
            raise
        return cls(inner)

    @property
    def is_open(self) -> bool:
        """Tell whether requests can still be sent."""
        return bool(self._inner.connected())

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Send one request and return the body of its answer; both without their headers.

        Raises:
            ConnectionFailed: no answer in time, or the connection broke; whether the broker acted is not known.
        """
        try:
            answer: bytes = await self._inner.send(_Bytes(api_key, version, body, is_flexible))
        except (OSError, KafkaError) as error:
            if isinstance(error, TimeoutError):
                self._inner.close()  # answers come in order: behind one that does not come, no other will
            raise ConnectionFailed(f"{self._inner.host}:{self._inner.port} did not answer: {_tell(error)}") from error
        return answer

    def close(self) -> None:
        """Hang up; requests under way fail."""
        self._inner.close()


class _Bytes:
    """What aiokafka's connection wants to know of a request."""

    def __init__(self, api_key: int, version: int, body: bytes, is_flexible: bool) -> None:
        self._api_key = api_key
        self._version = version
        self._body = body
        self._tags = b"\x00" if is_flexible else b""
        self._correlation_id = 0
        self._client_id = b""
        self.RESPONSE_TYPE = self  #: asked to `decode` the answer

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Self:
        lowest, highest = versions.get(self._api_key, (0, -1))
        if not lowest <= self._version <= highest:
            raise ConnectionFailed(f"the broker does not speak version {self._version} of API {self._api_key}")
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> "_Head":
        name = client_id.encode()
        head = _REQUEST_HEAD.pack(self._api_key, self._version, correlation_id, len(name))
        return _Head(head + name + self._tags, correlation_id)

    def encode(self) -> bytes:
        return self._body

    def parse_response_header(self, buffer: BytesIO) -> "_Head":
        correlation_id = int.from_bytes(buffer.read(4), "big")
        if self._tags:
            buffer.read(1)
        return _Head(b"", correlation_id)

    def decode(self, buffer: BytesIO) -> bytes:
        return buffer.read()


class _Head:
    def __init__(self, data: bytes, correlation_id: int) -> None:
        self._data = data
        self.correlation_id = correlation_id

    def encode(self) -> bytes:
        return self._data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise AttributeError(name)


def _tell(error: BaseException) -> str:
    return str(error) or type(error).__name__
