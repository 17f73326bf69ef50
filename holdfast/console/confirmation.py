"""The part that all commands which change something share: options, consent before data is lost, and the result as JSON."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import click

from holdfast.console.options import address_option, dry_run_option, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_json, say

_force_option = click.option("--force", is_flag=True, help="Do it also where data is lost, without a prompt.")


class Manner(NamedTuple):
    """The options of a change: where, whether at all, and how it is reported."""

    address: str
    is_dry_run: bool
    is_forced: bool
    is_json: bool

    def report(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, lost: Sequence[str]) -> None:
        """Print the result as JSON, where that was requested."""
        if self.is_json:
            print_json(
                {
                    "before": before,
                    "after": after,
                    "changed": not self.is_dry_run and before != after,
                    "dry_run": self.is_dry_run,
                    "data_lost": list(lost),
                }
            )


def change_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a change; the command gets `manner` in their place."""

    @dry_run_option
    @_force_option
    @json_option
    @address_option
    @wraps(command)
    def with_manner(dry_run: bool, force: bool, as_json: bool, address: str, **arguments: Any) -> None:  # noqa: ANN401
        command(manner=Manner(address, dry_run, force, as_json), **arguments)

    return with_manner


def say_losses(losses: Sequence[str]) -> None:
    """Print what would be lost, after a dry run."""
    for loss in losses:
        say(f"Data would go, which wants --force or an answer at a terminal: {loss}.")


def confirm(losses: Sequence[str], *, is_forced: bool) -> None:
    """Print what is lost, and return if the user consents; where nothing is lost, there is no prompt.

    Args:
        losses: what goes, a sentence each without its full stop.
        is_forced: it is agreed to.

    Raises:
        Failure: the user does not consent, or is not at a terminal.
    """
    for loss in losses:
        say(f"Data goes: {loss}.")
    if not losses or is_forced:
        return
    if not is_terminal():
        raise Failure("Nothing was changed, because data would go; --force does it all the same.", Exit.WRONG_USAGE)
    if not click.confirm("Go on?", err=True):
        raise Failure("Nothing was changed.")


def is_terminal() -> bool:
    """Tell whether a user at a terminal can answer a prompt."""
    return sys.stdin.isatty()
