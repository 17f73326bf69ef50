"""A copy of this machine, into which root can install things: what is written there is in memory, and gone with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

from tests.real.service.unit import Unit

_MAKE: Final = """
mount -t tmpfs layers "$1"
mkdir "$1/upper" "$1/work" "$1/root"
chmod 755 "$1/upper" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for each in proc sys dev; do mount --rbind "/$each" "$1/root/$each"; done
echo made
cat
"""


def why_no_copy() -> str:
    """Return what keeps this process from making a copy; empty if nothing does."""
    if os.geteuid():
        return "only root can make a copy of the machine"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


class Machine:
    """A copy that is there: its root, as processes in its namespace see it."""

    def __init__(self, pid: int, root: Path) -> None:
        self._enter = ["nsenter", f"--target={pid}", "--mount"]
        self.root = root

    def run(self, command: str, *, user: str = "root", typed: str = "", directory: Path = Path("/")) -> str:
        """Run a shell command there that succeeds, and return what it says."""
        become = ["runuser", "-u", user, "--"] if user != "root" else []
        whole = [
            *self._enter,
            "chroot",
            str(self.root),
            *become,
            "bash",
            "-euc",
            f"cd {quote(str(directory))}; {command}",
        ]
        # In a session without a terminal a password is read from the standard input.
        ran = subprocess.run(
            whole,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            start_new_session=True,
            # systemctl starts nothing in a machine that was not booted, and fails where it is not told so.
            env={**os.environ, "SYSTEMD_OFFLINE": "1"},
        )
        assert ran.returncode == 0, f"{command}:\n{ran.stdout}"
        return ran.stdout

    def read(self, path: str) -> str:
        """Return the text of a file there."""
        return self.run(f"cat {path}")

    @contextmanager
    def service(self, unit: Unit, log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run the service of a unit there, and kill it if it does not end before."""
        with log.open("wb") as said:
            process = subprocess.Popen(
                [*self._enter, *unit.start(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={"PATH": os.environ["PATH"], **unit.environment, **environment},
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def copied_machine(directory: Path) -> Iterator[Machine]:
    """Give a copy; `directory` is empty, and stays so."""
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", _MAKE, "copy", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "made\n"
        try:
            yield Machine(holder.pid, directory / "root")
        finally:
            holder.kill()
