"""Scenarios as text: commands, `----`, and everything that they caused.

`pytest tests/pure/runtime/test_scenarios.py --rewrite` writes down what happens now; the diff is what a reviewer reads.
"""

from pathlib import Path

import pytest

from tests.pure.runtime.text_scenarios import check, titles_in
from tests.pure.runtime.world import World

ALL = titles_in(sorted((Path(__file__).parent / "scenarios").glob("*.txt")))


@pytest.mark.parametrize(("path", "title"), ALL, ids=[f"{path.stem}: {title}" for path, title in ALL])
def test_scenario(path: Path, title: str, request: pytest.FixtureRequest) -> None:
    check(path, title, World(), rewrite=request.config.getoption("--rewrite", default=False))


def test_titles_are_unique() -> None:
    assert ALL
    assert len(set(ALL)) == len(ALL)
