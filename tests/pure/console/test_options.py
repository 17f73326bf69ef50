"""The options that name a Kafka: what is wrong with them is said before any broker is queried."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.outcomes import Exit

#: Of each way to a Kafka.
COMMANDS = (
    ("config", "list"),
    ("config", "set", "log_level=debug"),
    ("dump", "t"),
    ("find", "g:t:0", "--bootstrap-server", "127.0.0.1:1"),
    ("find", "--type", "group", "g"),
    ("group", "describe", "g"),
    ("group", "list"),
    ("groups", "list", "--topic", "t"),
    ("snapshots", "list"),
    ("topics", "create", "t", "--dry-run"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("secruity.protocol=SSL", 'No such configuration property: "secruity.protocol"; see --kafka.'),
        ("linger.ms=abc", 'Invalid value for configuration property "queue.buffering.max.ms"; see --kafka.'),
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
