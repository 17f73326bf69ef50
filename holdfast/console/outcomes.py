"""How a command ends: its exit code, and the failures that have a sentence of their own."""

from collections.abc import Sequence
from enum import IntEnum
from typing import IO, Any, Self

import click

from holdfast.console.show.tables import escaped
from holdfast.kafka.errors import ConnectionFailed, LoginDenied


class Exit(IntEnum):
    """The exit codes of all commands; those of `holdfast serve` are among them."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Create a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "All went well; a daemon was asked to stop, and did so cleanly."
    FAILED = 1, "The node or the cluster refused, something did not end in time, or standard output takes nothing."
    WRONG_USAGE = 2, "An argument or a setting is wrong."
    REFUSED_TO_START = 3, "The state topic or the cluster is not fit to be used."
    SUPERSEDED = 4, "Another node took over what this daemon owned, or serves it and may not be replaced."
    UNREACHABLE = 5, "Nothing answers at the address."
    NOT_FOUND = (
        6,
        "There is no such topic, partition, share partition, group, setting, metric, user, access rule or file of those.",
    )
    DIFFERENT = 7, "The things that were compared differ."
    DENIED = 8, "The principal may not do this, see `holdfast acls`; or the login was refused."


class Failure(click.ClickException):
    """A known failure: one plain sentence that names the next step, and an exit code. No traceback.

    Args:
        message: the sentence.
        code: the exit code.
        more_lines: they follow the sentence: what else is wrong, or what a process logged that has to do with it.
    """

    def __init__(self, message: str, code: Exit = Exit.FAILED, more_lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.more_lines = more_lines
        self.exit_code = code  # type: ignore[misc] # click asks the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to standard error, and then the other lines."""
        for line in (f"Error: {self.message}", *self.more_lines):
            click.echo(escaped(line), err=True, file=file)


def exit_unanswered(failure: ConnectionFailed) -> Exit:
    """Return the code of a command that brokers did not answer: a login that they refuse is no silence."""
    return Exit.DENIED if isinstance(failure, LoginDenied) else Exit.UNREACHABLE


def wrong_settings(problems: Sequence[str]) -> Failure:
    """Return the failure of settings that are wrong, with a line for each of them."""
    return Failure(problems[0], Exit.WRONG_USAGE, problems[1:])
