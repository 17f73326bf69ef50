"""A share group drawn on the terminal again and again, until an interrupt ends it."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from io import StringIO
from signal import SIGINT, SIGTERM
from typing import Final

from holdfast.console.interrupts import one_interrupt
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_description import Look, screen_lines
from holdfast.console.show.output import emphasis

#: From the end of a look to the next one, at least; a look that took longer is followed by a pause as long, for it is work of the
#: brokers too.
_PAUSE_S: Final = 2.0


def check_screen() -> None:
    """Check that standard output is something that can be drawn on.

    Raises:
        Failure: it is a file, a pipe or a terminal without a cursor.
    """
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        raise Failure("--watch draws on a terminal, and standard output is none; leave it out.", Exit.WRONG_USAGE)


def watch(first: Look, look_again: Callable[[], Look]) -> Look:
    """Draw a group until Ctrl-C or SIGTERM, and return the last look at it.

    While a look fails, the numbers of the last one stay on the screen, with the reason.
    """
    # They take a tenth of a second to import, which no other command should wait for.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    last, trouble = first, ""

    def draw() -> Text:
        # Each time with the size that the terminal has by then.
        size = shutil.get_terminal_size()
        lines = screen_lines(last, trouble, size.columns, size.lines, emphasize=emphasis())
        return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")

    console = Console(highlight=False)
    with (
        suppress(KeyboardInterrupt),
        one_interrupt(SIGINT, SIGTERM),
        Live(get_renderable=draw, console=console, screen=True, redirect_stdout=False, redirect_stderr=False),
    ):
        took_s = 0.0
        while True:
            time.sleep(max(_PAUSE_S, took_s))
            began_s = time.monotonic()
            try:
                # A line that tells of waiting would be drawn over; that the numbers are old is on the screen.
                with redirect_stderr(StringIO()):
                    last = look_again()
                trouble = ""
            except Failure as failure:
                trouble = str(failure)
            took_s = time.monotonic() - began_s
    return last
