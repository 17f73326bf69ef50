"""A wait looks until it finds, and says what it found last."""

from __future__ import annotations

import pytest

from tests import waiting
from tests.waiting import look_until


async def test_the_first_answer_that_will_do_is_returned() -> None:
    found = iter(range(10))

    async def look() -> int:
        return next(found)

    assert await look_until(look, lambda number: number > 2) == 3
    assert next(found) == 4


async def test_a_wait_that_fails_tells_its_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)

    async def look() -> str:
        return "nobody"

    with pytest.raises(AssertionError, match="a member did not come about in 0 s, but nobody"):
        await look_until(look, lambda found: found == "somebody", "a member")
