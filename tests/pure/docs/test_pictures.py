"""The pictures of the page in README.md are small, have words for those who do not see them, and show what the block there shows."""

from __future__ import annotations

import re

import pytest

from tests.pure.docs.pages import ROOT, code_behind
from tests.world.pictures import shown_in, size_of, with_shown

README = (ROOT / "README.md").read_text()
PICTURES = dict(re.findall(r"!\[([^]]+)\]\(docs/pictures/(\w+)\.png\)", README))
BYTES_MAX = 100_000


def test_both_are_on_the_first_screen() -> None:
    assert list(PICTURES.values()) == ["strip", "timeline"]
    assert sorted(path.stem for path in (ROOT / "docs" / "pictures").iterdir()) == sorted(PICTURES.values())
    assert README.index("docs/pictures/timeline.png") < README.index("## Quick start")


@pytest.mark.parametrize(("words", "name"), PICTURES.items(), ids=PICTURES.values())
def test_a_picture_is_small_and_has_words(words: str, name: str) -> None:
    png = (ROOT / "docs" / "pictures" / f"{name}.png").read_bytes()
    assert len(png) < BYTES_MAX
    assert size_of(png).width == 1_000
    assert len(words) >= 60
    # `python -m tools.microscope` may find another record stuck; then `make pictures` is due as well.
    told = re.search(r"orders +0 +\d+ +(\d+) +\d+ +\d+ +\d+ +(\d+) \(1\)", code_behind(README, "microscope"))
    assert told is not None
    shown = " ".join(shown_in(png)["text"])
    assert told[1] in words
    assert told[1] in shown
    assert f"delivered {told[2]} times" in shown or f"{told[2]} deliveries" in shown


def test_the_words_in_a_picture_are_read_back() -> None:
    png = (ROOT / "docs" / "pictures" / "strip.png").read_bytes()
    shown = shown_in(png)
    assert [kind for kind, _ in shown["marks"]] != []
    again = with_shown(png[: png.index(b"tEXt") - 4] + png[-12:], shown)
    assert again == png
