"""`holdfast dev`, `topics create` and `config`, where no Kafka is needed: what they refuse, and what they say."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from holdfast.broker.properties import choose_ports
from holdfast.cli import main
from holdfast.console.commands import topics
from holdfast.console.commands.config import nearest
from holdfast.console.interrupts import one_interrupt
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show import waiting
from holdfast.console.sources import kafka_reader
from holdfast.console.sources.brokers_or_nodes import find_node
from tests.pure.console.conftest import Node

#: Values by the name of the config topic.
Written: TypeAlias = dict[str, dict[str, str | None]]


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
    return result


def test_a_dry_run_says_what_topic_would_be_made() -> None:
    dry = run("topics", "create", "orders", "--dry-run", "--bootstrap-server", "127.0.0.1:1")
    assert (dry.exit_code, dry.stdout) == (Exit.DONE, "")
    assert dry.stderr == (
        "The topic orders would be made with 1 partition and as many copies as the cluster is set to, unless it exists.\n"
        "Nothing was changed (--dry-run).\n"
    )


def test_a_kafka_that_is_not_there_is_named_with_the_reason_and_not_waited_for() -> None:
    result = run("topics", "create", "orders", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2")
    assert (result.exit_code, result.stderr) == (
        Exit.UNREACHABLE,
        "Error: Kafka does not answer (127.0.0.1:1 cannot be reached: Connection refused); see --bootstrap-server.\n",
    )


def test_the_time_that_kafka_may_take_bounds_how_long_a_silent_one_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run("topics", "create", "orders", "--bootstrap-server", server, "--timeout", "0.2")
    assert (result.exit_code, "no answer in 200 ms" in result.stderr) == (Exit.UNREACHABLE, True), result.stderr


def test_a_node_among_the_brokers_is_named_where_librdkafka_took_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Failure("The topic 'orders' cannot be made: Topic Admin API (KIP-4) not supported by broker.")

    monkeypatch.setattr(topics, "ask_brokers", lambda *_: None)
    monkeypatch.setattr(topics, "make_topic", refuse)
    result = run("topics", "create", "orders", "--bootstrap-server", f"127.0.0.1:1,{node.address}")
    assert (result.exit_code, result.stderr) == (
        Exit.WRONG_USAGE,
        f"Error: {node.address} is a Holdfast node, not a Kafka broker; name brokers by --bootstrap-server.\n",
    )


@pytest.mark.parametrize(
    "command",
    [
        ("dump", "__holdfast_share_state"),
        ("config", "list"),
        ("config", "set", "codec=kafka"),
    ],
    ids=" ".join,
)
def test_a_command_that_waits_for_kafka_says_for_whom(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SAY_AFTER_S", 0.0)
    monkeypatch.setattr(kafka_reader, "READ_TIMEOUT_S", 0.2)
    result = run(*command, "--bootstrap-server", "127.0.0.1:1,127.0.0.1:2")
    said, error = result.stderr.splitlines()
    assert (result.exit_code, said) == (Exit.UNREACHABLE, "Waiting for Kafka at 127.0.0.1:1,127.0.0.1:2 …")
    assert error.startswith("Error: ")
    assert "127.0.0.1:1,127.0.0.1:2" in error


@pytest.mark.parametrize(
    "command",
    [
        ("config", "list"),
        ("config", "get", "codec"),
        ("config", "set", "codec=kafka"),
        ("dump", "orders"),
        ("dump", "__holdfast_share_state"),
        ("topics", "create", "orders"),
        ("groups", "kafka", "list"),
        ("groups", "kafka", "describe", "x"),
        ("groups", "kafka", "describe", "x", "--offsets"),
        ("groups", "kafka", "delete", "x", "--dry-run"),
        ("groups", "kafka", "delete", "x", "--force"),
        ("find", "--type", "group", "x"),
        ("find", "--type", "transaction", "x"),
    ],
    ids=" ".join,
)
def test_a_node_where_brokers_are_expected_is_named(node: Node, command: tuple[str, ...]) -> None:
    """It has no topic of settings, which is not to say that nothing is set."""
    result = run(*command, "--bootstrap-server", node.address)
    assert (result.exit_code, result.stdout, result.stderr) == (
        Exit.WRONG_USAGE,
        "",
        f"Error: {node.address} is a Holdfast node, not a Kafka broker; name brokers by --bootstrap-server.\n",
    )


def test_brokers_that_cannot_be_looked_at_are_taken_for_brokers() -> None:
    assert find_node({"bootstrap.servers": "127.0.0.1:1"}) is None
    assert find_node({"bootstrap.servers": "127.0.0.1:1", "sasl.mechanism": "GSSAPI"}) is None


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Give the config topics of a Kafka without any topic, as they are written."""
    found: Written = {}

    class EmptyKafka(kafka_reader.KafkaReader):
        def partitions(self, topic: str) -> list[int]:
            raise Failure(f"no topic {topic}", Exit.NOT_FOUND)

    def write(_: object, topic: str, values: Mapping[str, str | None], timeout_ms: int) -> None:
        found[topic] = dict(values)

    monkeypatch.setattr("holdfast.console.commands.config.KafkaReader", EmptyKafka)
    monkeypatch.setattr("holdfast.console.commands.config.ensure_config_topic", lambda *_: None)
    monkeypatch.setattr("holdfast.console.commands.config.write_values", write)
    return found


OF_ALL_NODES = {
    "list": ("list",),
    "list for scripts": ("list", "--json"),
    "get": ("get", "codec"),
    "set": ("set", "codec=kafka"),
    "set, dry": ("set", "codec=kafka", "--dry-run"),
    "unset": ("unset", "codec"),
}


@pytest.mark.parametrize("arguments", OF_ALL_NODES.values(), ids=OF_ALL_NODES)
def test_what_is_set_for_a_state_topic_that_there_is_not_is_neither_shown_nor_changed(
    written: Written, arguments: tuple[str, ...]
) -> None:
    """Its name may be misspelt, and no node would read a config topic that is made for it."""
    misspelt = run("config", *arguments, "--state-topic", "stat")
    assert (misspelt.exit_code, misspelt.stdout, misspelt.stderr) == (
        Exit.NOT_FOUND,
        "",
        "Error: There is no state topic stat; name that of your nodes by --state-topic, or give "
        "`holdfast config set` --before-the-first-node if they have not made it yet.\n",
    )
    assert written == {}


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["real", "dry"])
def test_settings_are_set_ahead_of_the_state_topic_by_whoever_says_so(
    written: Written, dry_run: tuple[str, ...]
) -> None:
    ahead = run("config", "set", "codec=kafka", "--state-topic", "stat", "--before-the-first-node", *dry_run)
    assert (ahead.exit_code, written) == (Exit.DONE, {} if dry_run else {"stat_config": {"codec": "kafka"}})


def test_a_command_that_is_answered_in_time_says_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting.waiting_for("127.0.0.1:1"):
        timer = next(thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    timer.join()
    assert capsys.readouterr().err == ""


def test_a_time_that_librdkafka_does_not_wait_is_refused() -> None:
    result = run("topics", "create", "orders", "--timeout", "3600.1", "--bootstrap-server", "127.0.0.1:1")
    assert (result.exit_code, "3600.1 is not in the range" in result.stderr) == (Exit.WRONG_USAGE, True)


@pytest.mark.parametrize(
    "command", [("topics", "create", "orders", "--timeout"), ("broker", "start", "--start-timeout")], ids=" ".join
)
def test_a_time_that_is_no_number_is_refused(command: tuple[str, ...]) -> None:
    result = run(*command, "nan")
    assert (result.exit_code, "'nan' is not a number" in result.stderr) == (Exit.WRONG_USAGE, True), result.stderr


def test_a_property_that_kafka_does_not_know_is_named() -> None:
    result = run("topics", "create", "orders", "--kafka", "no.such=1")
    assert result.exit_code == Exit.WRONG_USAGE
    assert "no.such" in result.stderr


def test_dev_looks_at_its_addresses_before_it_starts_anything() -> None:
    wrong = run("dev", "--listen", "nowhere")
    assert (wrong.exit_code, wrong.stderr) == (
        Exit.WRONG_USAGE,
        "Error: --listen is 'nowhere'; it must be host:port, as in 127.0.0.1:9492 or [::1]:9492.\n",
    )
    open_port = run("dev", "--listen", "127.0.0.1:0")
    assert (open_port.exit_code, open_port.stderr) == (
        Exit.WRONG_USAGE,
        "Error: --listen is '127.0.0.1:0', which leaves the port open; name one from 1 to 65535.\n",
    )
    named = run("dev", "--topic", "no name")
    assert (named.exit_code, "'no name' is no topic's name; a name has" in named.stderr) == (Exit.WRONG_USAGE, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("dev", "--kafka-port", port)
    assert (result.exit_code, result.stderr) == (
        Exit.FAILED,
        f"Error: Something listens on port {port} already; end it, or name another port by --kafka-port.\n",
    )


def test_dev_looks_at_the_ports_of_its_workers_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("dev", "--listen", f"127.0.0.1:{port - 2}", "--workers", "2")
    assert (result.exit_code, "already; end it, or name another port by --listen." in result.stderr) == (1, True)


def test_dev_refuses_ports_of_workers_that_do_not_exist() -> None:
    result = run("dev", "--listen", "127.0.0.1:65535", "--workers", "2")
    assert (result.exit_code, result.stderr) == (
        Exit.WRONG_USAGE,
        "Error: --listen has port 65535, and 2 workers have the ports after it up to 65537; give it one of at most 65533.\n",
    )


@pytest.mark.usefixtures("interruptible")
def test_only_the_first_signal_interrupts() -> None:
    reached = False
    with one_interrupt(signal.SIGINT, signal.SIGTERM):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_dev_makes_nothing_where_there_is_no_kafka_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "kafka").mkdir()
    ports = choose_ports(1)[0]
    where = ("--kafka-port", str(ports.broker), "--listen", f"127.0.0.1:{ports.controller}")
    result = run("dev", "--kafka-home", str(tmp_path / "kafka"), *where)
    assert (result.exit_code, "holds no Kafka" in result.stderr) == (Exit.FAILED, True)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_name_that_is_not_set_is_compared_with_those_that_are() -> None:
    assert nearest(["log_levle"], ["codec", "log_level"]) == "did you mean log_level?"
    assert nearest(["nosuch"], ["codec", "log_level"]) == "`holdfast config list` shows what is."
