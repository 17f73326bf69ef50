"""Standard output that does not take what a command prints: it is closed, or full, or its encoding lacks a character."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, Final

import click
from click.exceptions import Exit

#: Commands that are there to run something, until a signal or its end; what they print beside needs no reader.
RUN_UNSEEN: Final = ("serve", "dev", "compact")
_STDOUT: Final = 1


class CommandLine(click.Group):
    """All commands, each of which ends with one sentence where standard output cannot be written."""

    def main(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401
        """Run a command and end the process with its exit code."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*args, **extra)
        except SystemExit as ended:
            # Help and version are printed, and all is over, before a command could look at where it prints.
            if sys.stdout is None and not ended.code:
                refusal = nobody_reads()
                refusal.show()
                sys.exit(refusal.exit_code)
            raise
        except OSError as error:
            if not _is_of_printing(error):
                raise
            _leave()
            failure = click.ClickException(f"Standard output cannot be written ({error.strerror}); see where it goes.")
            failure.show()
            sys.exit(failure.exit_code)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        """Read the command line, which may print a help; a reader that leaves early is no failure."""
        with _reader_may_leave():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; a reader that leaves early is no failure."""
        with _reader_may_leave():
            return super().invoke(ctx)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End with success where the reader of standard output, such as `head`, has all that it needs.

    Messages on standard error precede a change, so a command that cannot print those has failed.

    Raises:
        Exit: the reader has left.
    """
    try:
        yield
    except BrokenPipeError as error:
        if not _is_of_data(error):
            raise
        _leave()
        raise Exit from None


def nobody_reads() -> click.ClickException:
    """Return how a command ends that has nowhere to print to."""
    return click.ClickException("Standard output is closed; name a file or a pipe, or /dev/null.")


def print_to_nobody() -> None:
    """Open a standard output that is closed, for this process and its children, and give what is printed to nobody.

    Else the next file or connection would have its number, and get what a child such as Java prints.
    """
    # The system takes the lowest free number: first that of standard input, if the caller closed it as well.
    while (nobody := os.open(os.devnull, os.O_RDWR)) < _STDOUT:
        os.set_inheritable(nobody, True)
    os.set_inheritable(nobody, nobody == _STDOUT)
    sys.stdout = os.fdopen(nobody, "w")


def _is_of_data(error: OSError) -> bool:
    """Tell whether an error comes from printing to standard output."""
    *_, (innermost, _) = walk_tb(error.__traceback__)
    return innermost.f_code is click.echo.__code__ and not innermost.f_locals.get("err")


def _is_of_printing(error: OSError) -> bool:
    """Tell whether an error comes from printing, which all commands and helps do by `click.echo`, and from nothing else."""
    *_, (innermost, _) = walk_tb(error.__traceback__)
    return innermost.f_code is click.echo.__code__


def _leave() -> None:
    """Give what is left to nobody; else the interpreter tries it again at its end, and prints a traceback."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nobody, sys.stdout.fileno())
    os.close(nobody)
