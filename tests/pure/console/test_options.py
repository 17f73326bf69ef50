"""The options that name a Kafka: what is wrong with them is said before any broker is queried."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.client import LoginRefused
from holdfast.console.node_session import NodeSession
from holdfast.console.outcomes import Exit
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.pure.console.conftest import Node

#: Of each way to a Kafka.
COMMANDS = (
    ("config", "list"),
    ("config", "set", "log_level=debug"),
    ("dump", "t"),
    ("find", "g:t:0", "--bootstrap-server", "127.0.0.1:1"),
    ("find", "--type", "group", "g"),
    ("groups", "kafka", "describe", "g"),
    ("groups", "kafka", "list"),
    ("groups", "list", "--topic", "t"),
    ("snapshots", "list"),
    ("topics", "create", "t", "--dry-run"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        (
            "secruity.protocol=SSL",
            'No such configuration property: "secruity.protocol"; see --bootstrap-server and --kafka.',
        ),
        (
            "linger.ms=abc",
            'Invalid value for configuration property "queue.buffering.max.ms"; see --bootstrap-server and --kafka.',
        ),
        ("security.protocol=sasl_plaintext", "kafka.sasl.mechanism"),
    ],
)
def test_a_wrong_property_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], assignment: str, problem: str
) -> None:
    """Where it was left out, what was to be encrypted would go out as it is."""
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP", "127.0.0.1:1")
    result = CliRunner().invoke(main, (*command, "--kafka", assignment))
    assert (result.exit_code, result.stdout) == (Exit.WRONG_USAGE, "")
    assert result.stderr.count("\n") == 1
    assert problem in result.stderr


@pytest.mark.parametrize("server", ["127.0.0.1", "b:1,127.0.0.1:99999", "127.0.0.1:port", ":9092"])
def test_a_broker_is_named_with_a_port_that_can_be(server: str) -> None:
    result = CliRunner().invoke(main, ("groups", "kafka", "list", "--bootstrap-server", server))
    assert (result.exit_code, result.stdout) == (Exit.WRONG_USAGE, "")
    assert f"{server.rpartition(',')[2]!r} is not HOST:PORT, as in 127.0.0.1:9092" in result.stderr


def test_the_variable_of_a_node_may_leave_a_port_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1, [::1]:9093")
    assert CliRunner().invoke(main, ("topics", "create", "t", "--dry-run")).exit_code == Exit.DONE
    monkeypatch.setenv("HOLDFAST_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:99999")
    result = CliRunner().invoke(main, ("topics", "create", "t", "--dry-run"))
    assert result.exit_code == Exit.WRONG_USAGE
    assert "kafka.bootstrap.servers is '127.0.0.1:99999'" in result.stderr


def test_a_login_that_is_refused_is_denied_and_not_only_failed(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    def refuse(*_: object) -> None:
        raise LoginRefused("The login at n:1 failed: wrong password.")

    monkeypatch.setattr(NodeSession, "query", refuse)
    result = CliRunner().invoke(main, ("status", "--address", node.address))
    assert (result.exit_code, result.stderr) == (
        Exit.DENIED,
        "Error: The login at n:1 failed: wrong password. See --command-config.\n",
    )


def test_a_denial_names_the_command_that_was_typed(node: Node) -> None:
    def deny(_: object) -> None:
        text = "User:a may not DESCRIBE and ALTER the CLUSTER, which decision-preview needs; `holdfast acls add` allows it."
        raise AdminError(text, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    node.answers["decision-preview"] = deny
    result = CliRunner().invoke(main, ("partitions", "take", "1", "--address", node.address), prog_name="holdfast")
    assert (result.exit_code, result.stderr) == (
        Exit.DENIED,
        "Error: User:a may not DESCRIBE and ALTER the CLUSTER, which `holdfast partitions take` needs; `holdfast acls add` "
        "allows it.\n",
    )
