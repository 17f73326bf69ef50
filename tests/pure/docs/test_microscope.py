"""The first block of README.md, and the picture of it, are what `python -m tools.microscope` wrote.

That a real broker still gives just this is shown by `tests/installed/test_wheel.py`.
"""

from __future__ import annotations

from xml.etree import ElementTree

from tests.pure.docs.blocks import blocks_of, steps_of
from tests.pure.docs.pages import code_behind
from tools.microscope import BROKERS_SHOWN, COMMANDS, PICTURE, README, block_of, steps_on_the_page
from tools.recordings import Shown, drawn

FIRST_SCREEN_LINES = 40


def test_the_first_block_is_the_microscope_with_its_output() -> None:
    first = next(block for block in blocks_of(README) if block.language == "console")
    assert first.remarks == {"tested": "microscope"}
    code = code_behind(README.read_text(), "microscope")
    assert f"```console\n{code}```\n" == block_of(steps_on_the_page())
    assert [(step.command, bool(step.shown)) for step in steps_of(first.code)] == [(each, True) for each in COMMANDS]
    assert all(f"--bootstrap-server {BROKERS_SHOWN}" in command for command in COMMANDS)


def test_the_picture_shows_what_the_block_shows() -> None:
    """Play both again with `python -m tools.microscope`."""
    assert PICTURE.read_text() == drawn(steps_on_the_page())
    assert f"]({PICTURE.relative_to(README.parent)})" in README.read_text()


def test_a_picture_has_every_line_as_text_in_its_order() -> None:
    drawing = ElementTree.fromstring(drawn([Shown("a <b>", "1 & 2\n\n  3"), Shown("c", "d")]))
    texts = [(each.text, each.attrib["style"]) for each in drawing.iter() if each.tag.endswith("}text")]
    assert [text for text, _ in texts] == ["$ a <b>", "1 & 2", "  3", "$ c", "d"]
    delays_s = [float(style.removeprefix("animation-delay:").removesuffix("s")) for _, style in texts]
    assert delays_s == sorted(delays_s)
    assert delays_s[0] == 0


def test_first_screen_says_who_can_use_a_node() -> None:
    first_screen = "\n".join(README.read_text().splitlines()[:FIRST_SCREEN_LINES])
    assert "Stock share consumers, of Java and of Python, take records through it from any Kafka" in first_screen
    assert "No stock broker can use a Holdfast node" in first_screen
    assert "$ holdfast groups list --bootstrap-server" in first_screen
