"""Commands that are imported when they are looked up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.lazy_commands import LazyCommands
from holdfast.console.outcomes import Exit
from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.file_env_flags import RESERVED_VARIABLES
from holdfast.node_settings import SETTINGS


def all_commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from all_commands(command)


def test_each_command_is_found_under_its_own_name() -> None:
    names = [name for name, _ in all_commands(main)]
    assert names == [command.name for _, command in all_commands(main)]
    assert len(main.commands) == len(list(main.commands))
    assert {"serve", "state", "create", "list"} <= {*names}


def test_the_help_of_each_is_shaped_and_not_twice() -> None:
    for name, command in all_commands(main):
        assert command.help is not None
        assert command.help.count("\b\n") == command.help.count("Example:") == 1, name
        assert command.short_help, name


@pytest.mark.parametrize(
    "arguments",
    [
        ("groups", "kafka", "describe", "\udcff"),
        ("find", "--type", "group", "\udcff"),
        ("topics", "create", "x\udcff"),
        ("dump", "\udcff"),
        ("groups", "kafka", "list", "--bootstrap-server", "\udcff:9092"),
        ("state", "list", "--group", "a\udcff"),
        ("--address", "\udcff:9492", "status"),
    ],
    ids=ascii,
)
def test_what_is_not_utf8_is_refused_before_anything_is_sent(arguments: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, refused.stdout) == (Exit.WRONG_USAGE, "")
    assert "is not in UTF-8, as everything but a path must be\n" in refused.stderr


def test_a_node_knows_the_variables_that_commands_read() -> None:
    """It doubts the others that begin as its own do, and a user may have set these for both."""
    read = {
        variable
        for _, command in (("holdfast", main), *all_commands(main))
        for option in command.params
        for variable in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or ())
    }
    assert "HOLDFAST_ADDRESS" in read
    of_settings = {known.variable for known in catalogue_of(SETTINGS).known.values()} | {
        "HOLDFAST_KAFKA_BOOTSTRAP_SERVERS"
    }
    assert read <= RESERVED_VARIABLES | of_settings


def test_what_is_added_wins_and_what_is_removed_is_gone() -> None:
    commands = LazyCommands({"dump": "nowhere:dump", "find": "nowhere:find"})
    own = click.Command("dump", help="Mine.\n\nExample: holdfast dump")
    commands["dump"] = own
    assert (commands["dump"], own.short_help, [*commands]) == (own, "Mine.", ["dump", "find"])
    del commands["dump"]
    assert [*commands] == ["find"]
    assert commands.get("dump") is None


def test_a_command_imports_what_it_needs_alone() -> None:
    script = "import sys; from holdfast.cli import main; main.commands['status']; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "holdfast.console.commands.node" in found
    heavy = (
        "holdfast.daemon",
        "holdfast.broker",
        "holdfast.compaction",
        "holdfast.console.commands.dump",
        "kio",
        "pydantic",
    )
    assert [name for name in found if name.startswith(heavy)] == []
