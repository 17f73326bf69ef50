"""`holdfast broker` and `holdfast dev` where the file system, or whom a broker belongs to, is in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.broker.properties import choose_ports
from holdfast.cli import main
from holdfast.console.commands import dev
from holdfast.console.outcomes import Exit


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
    return result


@pytest.mark.parametrize("is_default", [True, False], ids=["by default", "by name"])
@pytest.mark.parametrize("command", ["broker", "dev"])
def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, is_default: bool
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "below"
    ports = choose_ports(1)[0]
    arguments = ["dev", "--kafka-port", str(ports.broker), "--listen", f"127.0.0.1:{ports.controller}"]
    if command == "broker":
        arguments = ["broker", "start"]
    if is_default:
        monkeypatch.setenv("HOLDFAST_CACHE", str(place))
        monkeypatch.setattr("tempfile.tempdir", str(place))
    else:
        arguments += ["--data-dir", str(place)]
    monkeypatch.setattr(dev, "find_java", lambda: "java")
    monkeypatch.setattr(dev, "cached_kafka", lambda _: place)
    result = run(*arguments)
    assert result.exit_code == Exit.FAILED
    assert f"Error: {place}" in result.stderr
    assert "cannot be made, read or written (Not a directory)" in result.stderr
    assert result.stderr.endswith("name another directory by --data-dir.\n")


@pytest.mark.parametrize("command", ["start", "stop", "status"])
def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "node-1" / "kafka.pid").mkdir(parents=True)
    result = run("broker", command, "--data-dir", str(tmp_path))
    assert result.exit_code == Exit.FAILED
    too_long = run("broker", command, "--data-dir", str(tmp_path / ("x" * 300)))
    assert (too_long.exit_code, "(File name too long); make room" in too_long.stderr) == (Exit.FAILED, True)
    assert result.stderr.startswith(
        f"Error: {tmp_path}/node-1/kafka.pid cannot be made, read or written (Is a directory)"
    )


def test_the_broker_of_another_user_is_left_to_that_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    node = tmp_path / "node-1"
    node.mkdir()
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", str(node / "server.properties")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        broker.stdout.readline()  # from when on it has its arguments
        (node / "kafka.pid").write_text(str(broker.pid))
        with monkeypatch.context() as patched:
            patched.setattr(os, "kill", refuse)
            result = run("broker", "stop", "--data-dir", str(tmp_path))
        broker.stdin.close()
    assert (result.exit_code, result.stderr) == (
        Exit.FAILED,
        f"Error: The broker in {node} (process {broker.pid}) belongs to another user; do this as that user.\n",
    )
