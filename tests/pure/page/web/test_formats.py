"""Numbers, times and links as the templates write them."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from holdfast.page.web.formats import at, link, number, rate, span


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (86_460_000, "1 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(duration_ms: int, text: str) -> None:
    assert span(duration_ms) == text


def test_a_number_that_is_not_known_is_none() -> None:
    assert (number(None), number(0), number(1_234_567)) == ("unknown", "0", "1,234,567")


def test_a_rate_has_a_decimal_below_ten() -> None:
    assert (rate(0), rate(0.25), rate(12_345.6)) == ("0.0", "0.2", "12,346")


@pytest.mark.parametrize("time_ms", [-1, 2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has_is_a_text_too(time_ms: int) -> None:
    assert at(time_ms)


@pytest.mark.parametrize("name", ["a b&c=d/e?#", "طلبات", "<script>", "\ud800", "%41"])
def test_a_link_brings_back_the_name(name: str) -> None:
    found = QueryParams(link("group", group=name, after=None).partition("?")[2])
    assert dict(found) == {"group": name.encode(errors="replace").decode()}
