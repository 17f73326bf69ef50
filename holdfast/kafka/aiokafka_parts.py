"""What we take of aiokafka, some of it private; the one module that imports it.

Its connection does TLS and SASL and learns what the broker speaks; its record batches are in C. Neither is a promise of its version, so
`pyproject.toml` bounds that, and `tests/pure/kafka/test_borrowed.py` says what must stay as it is.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiokafka.conn import AIOKafkaConnection  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]  # as above
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]  # as above

from holdfast.kafka.errors import ConnectionFailed

#: Of the record batches that we write, and of all that we can read.
MAGIC = 2


class Opened(NamedTuple):
    """A connection whose broker has let us in and waits for requests."""

    #: Its protocol is to be set by the new owner.
    transport: asyncio.Transport
    #: Lowest and highest version of each API that the broker speaks, both inclusive.
    versions: Mapping[int, tuple[int, int]]
    #: Closes it.
    close: Callable[[], object]


async def open_transport(
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_ms: int,
    security_protocol: str,
    ssl_context: ssl.SSLContext | None,
    sasl: Mapping[str, str],
) -> Opened:
    """Connect, and authenticate if the security protocol says so; `timeout_ms` bounds each step.

    Raises:
        ConnectionFailed: it did not come about.
    """
    inner = AIOKafkaConnection(
        host,
        port,
        client_id=client_id,
        request_timeout_ms=timeout_ms,
        ssl_context=ssl_context,
        security_protocol=security_protocol,
        **sasl,
    )
    try:
        _, writer = await inner.connect()
    # RuntimeError: uvloop's, when it closes while it opens. UnicodeError: a host that is no name of a host. AssertionError: aiokafka's,
    # of versions that a broker announces.
    except (OSError, KafkaError, RuntimeError, UnicodeError, AssertionError) as error:
        raise ConnectionFailed(f"{host}:{port} cannot be reached: {str(error) or type(error).__name__}") from error
    except BaseException:
        inner.close()
        raise
    return Opened(writer.transport, inner._versions, inner.close)


def make_batch_builder(compression: int, size_max: int) -> Any:  # noqa: ANN401
    """Return a builder of one record batch of no producer: `append(number, timestamp_ms, key, value, headers)`, then `build()`.

    Args:
        compression: Kafka's number of a codec.
        size_max: bytes of the batch, of which its first record alone may take more.
    """
    return DefaultRecordBatchBuilder(MAGIC, compression, 0, -1, -1, -1, size_max)


def read_batch(data: bytes) -> Any:  # noqa: ANN401
    """Return the first record batch of some bytes, to be checked by `validate_crc()` and then iterated, or None.

    Raises:
        Exception: whatever it likes, where the bytes are no batch; so do the check and the iteration.
    """
    return MemoryRecords(data).next_batch()
