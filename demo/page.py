"""The page beside the demonstration: `holdfast page` on the Kafka of an act, at one address for all acts."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from holdfast.broker.processes import ending_with_us
from holdfast.broker.properties import HOST, choose_ports

_STOP_TIMEOUT_S: Final = 10.0


class PageBeside:
    """A page at a port of its own, which a browser may keep open from act to act."""

    def __init__(self, console: Console) -> None:
        self.address = f"{HOST}:{choose_ports(1)[0].broker}"
        self._console = console

    @contextmanager
    def showing(self, bootstrap_servers: str, state_topic: str, directory: Path) -> Iterator[None]:
        """Serve the page of a state topic while the block runs; no node is asked, so one that is killed is no matter to it.

        Args:
            bootstrap_servers: of Kafka.
            state_topic: that of the node; it need not be there yet.
            directory: for the lines of the process.
        """
        kafka = ("--bootstrap-server", bootstrap_servers, "--topic", state_topic)
        command = [sys.executable, "-m", "holdfast", "page", *kafka, "--listen", self.address]
        with (directory / "page.log").open("ab") as said:
            process = subprocess.Popen(ending_with_us(command), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            self._console.print(
                f"See it in a browser while it runs: http://{self.address}/", soft_wrap=not self._console.is_terminal
            )
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
