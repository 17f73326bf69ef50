"""Keys and values as text: only what can be read is text, and JSON is printed as it is or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.page.source import Part
from holdfast.page.web.content import present


def whole(data: bytes) -> Part:
    return Part(data, len(data))


def test_json_has_a_line_for_each_value() -> None:
    shown = present(whole(b'{"a":[1,2.5,null],"\xc3\xa4":"<b>"}'))
    assert (shown.form, shown.cut) == ("JSON", "")
    assert shown.text.splitlines()[0] == "{"
    assert json.loads(shown.text) == {"a": [1, 2.5, None], "ä": "<b>"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1.10}',
        b'{"a": 1e400}',
        b"[NaN]",
        b"[" * 100_000,
        b"[1" + b"0" * 5_000 + b"]",
        b"{not json}",
    ],
)
def test_json_that_would_be_printed_as_something_else_is_text(data: bytes) -> None:
    shown = present(whole(data))
    assert (shown.form, shown.text) == ("text", data.decode())


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\x00b", b"\x1b[31mred", "\u009b31m".encode()])
def test_bytes_that_are_no_text_are_hexadecimal(data: bytes) -> None:
    shown = present(whole(data))
    assert shown.form == "hexadecimal"
    assert shown.text.startswith(f"000000  {data.hex(' ')}")


def test_deeply_nested_json_is_shown_as_it_is_and_does_not_grow() -> None:
    text = "[" * 300 + ",".join("1" * 5_000) + "]" * 300
    shown = present(whole(text.encode()))
    assert (shown.form, shown.text) == ("text", text)


def test_json_that_names_half_a_character_is_shown_as_it_is() -> None:
    shown = present(whole(b'["\\ud800"]'))
    assert (shown.form, shown.text) == ("text", '["\\ud800"]')


def test_a_cut_within_a_character_is_still_text() -> None:
    data = "grün".encode()
    shown = present(Part(data[:3], 900))
    assert (shown.form, shown.text, shown.cut) == ("text", "gr", "the first 3 of 900 bytes")


def test_hexadecimal_of_a_large_value_is_cut_and_says_so() -> None:
    shown = present(whole(b"\x00" * 65_536))
    assert shown.cut == "the first 16,384 of 65,536 bytes"
    assert len(shown.text) < 90_000


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_are_shown(data: bytes, more: int) -> None:
    shown = present(Part(data, len(data) + more))
    assert shown.size_bytes == len(data) + more
    assert shown.form in ("JSON", "text", "hexadecimal", "empty")
