"""Limits and times of the client."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of one client; all are whole numbers above 0 but for the client id."""

    #: What the client calls itself.
    client_id: str = "holdfast"
    #: Time to open a connection, its first exchange included.
    connect_timeout_ms: int = 5_000
    #: Time for the answer to one request; after it the connection is closed, because answers come in order.
    request_timeout_ms: int = 30_000
    #: How long the node that is queried for coordinators may be silent before another one is queried as well.
    other_node_after_ms: int = 1_000
    #: The longest that a node is left alone at a time because it asked for it.
    throttle_max_ms: int = 30_000
    #: Age of what is known of the nodes of the cluster, from which on they are looked up again.
    metadata_max_age_ms: int = 300_000
    #: Tries of one call per share partition, the first included.
    attempts_max: int = 8
    #: Wait before the second try; it doubles with every try.
    retry_backoff_ms: int = 100
    #: Longest wait between two tries.
    retry_backoff_max_ms: int = 5_000
    #: Requests of one connection that may wait for an answer; more wait here. Below the daemon's own limit.
    requests_in_flight_max: int = 32
    #: Share partitions in one request; a call for more is cut into several.
    share_partitions_per_request_max: int = 1_000
    #: Share partitions whose coordinator is remembered.
    coordinators_cached_max: int = 100_000
    #: Topics whose ids are remembered by name.
    topic_ids_cached_max: int = 1_000
    #: How long; a topic that was deleted and recreated has another id.
    topic_id_max_age_ms: int = 300_000
    #: Largest answer that is taken.
    frame_size_bytes_max: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "client_id" and (type(value) is not int or value < 1):
                raise ValueError(f"The client setting {field.name} is {value!r}; it must be a whole number above 0.")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ValueError(
                f"The client setting retry_backoff_max_ms is {self.retry_backoff_max_ms}; "
                f"it must not be below retry_backoff_ms, which is {self.retry_backoff_ms}."
            )
