"""A node for trials, as a child process that ends with this one."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.broker.processes import ending_with_us
from holdfast.client import ClientError, ClientSettings, connect
from holdfast.console.outcomes import Exit, Failure

_POLL_S: Final = 0.05
_CLIENT: Final = ClientSettings(connect_timeout_ms=1_000, request_timeout_ms=5_000)
_LAST_LINES: Final = 5
#: Settings that one broker can meet, with few enough log partitions to look at; and all topics of that broker.
_SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Share consumers may take what there is, from the first record on.
    "gateway.topics": "*",
    "gateway.groups.default.share.auto.offset.reset": "earliest",
}
#: Variables that the node gets; the other HOLDFAST_ variables belong to another node.
_KEPT_VARIABLES: Final = frozenset({"HOLDFAST_CACHE"})


class NodeProcess:
    """`holdfast serve` on a cluster of one broker, with one worker or several; its lines go to a file."""

    def __init__(
        self, address: str, http_address: str, bootstrap_servers: str, log_file: Path, workers: int = 1
    ) -> None:
        self.address = address
        self.http_address = http_address
        self.log_file = log_file
        flags = {
            "listen": address,
            "http.listen": http_address,
            "kafka.bootstrap.servers": bootstrap_servers,
            **_SETTINGS,
        }
        if workers > 1:
            flags |= {"workers": workers, "membership": "group"}
        self._arguments = [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; returns before it is ready."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOLDFAST_") or name in _KEPT_VARIABLES
        }
        with self.log_file.open("wb") as log:
            # A session of its own, because a Ctrl-C in the terminal is meant for us and we stop the node ourselves.
            self._process = subprocess.Popen(  # noqa: S603
                ending_with_us([sys.executable, "-m", "holdfast", "serve", *self._arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it serves every log partition.

        Raises:
            Failure: it ended, or is not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not asyncio.run(self._is_ready()):
            if (end := self.end()) is not None:
                raise Failure(end, more_lines=self.last_lines())
            if time.monotonic() > deadline:
                raise Failure(f"The node is not ready in {timeout_s:.0f} s.", more_lines=self.last_lines())
            time.sleep(_POLL_S)

    def end(self) -> str | None:
        """Return how it ended, in one sentence; None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        by_signal = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        meaning = "".join(f" ({known.meaning.rstrip('.')})" for known in Exit if known == code)
        return f"The node ended {by_signal}{meaning}."

    def last_lines(self) -> list[str]:
        """Return the end of its log, below a line that says so."""
        lines = self.log_file.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return [f"The end of {self.log_file}:", *lines]

    def stop(self, timeout_s: float) -> None:
        """End it: SIGTERM, and SIGKILL if it is still there after `timeout_s`; nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self._process.kill()
        self._process.wait()

    async def _is_ready(self) -> bool:
        try:
            async with connect(self.address, _CLIENT) as client:
                return bool((await client.admin("status"))["is_ready"])
        except ClientError:
            return False
