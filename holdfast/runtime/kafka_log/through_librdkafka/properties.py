"""The properties of the clients of librdkafka, from the bounds of the log."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.librdkafka import IN_ORDER, KafkaClients, Say

#: By Kafka's number of a codec.
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Between two tries after an error of a broker, and between two connections at most: an outage that is over is soon noticed.
_BACKOFF_MS: Final = 50
_RECONNECT_MAX_MS: Final = 1_000
#: One of these stands in a line about a login or about TLS.
_OF_LOGINS: Final = ("SASL", "SSL handshake", "uthentication")
#: Lines that wait for the event loop.
_LINES_MAX: Final = 100
#: Bounds of librdkafka for a record and for a time-out, and the bytes of an answer to a fetch in addition to its records.
_MESSAGE_BYTES_MIN: Final = 1_000
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
_SOCKET_TIMEOUT_MIN_MS: Final = 10
_SOCKET_TIMEOUT_MAX_MS: Final = 300_000
_ANSWER_OVERHEAD_BYTES: Final = 1024
_INT32_MAX: Final = 2**31 - 1
#: A fetch that a broker may hold for its whole time must not look like one without an answer.
_FETCH_ROOM_MS: Final = 1_000


class LinesOnLoop:
    """Takes lines of librdkafka on any thread, and says on the event loop those about logins; more than a few at once are dropped.

    The node itself logs a broker that cannot be reached, in fewer lines.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._waiting = 0

    def __call__(self, level: int, kind: str, client: str, text: str) -> None:
        """Take a line."""
        if self._waiting < _LINES_MAX and any(word in text for word in _OF_LOGINS):
            self._waiting += 1
            with suppress(RuntimeError):  # the loop has ended, and nobody listens any more
                self._loop.call_soon_threadsafe(self._say_now, level, kind, client, text)

    def _say_now(self, level: int, kind: str, client: str, text: str) -> None:
        self._waiting = 0
        self._say(level, kind, client, text)


def make_clients(connection: ConnectionOptions, say: Say) -> KafkaClients:
    """Return the maker of clients for the brokers that a connection reaches; `say` takes their lines, on threads of theirs."""
    if connection.live is not None:
        return KafkaClients(connection.live, say)
    servers = ",".join(format_address(*address) for address in connection.bootstrap)
    return KafkaClients({"bootstrap.servers": servers, "client.id": connection.client_id}, say)


def producer_properties(
    *,
    message_bytes_max: int,
    message_timeout_ms: int,
    request_timeout_ms: int,
    linger_ms: int,
    records_max: int,
    codec: int,
) -> dict[str, Any]:
    """Return the properties of a producer, which takes `records_max` records of any size at a time."""
    return {
        **IN_ORDER,
        "linger.ms": min(linger_ms, message_timeout_ms - 1),
        "compression.type": _COMPRESSIONS[codec],
        "message.max.bytes": min(_MESSAGE_BYTES_MAX, max(_MESSAGE_BYTES_MIN, message_bytes_max)),
        "message.timeout.ms": message_timeout_ms,
        "request.timeout.ms": min(_SOCKET_TIMEOUT_MAX_MS, request_timeout_ms),
        "socket.timeout.ms": min(_SOCKET_TIMEOUT_MAX_MS, max(_SOCKET_TIMEOUT_MIN_MS, request_timeout_ms)),
        "queue.buffering.max.messages": records_max,
        "queue.buffering.max.kbytes": _INT32_MAX,
        "retry.backoff.ms": _BACKOFF_MS,
        "retry.backoff.max.ms": _RECONNECT_MAX_MS,
        "reconnect.backoff.ms": _BACKOFF_MS,
        "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
        "socket.nagle.disable": True,
    }


def consumer_properties(
    *, fetch_wait_ms: int, fetch_bytes_max: int, fetch_partition_bytes_max: int, request_timeout_ms: int
) -> dict[str, Any]:
    """Return what a consumer is made with; what it holds for its user is bounded by `fetch_bytes_max`."""
    return {
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
        "enable.partition.eof": True,
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": min(fetch_wait_ms, _SOCKET_TIMEOUT_MAX_MS - _FETCH_ROOM_MS),
        "fetch.max.bytes": fetch_bytes_max,
        "max.partition.fetch.bytes": fetch_partition_bytes_max,
        "message.max.bytes": min(fetch_bytes_max, 1_000_000),
        "receive.message.max.bytes": min(_INT32_MAX, max(100_000_000, fetch_bytes_max + _ANSWER_OVERHEAD_BYTES)),
        "queued.max.messages.kbytes": max(1, fetch_bytes_max // 1024),
        "fetch.error.backoff.ms": _BACKOFF_MS,
        "fetch.queue.backoff.ms": _BACKOFF_MS,
        "socket.timeout.ms": min(_SOCKET_TIMEOUT_MAX_MS, max(request_timeout_ms, fetch_wait_ms + _FETCH_ROOM_MS)),
        "reconnect.backoff.ms": _BACKOFF_MS,
        "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
        "socket.nagle.disable": True,
    }
