"""The settings of one host: how many nodes `holdfast serve` runs on it, and how it looks after them."""

from typing import Self

from pydantic import model_validator

from holdfast.daemon.settings.declarations import MINUTE_MS, Component, count, time_ms


class HostSettings(Component):
    """The nodes of one `holdfast serve`, which are its workers where they are several."""

    workers: int = count(
        1,
        "Nodes that `holdfast serve` runs, each a process and a member of the group; a good value is the number of processors. "
        "All accept connections at `listen`; each also listens at a port of its own, the next ones after that of `listen`, and "
        "has a node id of its own, from `node_id` on. `holdfast serve --workers` sets it.",
        most=256,
    )
    worker_restart_backoff_ms: int = time_ms(
        200, "First pause before a worker that ended by itself is started again; it doubles."
    )
    worker_restart_backoff_max_ms: int = time_ms(
        30_000,
        "Longest such pause. At least worker_restart_backoff_ms. A worker that ran for longer than that begins with the first "
        "pause again.",
    )
    worker_stop_timeout_ms: int = time_ms(
        MINUTE_MS, "How long the workers may take to stop, which they all do at once; then they are killed."
    )
    worker_accept_timeout_ms: int = time_ms(
        500,
        "How long a connection may wait at the address of all workers before one that does not know yet who serves what accepts it; "
        "clients are told to try again.",
    )
    worker_answer_timeout_ms: int = time_ms(
        1_000, "How long a worker that is asked for metrics waits for those of the others."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.worker_restart_backoff_ms > self.worker_restart_backoff_max_ms:
            raise ValueError("worker_restart_backoff_ms must be at most worker_restart_backoff_max_ms")
        return self
