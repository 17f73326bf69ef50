"""`holdfast serve` as a process: what it says of its settings, and the codes by which others know how it ended."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from structlog.testing import capture_logs

from holdfast.cli import main
from holdfast.console.commands.serve import _open_audit_file
from holdfast.console.outcomes import Exit, Failure
from holdfast.daemon.settings.components.host import HostSettings
from holdfast.daemon.settings.file_env_flags import Loaded
from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import LoggingSettings, Settings
from holdfast.daemon.settings.reloading import reload, renew, take
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.kafka.connection_options import LiveProperties
from holdfast.node_settings import load_settings
from tests.processes import is_alive
from tests.waiting import PATIENCE_MS, PATIENCE_S, block_until
from tests.world.identity.certificates import Authority


def test_exit_codes_are_fixed_because_units_and_scripts_rest_on_them() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "WRONG_USAGE": 2,
        "REFUSED_TO_START": 3,
        "SUPERSEDED": 4,
        "UNREACHABLE": 5,
        "NOT_FOUND": 6,
        "DIFFERENT": 7,
        "DENIED": 8,
    }


LOOKS = """
import gc
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS

def note(phase, about):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(number)) for number in range(about["generation"] + 1)))

looked_at = []
gc.freeze()
gc.set_threshold(*COLLECTOR_THRESHOLDS)
gc.callbacks.append(note)
held = [[] for _ in range(400_000)]
gc.callbacks.clear()
print(len(looked_at), max(looked_at))
"""


def test_no_look_of_the_collector_is_long_while_a_load_makes_many_objects() -> None:
    ended = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    looks, most = map(int, ended.stdout.split())
    assert looks > 5
    assert most < 25_000, "a look holds the loop, and takes about 0.1 µs for each"


def serve_command(settings: Mapping[str, object]) -> list[str]:
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "holdfast", "serve", *flags]


def ended_by_itself(settings: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Run a node that cannot start, with its log as JSON, and return how it ended."""
    return subprocess.run(
        serve_command(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_setting_without_effect_is_reported_in_the_log_and_a_kafka_that_is_not_there_is_awaited() -> None:
    settings = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "listen": "127.0.0.1:0",
        "http.listen": "",
        "share.coordinator.threads": 3,
    }
    lines: list[dict[str, object]] = []
    with subprocess.Popen(
        serve_command(settings), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(json.loads(line))
                if lines[-1]["event"] == "brokers_awaited":
                    process.terminate()
            assert process.wait(PATIENCE_S) == Exit.DONE, lines
        finally:
            process.kill()
    (look,) = [line for line in lines if line["event"] == "setting_doubted"]
    assert str(look["what"]).startswith("share.coordinator.threads (as a flag) has no effect here: ")
    (awaited,) = [line for line in lines if line["event"] == "brokers_awaited"]
    assert awaited["why"] == "127.0.0.1:1 cannot be reached: Connection refused"
    assert (lines[-1]["event"], lines[-1]["reason"]) == ("node_stopped", "a stop was requested")
    (first,) = [line for line in lines if line["event"] == "node_starting"]
    assert list(first)[3:] == ["version", "build", "node_id", "brokers", "state_topic", "logger"]


def test_a_wrong_property_of_the_kafka_client_is_a_wrong_setting_although_no_broker_answers() -> None:
    settings = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "listen": "127.0.0.1:0",
        "http.listen": "",
        "kafka.foo.bar": 1,
    }
    ended = ended_by_itself(settings)
    assert ended.returncode == Exit.WRONG_USAGE, ended.stderr
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("node_stopped", Exit.WRONG_USAGE)
    assert 'No such configuration property: "foo.bar"' in last["reason"]


def test_a_file_that_a_setting_names_and_cannot_be_used_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "acls").write_text('{"principal": "x"}\n')
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "listen": "127.0.0.1:0", "acls_file": tmp_path / "acls"}
    ended = ended_by_itself(settings)
    assert ended.returncode == Exit.WRONG_USAGE, ended.stderr
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("node_stopped", f"{tmp_path / 'acls'}, line 1: permission is missing.")
    audit_file = str(tmp_path / "missing" / "audit")
    loaded = load_settings(flags={"kafka.bootstrap.servers": "b:1", "audit_file": audit_file})
    with pytest.raises(Failure, match="which cannot be written") as caught:
        _open_audit_file(loaded.settings)
    assert caught.value.exit_code == Exit.WRONG_USAGE


# ---- workers ---------------------------------------------------------------------------------------------------------


def test_a_second_supervisor_at_one_address_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        settings = {
            "kafka.bootstrap.servers": "a:1",
            "listen": f"127.0.0.1:{port}",
            "http.listen": "",
            "membership": "group",
            "workers": 2,
        }
        ended = ended_by_itself(settings)
    assert ended.returncode == Exit.REFUSED_TO_START, ended.stderr
    [line] = map(json.loads, ended.stderr.splitlines())
    assert line["event"] == "workers_start_failed"
    assert line["why"].startswith(f"Cannot listen on 127.0.0.1:{port} (Address already in use)")


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_host_has_as_many_workers_as_the_setting_says_and_no_more(command: str) -> None:
    assert HostSettings(workers=256).workers == 256
    with pytest.raises(ValidationError):
        HostSettings(workers=257)
    result = CliRunner().invoke(main, [command, "--workers", "257"])
    assert (result.exit_code, "257 is not in the range 1<=x<=256." in result.stderr) == (Exit.WRONG_USAGE, True)


def test_no_worker_outlives_a_supervisor_that_is_killed() -> None:
    settings = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "listen": "127.0.0.1:0",
        "http.listen": "",
        "membership": "group",
        "request_timeout_ms": PATIENCE_MS,
        "config.read.timeout.ms": 100,
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "holdfast", "serve", "--workers", "2", *flags]
    pids: dict[int, int] = {}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as supervisor:
        try:
            assert supervisor.stderr is not None
            listening: set[int] = set()
            while listening != {1, 2}:
                line = json.loads(supervisor.stderr.readline())
                if line["event"] == "worker_started":
                    pids[line["node_id"]] = line["pid"]
                if line["event"] == "node_listening":
                    listening.add(line["node_id"])
        finally:
            supervisor.kill()
    try:
        block_until(lambda: not any(is_alive(pid) for pid in pids.values()), "the end of both workers")
    finally:
        for pid in filter(is_alive, pids.values()):
            os.kill(pid, signal.SIGKILL)


# ---- SIGHUP ----------------------------------------------------------------------------------------------------------


def settings_after_reload(settings: Settings, config: Path, kafka: LiveProperties) -> Settings:
    reloaded = reload(settings, lambda: load_settings(config), kafka)
    assert reloaded is not None
    return reloaded.settings


def test_a_reload_takes_the_level_of_lines_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"

    def write(text: str) -> None:
        config.write_text('[kafka]\n"bootstrap.servers" = "a:1"\n' + text)

    write("")
    settings = load_settings(config).settings
    kafka = LiveProperties(settings.kafka.properties)
    write('"client.id" = "new"\n[logging]\nlog_level = "debug"\n[load]\nloads_max = 3\n')
    with capture_logs() as lines:
        now = settings_after_reload(settings, config, kafka)
    assert lines == [
        {
            "event": "settings_reloaded",
            "log_level": "warning",
            "reloaded": ["log_level=debug"],
            "refused": [],
            "need_a_restart": ["kafka.client.id", "loads_max"],
        }
    ]
    assert (now.logging.log_level, now.load.loads_max, now.kafka) == ("debug", 64, settings.kafka)
    assert (kafka.current, kafka.renewals) == (settings.kafka.properties, 0)
    assert logging.getLogger("holdfast").level == logging.DEBUG


def test_a_reload_takes_how_kafka_is_logged_in_to_and_shows_no_secret(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"

    def write(password: str, more: str = "") -> None:
        login = '"security.protocol" = "sasl_plaintext"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "node"\n'
        config.write_text(f'[kafka]\n"bootstrap.servers" = "a:1"\n{login}"sasl.password" = "{password}"\n{more}')

    write("open sesame")
    settings = load_settings(config).settings
    kafka = LiveProperties(settings.kafka.properties)
    options = kafka.connection_options()
    assert options.renewed is not None
    write("changed")
    with capture_logs() as lines:
        now = settings_after_reload(settings, config, kafka)
    assert [line["event"] for line in lines] == ["kafka_credentials_loaded", "settings_reloaded"]
    assert (lines[1]["reloaded"], lines[1]["need_a_restart"]) == (["kafka.sasl.password=(hidden)"], [])
    assert "changed" not in str(lines)
    assert now.kafka.properties == kafka.current
    assert options.renewed().sasl["sasl_plain_password"] == now.kafka.properties["sasl.password"] == "changed"


def test_what_is_refused_is_not_named_as_reloaded(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"

    def write(authority: Path, password: str, level: str) -> None:
        login = '"security.protocol" = "sasl_ssl"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "node"\n'
        own = f'"sasl.password" = "{password}"\n"ssl.ca.location" = "{authority}"\n'
        config.write_text(f'[kafka]\n"bootstrap.servers" = "a:1"\n{login}{own}[logging]\nlog_level = "{level}"\n')

    authority = Authority(tmp_path).certificate
    write(authority, "open sesame", "info")
    settings = load_settings(config).settings
    kafka = LiveProperties(settings.kafka.properties)
    write(tmp_path / "nowhere.pem", "changed", "error")
    with capture_logs() as lines:
        now = settings_after_reload(settings, config, kafka)
    assert [line["event"] for line in lines] == ["kafka_credentials_refused", "settings_reloaded"]
    assert lines[1]["reloaded"] == ["log_level=error"]
    assert lines[1]["refused"] == ["kafka.sasl.password", "kafka.ssl.ca.location"]
    assert lines[1]["need_a_restart"] == []
    assert now.kafka == settings.kafka
    assert (kafka.current, kafka.renewals) == (settings.kafka.properties, 0)


@pytest.mark.parametrize("is_taken_at_the_start", [False, True])
def test_a_secret_that_a_reload_brought_stands_in_no_line_nor_does_the_one_before(is_taken_at_the_start: bool) -> None:
    def with_password(password: str) -> Loaded:
        return load_settings(flags={"kafka.bootstrap.servers": "a:1", "kafka.sasl.password": password})

    settings = with_password("open sesame").settings
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=secrets_of(settings))
    if is_taken_at_the_start:
        assert take(lambda: with_password("tide and kelp"), LiveProperties(settings.kafka.properties))
    else:
        assert reload(settings, lambda: with_password("tide and kelp"), LiveProperties(settings.kafka.properties))
    logging.getLogger("aiokafka.conn").warning("refused: tide and kelp, and open sesame before")
    assert "refused: (hidden), and (hidden) before" in stream.getvalue()
    assert "tide" not in stream.getvalue()


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_files_that_cannot_be_used_leave_the_former_ones(tmp_path: Path, name: str) -> None:
    properties = {"bootstrap.servers": "a:1", "security.protocol": "ssl"}
    kafka = LiveProperties(properties)
    before = kafka.connection_options()
    with capture_logs() as lines:
        assert not renew(kafka, properties | {name: str(tmp_path / "nowhere.pem")})
    assert [line["event"] for line in lines] == ["kafka_credentials_refused"]
    assert (kafka.current, kafka.renewals) == (properties, 0)
    assert before.renewed is not None
    assert before.renewed().ssl_context is before.ssl_context


@pytest.mark.parametrize("text", ['log_level = "loud"', "log_level ="], ids=["wrong value", "no TOML"])
def test_a_reload_of_a_bad_file_says_so_and_changes_nothing(tmp_path: Path, text: str) -> None:
    config = tmp_path / "node.toml"
    settings = load_settings(flags={"kafka.bootstrap.servers": "a:1"}).settings
    config.write_text(text)
    level = logging.getLogger("holdfast").level
    with capture_logs() as lines:
        assert reload(settings, lambda: load_settings(config), LiveProperties(settings.kafka.properties)) is None
    [line] = lines
    assert line["event"] == "settings_reload_failed"
    assert "node.toml" in line["why"]
    assert logging.getLogger("holdfast").level == level


def test_a_node_on_a_terminal_speaks_to_people_and_outlives_sighup(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        'listen = "127.0.0.1:0"\nconfig.read.timeout.ms = 100\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    ours, its = pty.openpty()
    said = b""

    def read_until(text: bytes) -> None:
        nonlocal said
        deadline = time.monotonic() + PATIENCE_S
        while text not in said:
            assert time.monotonic() < deadline, said
            if select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 65_536)

    command = [sys.executable, "-m", "holdfast", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=its) as node:
        try:
            read_until(b" node_listening  ")
            config.write_text(config.read_text() + '[logging]\nlog_level = "warning"\n')
            node.send_signal(signal.SIGHUP)
            read_until(b"settings_reloaded")
            assert b"log_level=warning" in said
            assert node.poll() is None
            node.send_signal(signal.SIGTERM)
            assert node.wait(PATIENCE_S) == Exit.DONE
        finally:
            node.kill()
            os.close(ours)
            os.close(its)
