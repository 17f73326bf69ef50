"""The page `docs/cli.md`, written from the help texts; `python -m tools.cli_reference` prints it."""

import sys
from collections.abc import Iterator

import click

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.console.standard_output import RUN_UNSEEN

_HEAD = """\
# The command line tool

This page is written by `python -m tools.cli_reference` from the help of each command.

Data goes to standard output and everything else to standard error, so output can be piped as it is.
With `--json` it is JSON (`holdfast dump` prints one object a line).
`HOLDFAST_ADDRESS` names the node for all commands that query one.
Commands that read Kafka or the history themselves take brokers, topics and places from the variables of a node's settings,
as in `HOLDFAST_KAFKA_BOOTSTRAP_SERVERS`.
If the help of an option names two variables, the first that is set counts; the option overrides both.
Commands that query brokers name the brokers on standard error if these have not answered for two seconds.

A table fits the terminal it is printed on.
If there is little room, long cells go to a line of their own, and after that some columns are left out.
In a pipe or a file each row is one line with all of its columns; `--json` has more.
Characters of names that would act on a terminal are shown by their escapes, and `NO_COLOR` is honoured.

## Commands that change something

They read the state first and show how the change would alter it, before → after, as the node decides it; `--dry-run` ends there.
If data would be lost, they print which, and ask for consent at a terminal.
Without a terminal they then change nothing and end with 2, unless `--force` is given.
Afterwards they read the state again and print what happened; with `--json` it is `before`, `after`, `changed`, `dry_run` and `data_lost`.
A change that changes nothing is not made: the command prints `Nothing changed`, and ends with 0.
If the thing to change does not exist, the command ends with 6, also if the change is a deletion.
`holdfast state init` and `write` decide about records that the topic does not have yet only with `--beyond-the-end`.
If the end of the topic is not known, they need this option as well.

Another client may change the state between the look and the change.
`holdfast state write` sends the epochs that it saw, so a new leader or a new state epoch that came meanwhile refuses it.
Writes under the same epochs are combined with it.
`init` and `delete` cannot send an epoch that they saw: the state that they replace may be newer than the one shown.
Afterwards they print the new state, and say so if it differs from the one that they showed before.
The protocol refuses only epochs that are too low, as Apache Kafka does; the tool itself makes `write` refuse higher ones.

## Completion

The shell completes commands and options after one of these lines in its own start-up file:

```text
eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"   # ~/.bashrc
eval "$(_HOLDFAST_COMPLETE=zsh_source holdfast)"    # ~/.zshrc
_HOLDFAST_COMPLETE=fish_source holdfast | source    # ~/.config/fish/config.fish
```
"""


_ROOT = click.Context(main, info_name="holdfast", **main.context_settings)


def render_reference() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_exit_codes(), *_sections()])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group with its full name, as in `holdfast state read`."""
    for context in _contexts(_ROOT):
        yield context.command_path, context.command


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name, command in sorted(context.command.commands.items()):
            yield from _contexts(click.Context(command, info_name=name, parent=context))


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | name | meaning |"
    yield "|---|---|---|"
    for code in Exit:
        yield f"| {code.value} | {code.name} | {code.meaning} |"
    unseen = ", ".join(f"`{name}`" for name in RUN_UNSEEN[:-1])
    yield "\nA command ends with 6 if its subject does not exist: a topic, also the state topic, or the thing that an argument names."
    yield "An option that narrows a list, as `--group` does for `state list`, may leave nothing of it: the result is an empty list, and 0."
    yield f"\nIf standard output is closed, as by `>&-`, {unseen} and `{RUN_UNSEEN[-1]}` run all the same, and print nothing there."
    yield "Every other command then ends with 1 before it does anything, and so do `--help` and `--version`."
    yield "After the name of one of those that run, `--help` prints nothing and ends with 0.\n"


def _sections() -> Iterator[str]:
    for context in _contexts(_ROOT):
        formatter = context.make_formatter()
        formatter.width = 100
        context.command.format_help(context, formatter)
        depth = "##" if context.parent in (None, _ROOT) else "###"
        yield f"{depth} {context.command_path}\n"
        yield f"```text\n{formatter.getvalue().rstrip()}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
