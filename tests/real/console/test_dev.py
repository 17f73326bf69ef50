"""`holdfast dev`: what it starts is ended with it, whichever way it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from holdfast.broker.properties import HOST, choose_ports
from holdfast.cli import main
from holdfast.console.outcomes import Exit
from tests.processes import is_alive
from tests.real.container_kafka import needs_processes
from tests.waiting import PATIENCE_S, block_until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _of_the_embedded_broker() -> None:
    needs_processes("The test is about the embedded broker")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
    return result


class Dev:
    """A `holdfast dev` in a process of its own."""

    def __init__(self, data_dir: Path, said: Path, *topics: str) -> None:
        ports, of_http = choose_ports(2)
        self.address, self.kafka_port = f"{HOST}:{ports.broker}", ports.controller
        self.http_port = of_http.broker
        self.data_dir = data_dir
        self._said = said
        self.arguments = [
            *("dev", "--data-dir", str(data_dir), "--listen", self.address, "--kafka-port", str(self.kafka_port)),
            *("--http-port", str(self.http_port)),
            *("--start-timeout", str(PATIENCE_S), "--json"),
            *(part for topic in topics for part in ("--topic", topic)),
        ]
        with said.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ready(self) -> dict[str, object]:
        """Wait until it says that all runs, and return what it says."""
        assert self.process.stdout is not None
        reports: list[str] = []
        while reports[-1:] != ["}\n"]:
            reports.append(self.process.stdout.readline())
            assert reports[-1], self.said()
        return dict(json.loads("".join(reports)))

    def kafka_pid(self) -> int | None:
        try:
            return int((self.data_dir / "kafka" / "node-1" / "kafka.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def node_pid(self) -> int:
        listed = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=True
        )
        (line,) = [line for line in listed.stdout.splitlines() if "holdfast serve" in line]
        return int(line.split()[0])

    def said(self) -> str:
        return self._said.read_text()


@contextmanager
def dev(data_dir: Path, *topics: str) -> Iterator[Dev]:
    """Give a `holdfast dev`; none outlives the context."""
    running = Dev(data_dir, data_dir.with_suffix(".log"), *topics)
    try:
        yield running
    finally:
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.process.kill()
        running.process.wait()


def test_one_command_runs_all_and_whichever_ends_by_itself_ends_the_other(tmp_path: Path) -> None:
    with dev(tmp_path / "data", "orders", "bills") as first:
        assert first.ready() == {
            "bootstrap_servers": f"{HOST}:{first.kafka_port}",
            "address": first.address,
            "http_address": f"{HOST}:{first.http_port}",
            "topics": ["orders", "bills"],
        }
        with urlopen(f"http://{HOST}:{first.http_port}/ready") as ready:
            assert json.load(ready)["is_ready"]
        named = ("--group", "workers", "--topic", "bills", "--partition", "0", "--address", first.address)
        assert run("state", "init", *named, "--start-offset", "7").exit_code == Exit.DONE
        described = run("groups", "describe", "workers", "--address", first.address).stdout
        assert described.splitlines()[-1].split() == ["bills", "0", "7", "7", "100", "93", "0", "-"]
        where = ("--bootstrap-server", f"{HOST}:{first.kafka_port}")
        made = run("topics", "create", "refunds", "--partitions", "3", *where)
        last = made.stderr.splitlines()[-1]  # a busy broker may have been waited for
        assert (made.exit_code, last) == (0, "The topic refunds is made, with 3 partitions.")
        again = run("topics", "create", "refunds", *where, "--json")
        answer = json.loads(again.stdout)
        assert (answer["partitions"], answer["replication_factor"], answer["is_new"]) == (3, 1, False)
        assert run("topics", "create", "refunds", "--partitions", "4", *where).exit_code == Exit.DIFFERENT
        assert run("topics", "create", "no name", *where).exit_code == Exit.WRONG_USAGE
        too_many = run("topics", "create", "r", "--replication-factor", "3", *where)
        assert (too_many.exit_code, "fewer brokers" in too_many.stderr) == (Exit.FAILED, True)

        ports = choose_ports(1)[0]
        elsewhere = ("--listen", f"{HOST}:{ports.broker}", "--kafka-port", str(ports.controller))
        second = run("dev", "--data-dir", str(first.data_dir), *elsewhere)
        assert (second.exit_code, second.stderr) == (
            Exit.FAILED,
            f"Error: Another `holdfast dev` runs in {first.data_dir}; end it, or name another directory by --data-dir.\n",
        )
        taken = run("dev", "--kafka-port", str(first.kafka_port), "--listen", f"{HOST}:{ports.broker}")
        assert (taken.exit_code, f"port {first.kafka_port} already" in taken.stderr) == (Exit.FAILED, True)

        node_pid, kafka_pid = first.node_pid(), first.kafka_pid()
        assert kafka_pid is not None
        os.kill(node_pid, signal.SIGKILL)
        assert first.process.wait(PATIENCE_S) == Exit.FAILED
        assert "Error: The node ended by signal 9. So Kafka is ended, too.\nThe end of " in first.said()
        assert not is_alive(kafka_pid)

    with dev(tmp_path / "data", "orders") as second_run:
        second_run.ready()
        again = json.loads(run("groups", "describe", "workers", "--address", second_run.address, "--json").stdout)
        assert again["lag"] == 93, "a topic that exists gets no records"
        named = ("--group", "workers", "--topic", "bills", "--partition", "0", "--address", second_run.address)
        assert json.loads(run("state", "read", *named, "--json").stdout)["start_offset"] == 7
        node_pid, kafka_pid = second_run.node_pid(), second_run.kafka_pid()
        assert kafka_pid is not None
        os.kill(kafka_pid, signal.SIGKILL)
        assert second_run.process.wait(PATIENCE_S) == Exit.FAILED
        assert "Error: Kafka ended by itself (" in second_run.said()
        assert not is_alive(node_pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_what_is_half_started_is_ended_as_well(tmp_path: Path, number: signal.Signals, code: int) -> None:
    if number == signal.SIGKILL and shutil.which("setpriv") is None:
        pytest.skip("only Linux ends the children of who was killed")
    with dev(tmp_path / "data") as starting:
        block_until(starting.kafka_pid, "Kafka is being started")
        kafka_pid = starting.kafka_pid()
        assert kafka_pid is not None
        starting.process.send_signal(number)
        assert starting.process.wait(PATIENCE_S) == code, starting.said()
        block_until(lambda: not is_alive(kafka_pid), "Kafka is gone")
