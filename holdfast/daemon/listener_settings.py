"""The settings of the listener: where the node listens, and what its clients may cost."""

from typing import Self

from pydantic import model_validator

from holdfast.daemon.declarations import (
    DEFAULT_PORT,
    MIB,
    MINUTE_MS,
    Address,
    Component,
    count,
    parse_address,
    setting,
    time_ms,
)


class ListenerSettings(Component):
    """Where the node listens, and how clients reach it."""

    listen: Address = setting(
        f"127.0.0.1:{DEFAULT_PORT}",
        "Address to listen on, as host:port. `0.0.0.0` listens everywhere and then needs "
        "`advertised_listener`; port 0 takes a free one.",
        min_length=1,
    )
    advertised_listener: Address = setting(
        "", "Address that clients and other nodes are told, as host:port. Empty: the same as `listen`."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        host, _ = parse_address(self.listen)
        if self.advertised_listener:
            advertised, port = parse_address(self.advertised_listener)
            if advertised in ("0.0.0.0", "::") or port == 0:  # noqa: S104
                raise ValueError("advertised_listener must be an address that clients can connect to, host and port")
        elif host in ("0.0.0.0", "::"):  # noqa: S104
            raise ValueError(
                f"listen is {self.listen}, which no client can connect to; set advertised_listener as well"
            )
        return self

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port to bind."""
        return parse_address(self.listen)

    @property
    def advertised_address(self) -> tuple[str, int]:
        """Host and port to tell; where no `advertised_listener` is set and `listen` has port 0, the port is 0."""
        return parse_address(self.advertised_listener or self.listen)


class LimitSettings(Component):
    """What one client may cost."""

    frame_size_bytes_max: int = setting(
        8 * MIB,
        "Largest request. A write of 100,000 state batches has 2.3 MiB; Kafka's default of 100 MiB is for "
        "records, which nobody sends here.",
        kafka="socket.request.max.bytes",
        ge=1024,
        le=100 * MIB,
    )
    connections_max: int = count(1_000, "Open connections; further ones are closed at once.", kafka="max.connections")
    connections_max_idle_ms: int = time_ms(
        10 * MINUTE_MS, "A connection without a request for so long is closed.", kafka="connections.max.idle.ms"
    )
    frame_timeout_ms: int = time_ms(30_000, "A request that has begun to arrive must be complete within this time.")
    requests_in_flight_max: int = count(
        64, "Requests of one connection that may wait for an answer; then no more are read from it.", most=100_000
    )
    write_buffer_bytes_max: int = setting(
        MIB,
        "Answers that may wait for a slow client, in bytes; then no more requests are read from it.",
        ge=1024,
        le=1024 * MIB,
    )
    share_partitions_per_request_max: int = count(
        20_000, "Share partitions that one request may name; a request with more is refused.", most=1_000_000
    )
