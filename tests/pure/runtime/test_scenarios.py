"""Scenarios as text: commands, `----`, and all that they made happen.

`pytest tests/pure/runtime/test_scenarios.py --rewrite` writes down what happens now; the diff is what a reviewer reads.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pure.runtime.world import World

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
MARK = "== "


def scenarios_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield (title, body) of each scenario of a file; what stands before the first title is for readers."""
    for part in ("\n" + text).split("\n" + MARK)[1:]:
        title, _, body = part.partition("\n")
        yield title, body


def play(body: str) -> str:
    """Return the body with every block's expectation replaced by what happened."""
    world, played = World(), []
    for block in body.strip("\n").split("\n\n"):
        commands = block.split("\n----")[0]
        lines = [line for line in commands.split("\n") if line and not line.startswith("#")]
        happened = [told for line in lines for told in world.run(line)]
        played.append("\n".join([commands, "----", *happened]) if lines else commands)
    return "\n\n".join(played)


ALL = [(path, title) for path in FILES for title, _ in scenarios_of(path.read_text())]


@pytest.mark.parametrize(("path", "title"), ALL, ids=[f"{path.stem}: {title}" for path, title in ALL])
def test_scenario(path: Path, title: str, request: pytest.FixtureRequest) -> None:
    body = dict(scenarios_of(path.read_text()))[title].strip("\n")
    played = play(body)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(path.read_text().replace(f"{MARK}{title}\n\n{body}\n", f"{MARK}{title}\n\n{played}\n"))
    else:
        assert played == body


def test_titles_are_unique() -> None:
    assert ALL
    assert len(set(ALL)) == len(ALL)
