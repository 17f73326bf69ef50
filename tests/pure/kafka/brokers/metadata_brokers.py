"""Brokers on loopback that answer what a connection asks, and metadata; they count who is connected."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from io import BytesIO

from kio.schema.api_versions.v0 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as metadata
from kio.schema.sasl_authenticate.v0 import response as sasl_authenticate
from kio.schema.sasl_handshake.v1 import response as sasl_handshake
from kio.schema.types import BrokerId
from kio.serial import entity_writer
from kio.static.primitive import i16, i32Timedelta
from kio.static.protocol import Entity


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
        self.accepted = 0  #: connections so far
        self.open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self.serving.add(task)
        self.accepted += 1
        self.open.add(writer)
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
            self.open.discard(writer)
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
async def listening(broker: Broker, context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[int]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        if broker.serving:
            await asyncio.wait(broker.serving, timeout=10)
