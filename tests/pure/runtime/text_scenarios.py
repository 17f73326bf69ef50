"""Scenarios as text: files of titles, each with blocks of commands, `----`, and everything that they caused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

MARK = "== "


class Runs(Protocol):
    """A world that commands move."""

    def run(self, line: str) -> list[str]:
        """Carry out one command and return what happened."""


def scenarios_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield (title, body) of each scenario of a file; the text before the first title is for readers."""
    for part in ("\n" + text).split("\n" + MARK)[1:]:
        title, _, body = part.partition("\n")
        yield title, body


def titles_in(files: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return each scenario of some files."""
    return [(path, title) for path in files for title, _ in scenarios_of(path.read_text())]


def play(body: str, world: Runs) -> str:
    """Return the body with every block's expectation replaced by what happened."""
    played = []
    for block in body.strip("\n").split("\n\n"):
        commands = block.split("\n----")[0]
        lines = [line for line in commands.split("\n") if line and not line.startswith("#")]
        happened = [event for line in lines for event in world.run(line)]
        played.append("\n".join([commands, "----", *happened]) if lines else commands)
    return "\n\n".join(played)


def check(path: Path, title: str, world: Runs, *, rewrite: bool) -> None:
    """Play a scenario and compare it with its file, or write its present results to the file."""
    body = dict(scenarios_of(path.read_text()))[title].strip("\n")
    played = play(body, world)
    if rewrite:
        path.write_text(path.read_text().replace(f"{MARK}{title}\n\n{body}\n", f"{MARK}{title}\n\n{played}\n"))
    else:
        assert played == body
