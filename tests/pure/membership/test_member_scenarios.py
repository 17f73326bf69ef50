"""Scenarios of a member as text; `--rewrite` writes down what happens now, as in `tests/pure/runtime/test_scenarios.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.membership.world import World
from tests.pure.runtime.text_scenarios import check, titles_in

ALL = titles_in(sorted((Path(__file__).parent / "scenarios").glob("*.txt")))


@pytest.mark.parametrize(("path", "title"), ALL, ids=[f"{path.stem}: {title}" for path, title in ALL])
def test_scenario(path: Path, title: str, request: pytest.FixtureRequest) -> None:
    check(path, title, World(), rewrite=request.config.getoption("--rewrite", default=False))


def test_titles_are_unique() -> None:
    assert ALL
    assert len(set(ALL)) == len(ALL)
