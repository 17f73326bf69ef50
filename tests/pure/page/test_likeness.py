"""Names that are spelled alike, in a bounded time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.page import likeness
from holdfast.page.likeness import nearest

NAMES = ["orders", "orders.created", "orders-eu", "mail", "mail.out", "workers", "Zahlungen", "طلبات"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("ordrs", "orders"),
        ("oredrs", "orders"),
        ("order", "orders"),
        ("orders.creatd", "orders.created"),
        ("worker", "workers"),
        ("Zahlung", "Zahlungen"),
        ("طلبا", "طلبات"),
        ("mai", "mail"),
    ],
)
def test_a_misspelled_name_leads_to_the_one_that_was_meant(name: str, first: str) -> None:
    assert nearest(name, NAMES)[0] == first


def test_names_that_are_nothing_alike_are_left_out() -> None:
    assert nearest("zzz", NAMES) == ()
    assert nearest("", NAMES) == ()
    assert nearest("orders", []) == ()


def test_names_of_249_characters_that_differ_in_one_are_alike() -> None:
    name = "".join(f"{number}-" for number in range(100))[:248]
    assert nearest(f"{name}x", [f"{name}y", "q" * 249]) == (f"{name}y",)


@pytest.mark.parametrize("name", ["a" * 249, "ab" * 124, "a", "a" * 32_000])
def test_the_characters_of_the_names_that_are_looked_at_are_bounded(name: str) -> None:
    seen = list[str]()

    def names() -> Iterator[str]:
        while True:
            seen.append(name)
            yield name

    assert nearest(name, names()) == (name,) * likeness.NEAREST_MAX
    assert sum(min(len(each), 249) for each in seen) <= likeness._COMPARED_MAX
    assert len(seen) <= likeness._COMPARED_MAX / 10
