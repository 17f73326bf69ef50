"""One broker of an embedded cluster: a directory, two ports and, while it runs, one JVM."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from pathlib import Path

from holdfast.broker.errors import BrokerError, in_directory
from holdfast.broker.processes import ending_with_us
from holdfast.broker.properties import new_kafka_uuid, to_properties_text
from holdfast.jars.cache import BOOTSTRAP_CHECKPOINT, kafka_home
from holdfast.jars.java import find_java, java_environment

_POLL_S = 0.02
_RECOGNIZABLE_TIMEOUT_S = 5.0
_LOG_TAIL_BYTES = 64 * 1024

#: What precedes the text of a line of `kafka.log`: time, level and logger, and before the text of an exception: its class.
_LOG_PREFIX = re.compile(r"^(\S+ (ERROR|WARN|FATAL) \S+ )?(.*?[\w.$]+Exception: )?")

#: Linux ties a child's life to the *thread* that started it. This one lives as long as the interpreter does.
_LAUNCHER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-broker-launcher")


class BrokerNode:
    """A node of an embedded cluster, known by its directory; it can be found again by another process.

    The directory holds `server.properties`, `kafka.log` and `kafka.previous.log` (bounded; of
    this run and the one before), `jvm.log`, `kafka.pid` while it runs, and `data/`.
    """

    def __init__(self, node_id: int, directory: Path, home: Callable[[], Path] = kafka_home) -> None:
        """Describe a node.

        Args:
            node_id: counts from 1.
            directory: where it lives.
            home: returns the directory of its jars, fetched when that is called first.
        """
        self.node_id = node_id
        self._home = home
        self.directory = directory
        self.data_dir = directory / "data"
        self._settings_file = directory / "server.properties"
        self._pid_file = directory / "kafka.pid"
        self._process: subprocess.Popen[bytes] | None = None

    def format(self, cluster_id: str) -> None:
        """Make the storage directory of this cluster unless it is there already."""
        if (self.data_dir / "meta.properties").exists():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._home() / BOOTSTRAP_CHECKPOINT, self.data_dir / BOOTSTRAP_CHECKPOINT)
        identity = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(self.node_id),
            "directory.id": new_kafka_uuid(),
        }
        (self.data_dir / "meta.properties").write_text(to_properties_text(identity))

    def launch(self, properties: Mapping[str, str], jvm_options: Sequence[str], *, outlives_us: bool) -> None:
        """Start the JVM; returns before the broker is ready.

        Args:
            properties: all broker settings.
            jvm_options: put before the main class.
            outlives_us: keep the broker running when this process ends; else it is killed then (on Linux, even if
                this process is killed itself).

        Raises:
            BrokerError: the broker runs already.
            JarsUnavailable: there is no Java, or no Kafka for it.
            OSError: the directory cannot be written.
        """
        if pid := self.pid():
            raise BrokerError(f"A broker runs in {self.directory} already (process {pid}); stop it first.")
        self._settings_file.write_text(to_properties_text(properties))
        with suppress(FileNotFoundError):
            (self.directory / "kafka.log").rename(self.directory / "kafka.previous.log")
        with resources.as_file(resources.files("holdfast.broker") / "log4j2.properties") as log_settings:
            shutil.copyfile(log_settings, self.directory / log_settings.name)
        command = [
            find_java(),
            *("-cp", str(self._home() / "*")),
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            f"-Dholdfast.log.dir={self.directory}",
            *jvm_options,
            "kafka.Kafka",
            str(self._settings_file),
        ]
        process = _LAUNCHER.submit(self._spawn, command if outlives_us else ending_with_us(command)).result()
        try:
            self._pid_file.write_text(str(process.pid))
        except OSError:
            process.kill()  # nobody would find it again
            process.wait()
            raise
        if outlives_us:
            self._wait_recognizable(process)
            process.returncode = 0  # Else Popen warns that it is forgotten while it runs, which is intended here.
        else:
            self._process = process

    def _wait_recognizable(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the process has the arguments that we know it by: for a moment after its start it has none."""
        deadline = time.monotonic() + _RECOGNIZABLE_TIMEOUT_S
        while process.poll() is None and not self._is_ours(process.pid) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "jvm.log").open("wb") as output:
            # A session of its own, because a Ctrl-C in the terminal is meant for us and we stop the broker ourselves.
            try:
                return subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.directory,
                    env=java_environment(),
                    start_new_session=True,
                )
            except OSError as error:  # not one of the directory, which was just written
                raise BrokerError(f"{command[0]} cannot be started ({error.strerror}).") from None

    def pid(self) -> int | None:
        """Return the id of the JVM's process while it runs, also if another process started it.

        Raises:
            BrokerError: the directory cannot be read.
        """
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        pid = None
        with in_directory(self.directory), suppress(FileNotFoundError, ValueError):
            pid = int(self._pid_file.read_text())
        return pid if pid is not None and self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        """Tell whether a process is our JVM, and not another one that has its id after its end."""
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            shown = subprocess.run(  # noqa: S603
                ["ps", "-o", "command=", "-p", str(pid)],  # noqa: S607
                capture_output=True,
                check=False,
            )
            arguments = shown.stdout.split()
        return os.fsencode(self._settings_file) in arguments

    def freeze(self, timeout_s: float = 10.0) -> None:
        """Halt the JVM by SIGSTOP and wait until each of its threads is halted, which on a busy machine is later than the signal.

        Raises:
            BrokerError: it does not run or belongs to another user, or a thread is not halted after `timeout_s`.
        """
        pid = self._running_pid()
        self._signal(pid, signal.SIGSTOP)
        deadline = time.monotonic() + timeout_s
        while not _is_halted(pid):
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The process of broker {self.node_id} ({pid}) is not halted by SIGSTOP; end it yourself."
                )
            time.sleep(_POLL_S)

    def thaw(self) -> None:
        """Let the JVM go on by SIGCONT.

        Raises:
            BrokerError: it does not run, or belongs to another user.
        """
        self._signal(self._running_pid(), signal.SIGCONT)

    def _running_pid(self) -> int:
        pid = self.pid()
        if pid is None:
            raise BrokerError(f"Broker {self.node_id} in {self.directory} does not run; start it first.")
        return pid

    def stop(self, timeout_s: float) -> None:
        """End the JVM: SIGTERM, and SIGKILL if it is still there after `timeout_s`; nothing if it does not run."""
        self.terminate()
        if not self._wait_for_end(timeout_s):
            self.kill()

    def terminate(self) -> None:
        """Ask the JVM to end, thawing it if it was frozen; returns at once.

        Raises:
            BrokerError: it belongs to another user.
        """
        self._signal_if_running(signal.SIGTERM)
        self._signal_if_running(signal.SIGCONT)

    def kill(self, timeout_s: float = 10.0) -> None:
        """End the JVM by SIGKILL and wait until it is gone; nothing if it does not run.

        Raises:
            BrokerError: it belongs to another user, or is still there after `timeout_s`.
        """
        self._signal_if_running(signal.SIGKILL)
        if not self._wait_for_end(timeout_s):
            raise BrokerError(f"The process of broker {self.node_id} ({self.pid()}) does not end; end it yourself.")

    def _signal_if_running(self, number: signal.Signals) -> None:
        pid = self.pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                self._signal(pid, number)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except PermissionError:
            raise BrokerError(
                f"The broker in {self.directory} (process {pid}) belongs to another user; do this as that user."
            ) from None

    def _wait_for_end(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        self._process = None
        self._pid_file.unlink(missing_ok=True)
        return True

    def failure_line(self) -> str:
        """Return the line that explains best why the JVM ended: Kafka's last error, else the JVM's first line."""
        errors = [line for line in self._tail("kafka.log") if "Exception: " in line or " ERROR " in line]
        return _LOG_PREFIX.sub("", (errors[-1:] or self._tail("jvm.log")[:1] or ["it said nothing"])[0])

    def _tail(self, name: str) -> list[str]:
        try:
            with (self.directory / name).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()]


def _is_halted(pid: int) -> bool:
    """Tell whether every thread of a process is halted by a signal; where the system does not show threads, whether the process is."""
    try:
        threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # one of them has just ended
        return False
    if threads:
        return all(text.rpartition(")")[2].split()[0] == "T" for text in threads)
    shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603, S607
    return shown.stdout.startswith(b"T")


def nodes_in(data_dir: Path) -> list[BrokerNode]:
    """Return the nodes of the cluster in this directory, in order of their ids; none if there is no cluster.

    Raises:
        BrokerError: the directory cannot be read.
    """
    with in_directory(data_dir):
        found = [(int(path.name.removeprefix("node-")), path) for path in data_dir.absolute().glob("node-*")]
    return [BrokerNode(node_id, path) for node_id, path in sorted(found)]
