"""Answers that all readers of an address share."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from holdfast.page.web import shared
from holdfast.page.web.shared import SharedAnswers


class Maker:
    """Counts the answers that it makes, each in some turns of the loop."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.made = 0
        self._answer = answer

    async def __call__(self) -> bytes:
        self.made += 1
        answer = str(self.made).encode() if self._answer is None else self._answer
        await asyncio.sleep(0)
        return answer


async def test_an_answer_is_made_once_for_each_view_at_each_address() -> None:
    answers, make = SharedAnswers(), Maker()
    assert [await answers.get("/", (1, "a"), make) for _ in range(3)] == [b"1"] * 3
    assert await answers.get("/?after=2", (1, "a"), make) == b"2"
    assert await answers.get("/", (2, "a"), make) == b"3"
    assert await answers.get("/", (2, "a"), make) == b"3"
    assert await answers.get("/?after=2", (1, "a"), make) == b"2"


async def test_an_answer_is_made_once_for_those_who_ask_while_it_is_made() -> None:
    answers, make = SharedAnswers(), Maker()
    assert await asyncio.gather(*(answers.get("/", 1, make) for _ in range(20))) == [b"1"] * 20


async def test_as_many_answers_are_kept_as_pages_may_be_open() -> None:
    answers, make = SharedAnswers(), Maker()
    for number in range(10 * shared._KEPT_MAX):
        await answers.get("/", 1, make)
        await answers.get(f"/?after={number}", 1, make)
    assert len(answers._kept) == shared._KEPT_MAX
    # One that is asked for again and again stays.
    assert await answers.get("/", 1, make) == b"1"


async def test_answers_and_the_ranges_that_they_show_have_a_bound_in_bytes() -> None:
    answers, large = SharedAnswers(), Maker(b"x" * 100_000)
    view = SimpleNamespace(ranges=range(50_000))
    for number in range(30):
        await answers.get(f"/window?x={number}", view, large)
        await answers.get(f"/?after={number}", number, large)
    kept = list(answers._kept.values())
    assert 1 < sum(each.view is view for each in kept) < 10
    assert sum(each.size_bytes for each in kept) == answers._size_bytes <= shared._BYTES_MAX
    # One that is larger than the bound by itself takes the place of none.
    await answers.get("/large", 1, Maker(b"x" * (shared._BYTES_MAX + 1)))
    assert list(answers._kept.values()) == kept
