"""Before data goes: what goes is said, and somebody at a terminal agrees, or `--force` does."""

import sys
from collections.abc import Sequence

import click

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.output import say

force_option = click.option("--force", is_flag=True, help="Do it also where data goes, and ask nobody.")


def confirm(losses: Sequence[str], *, is_forced: bool) -> None:
    """Say what goes, and return if that is agreed to; where nothing goes, nobody is asked.

    Args:
        losses: what goes, a sentence each without its full stop.
        is_forced: it is agreed to.

    Raises:
        Failure: nobody agrees.
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
    """Tell whether somebody can be asked."""
    return sys.stdin.isatty()
