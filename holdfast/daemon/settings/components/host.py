"""The settings of one host: how many nodes `holdfast serve` runs on it, and how it looks after them."""

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
    worker_stop_timeout_ms: int = time_ms(
        MINUTE_MS,
        "How long the workers may take to stop, which they all do at once; then they are killed. Keep it below the time that "
        "systemd or Kubernetes gives the whole service.",
    )
