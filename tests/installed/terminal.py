"""A terminal in which a test types as a user does: a shell whose commands see a screen, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.waiting import SPARK_PATIENCE_S, block_until

#: What a page is written for.
_LINES, _COLUMNS = 40, 100
#: How long a shell that ended may have something on its way to the screen, if something else holds on to that.
_LAST_WORDS_S: Final = 10.0
#: Of the line that says that a command ended.
_MARK_SIZE_MAX: Final = 80
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")


class Ended(NamedTuple):
    """A command that ended: its exit code, and what was on the screen between it and its end."""

    code: int
    said: str


class Terminal:
    """A shell of its own, which keeps what is exported from one command to the next."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            # Whoever starts the tests in the background of a shell has them ignore what Ctrl-C sends, and no shell can undo that.
            ["env", "--default-signal=INT", "bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**variables, "TERM": "xterm", "NO_COLOR": "1"},
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen = ours
        self._said = b""
        self._mark = ""
        self._begin = 0
        self._reader = threading.Thread(target=self._read, name="screen of a terminal", daemon=True)
        self._reader.start()

    def type(self, command: str) -> Ended:
        """Type a command and wait for its end."""
        self.begin(command)
        return self.wait(command)

    def begin(self, command: str) -> None:
        """Type a command that goes on."""
        assert not self.is_busy(), "the terminal is busy with another command"
        assert self._shell.stdin is not None
        self._mark, self._begin = uuid.uuid4().hex, len(self._said)
        self._shell.stdin.write(
            f"{{ {_with_its_exit_code(command)}\n}} </dev/null\nprintf '\\n{self._mark} %d\\n' \"$?\"\n".encode()
        )

    def wait(self, what: str) -> Ended:
        """Wait for the end of the command that was typed last.

        Raises:
            AssertionError: it did not end in time.
        """
        block_until(lambda: self._ended() or self._shell.poll() is not None, f"the end of {what}", SPARK_PATIENCE_S)
        if self._shell.poll() is not None:
            self._reader.join(_LAST_WORDS_S)
        ended = self._ended()
        assert ended is not None, f"the shell ended:\n{self.said()}"
        return ended

    def is_busy(self) -> bool:
        """Tell whether the command that was typed last goes on."""
        return bool(self._mark) and self._ended() is None

    def said(self) -> str:
        """Return what is on the screen since the last command was typed."""
        return _ESCAPES.sub("", self._said[self._begin :].decode(errors="replace")).replace("\r\n", "\n")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def close(self) -> None:
        """Close the window; what still runs in it is killed."""
        if self.is_busy() and self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGKILL)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()

    def _ended(self) -> Ended | None:
        if self._mark.encode() not in self._said[-_MARK_SIZE_MAX:]:
            return None
        said, _, code = self.said().rpartition(f"\n{self._mark} ")
        return Ended(int(code), said) if code.endswith("\n") else None

    def _read(self) -> None:
        """Take what comes until nobody has the other side open."""
        try:
            while True:
                self._said += os.read(self._screen, 65536)
        except OSError:
            os.close(self._screen)


def _with_its_exit_code(command: str) -> str:
    """Return a command that fails where one inside of an `export` fails; bash would not say so."""
    if not command.startswith("export "):
        return command
    return f"set -a\n{command.removeprefix('export ')}\ncode=$?; set +a; (exit $code)"
