"""The processes that tests start: they find what those of an installed Holdfast find."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_WITHOUT = Path(__file__).with_name("without")


@pytest.fixture(scope="module", autouse=True)
def children_without_hypothesis() -> Iterator[None]:
    """Keep hypothesis out of them: kio imports it where it is, which takes a quarter of what a node needs to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(_WITHOUT), prepend=os.pathsep)
        yield
