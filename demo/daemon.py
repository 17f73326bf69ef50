"""A Holdfast process of the demonstration."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.broker.properties import HOST, choose_ports
from holdfast.client import ClientError, ClientSettings, connect

LOG_PARTITIONS: Final = 16
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_ONE_TRY: Final = ClientSettings(connect_timeout_ms=1_000, attempts_max=1)


class Daemon:
    """Runs `holdfast serve` on a port of its own; what it says goes to a file."""

    def __init__(
        self, bootstrap_servers: str, state_topic: str, directory: Path, node_id: int, settings: Mapping[str, str]
    ) -> None:
        """Describe a process.

        Args:
            bootstrap_servers: of Kafka.
            state_topic: its log, of `LOG_PARTITIONS`.
            directory: for what it says.
            node_id: its own.
            settings: those of all its starts, over those of the demonstration.
        """
        self.address = f"{HOST}:{choose_ports(1)[0].broker}"
        self.state_topic = state_topic
        self.said = directory / f"holdfast-{node_id}.log"
        self._settings = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "listen": self.address,
            "http.listen": f"{HOST}:0",
            "node_id": str(node_id),
            "state_topic": state_topic,
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": str(LOG_PARTITIONS),
            "snapshots.topic": "",  # the first act does without
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, **settings: str) -> float:
        """Start the process and wait until every log partition serves; returns how many seconds that took.

        Args:
            settings: those of this start alone, over the others.

        Raises:
            RuntimeError: it ended, or was not ready in time.
        """
        began_s = time.monotonic()
        flags = [part for name, value in (self._settings | settings).items() for part in ("--set", f"{name}={value}")]
        with self.said.open("ab") as said:
            command = [sys.executable, "-m", "holdfast", "serve", *flags]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)  # noqa: ASYNC220
        while not await self._is_ready():
            if self._process.poll() is not None or time.monotonic() - began_s > _START_TIMEOUT_S:
                raise RuntimeError(f"The daemon did not start; it said:\n{self.log_tail()}")
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - began_s

    def kill(self) -> None:
        """End it by SIGKILL, as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int | None:
        """Ask it to end, and make it end if it does not; returns its exit code, None if it did not run."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    async def query(self, command: str) -> Any:  # noqa: ANN401
        """Give it an admin command."""
        async with connect(self.address, _ONE_TRY) as client:
            return await client.admin(command)

    def log_tail(self) -> str:
        """Return the last lines it said."""
        return "\n".join(self.said.read_text(errors="replace").splitlines()[-10:])

    async def _is_ready(self) -> bool:
        try:
            return bool((await self.query("status"))["is_ready"])
        except ClientError:
            return False
