"""A Spark of our own on loopback: a master and workers, whose Python has all that the job needs but our code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.real.job.quick_spark import QUICK_JAVA
from tests.waiting import PATIENCE_S, SPARK_PATIENCE_S

HOST: Final = "127.0.0.1"
SPARK_HOME: Final = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which Spark stays on loopback, and which finds the pure build, as workers do that get it in a zip."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    daemons = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
    return kept | {"SPARK_LOCAL_IP": HOST, "SPARK_HOME": str(SPARK_HOME)} | daemons | more


def make_python_without_us(directory: Path) -> Path:
    """Make an environment with all packages of this one but ours, which is installed by a hook that it lacks."""
    venv.create(directory, with_pip=False)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = directory / "bin" / "python"
    output = subprocess.run(
        [python, "-c", "import pandas, fastavro, pyspark"], cwd=directory, env=environment(), check=False
    )
    assert output.returncode == 0
    output = subprocess.run(
        [python, "-c", "import holdfast"], cwd=directory, env=environment(), capture_output=True, check=False
    )
    assert b"ModuleNotFoundError" in output.stderr
    return python


class Part:
    """A master or a worker, as a process with a log."""

    def __init__(self, directory: Path, name: str, *command: str) -> None:
        self._log_file = directory / f"{name}.log"
        with self._log_file.open("wb") as said:
            self._process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{command[0]}", *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment(),
                cwd=directory,
            )

    def wait_for(self, pattern: str) -> str:
        """Wait for a line in its log, and return what the first group of the pattern found."""
        deadline = time.monotonic() + SPARK_PATIENCE_S
        while (found := re.search(pattern, self._log_file.read_text(errors="replace"))) is None:
            assert self._process.poll() is None, self._log_file.read_text(errors="replace")
            assert time.monotonic() < deadline, self._log_file.read_text(errors="replace")
            time.sleep(0.05)
        return found[1]

    def stop(self) -> None:
        """End it and wait until it is gone; a worker ends its executors."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@contextmanager
def standalone_spark(directory: Path, workers: int) -> Iterator[str]:
    """Give the URL of a master with so many workers of one core each; their files lie in `worker-0` and so on."""
    directory.mkdir()
    with ExitStack() as running:
        master = Part(directory, "master", "master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
        running.callback(master.stop)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            files = ("--work-dir", str(directory / f"worker-{number}"))
            bounds = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g")
            worker = Part(directory, f"worker-{number}", "worker.Worker", *bounds, *files, url)
            running.callback(worker.stop)
            worker.wait_for(r"Successfully registered with master (\S+)")
        yield url


def run_holdfast(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in an environment for Spark, and in a directory without our code."""
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(
        command, env=environment(), cwd=directory, capture_output=True, text=True, timeout=SPARK_PATIENCE_S, check=False
    )
