"""Answers that all readers of an address share."""

from __future__ import annotations

from holdfast.page.web import shared
from holdfast.page.web.shared import SharedAnswers


class Maker:
    """Counts the answers that it makes."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return str(self.made).encode()


def test_an_answer_is_made_once_for_each_view_at_each_address() -> None:
    answers, make = SharedAnswers(), Maker()
    assert [answers.get("/", (1, "a"), make) for _ in range(3)] == [b"1"] * 3
    assert answers.get("/?after=2", (1, "a"), make) == b"2"
    assert answers.get("/", (2, "a"), make) == b"3"
    assert answers.get("/", (2, "a"), make) == b"3"
    assert answers.get("/?after=2", (1, "a"), make) == b"2"


def test_as_many_answers_are_kept_as_pages_may_be_open() -> None:
    answers, make = SharedAnswers(), Maker()
    for number in range(10 * shared._KEPT_MAX):
        answers.get("/", 1, make)
        answers.get(f"/?after={number}", 1, make)
    assert len(answers._kept) == shared._KEPT_MAX
    # One that is asked for again and again stays.
    assert answers.get("/", 1, make) == b"1"
