"""Every command is documented: in its own help, with an example that works, and on the page made from it."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.catalogue import ENVIRONMENT_PREFIX, catalogue_of
from holdfast.node_settings import SETTINGS as OF_NODE
from tools.cli_reference import commands, render_reference

COMMANDS = dict(commands())


def test_the_page_is_what_the_help_says() -> None:
    """Write it again with `make docs`."""
    page = Path(__file__).parents[3] / "docs" / "cli.md"
    assert page.read_text(encoding="utf-8") == render_reference()


@pytest.mark.parametrize("path", COMMANDS)
def test_the_example_of_a_command_is_one_line_that_it_understands(path: str) -> None:
    command = COMMANDS[path]
    example = (command.help or "").partition("\b\nExample: ")[2]
    assert example, f"the help of {path} has no example"
    assert "\n" not in example
    words, own_name = shlex.split(example), path.split()
    assert words[: len(own_name)] == own_name
    # A command keeps the names of its help option as its first context has them.
    command.make_context(path, words[len(own_name) :], parent=click.Context(main, **main.context_settings))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_list_of_commands_has_whole_sentences(width: int) -> None:
    for path, command in COMMANDS.items():
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=path, terminal_width=width, max_content_width=width)
            text = " ".join(command.get_help(context).split())
            for inner in command.commands.values():
                assert inner.short_help, inner.name
                assert inner.short_help in text, f"{path} at {width} columns"


def test_what_the_page_says_of_completion_completes() -> None:
    shells = re.findall(r"_HOLDFAST_COMPLETE=(\w+)_source holdfast", render_reference())
    assert shells == ["bash", "zsh", "fish"]
    for shell in shells:
        script = CliRunner().invoke(main, prog_name="holdfast", env={"_HOLDFAST_COMPLETE": f"{shell}_source"}).stdout
        assert f"_HOLDFAST_COMPLETE={shell}_complete" in script
    asked = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast part", "COMP_CWORD": "1"}
    assert CliRunner().invoke(main, prog_name="holdfast", env=asked).stdout == "plain,partitions\n"


#: Options that say what a setting of the node says too.
SETTINGS = {
    "bootstrap_server": "kafka.bootstrap.servers",
    "state_topic": "state_topic",
    "snapshot_topic": "snapshots.topic",
    "history_dir": "compaction.history.dir",
    "job_group": "compaction.group",
}


def test_what_a_node_learns_from_the_environment_a_command_learns_there_too() -> None:
    reached = set()
    for path, command in COMMANDS.items():
        for parameter in command.params:
            if setting := SETTINGS.get(parameter.name or ""):
                variable = ENVIRONMENT_PREFIX + setting.replace(".", "_").upper()
                context = click.Context(command)
                with pytest.MonkeyPatch.context() as patch:
                    patch.delenv("HOLDFAST_BOOTSTRAP", raising=False)
                    patch.setenv(variable, "given")
                    assert parameter.value_from_envvar(context) == "given", f"{path} does not read {variable}"
                    patch.setenv("HOLDFAST_BOOTSTRAP", "ours")
                    found = parameter.value_from_envvar(context)
                assert found == ("ours" if parameter.name == "bootstrap_server" else "given")
                reached.add(setting)
    assert reached == set(SETTINGS.values())
    assert reached - {"kafka.bootstrap.servers"} <= catalogue_of(OF_NODE).known.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_says_what_it_means(path: str) -> None:
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.name} has no help"


def test_every_exit_code_says_what_it_means() -> None:
    page = render_reference()
    for code in Exit:
        assert f"| {code.value} | {code.name} | {code.meaning} |" in page


def test_the_daemons_exit_codes_are_among_those_of_the_tool() -> None:
    assert {code.value for code in NodeExit} == {0, 1, Exit.WRONG_USAGE, Exit.REFUSED_TO_START, Exit.SUPERSEDED}
    assert len({code.value for code in Exit}) == len(Exit)
