"""A terminal in which commands are typed and answered, drawn as an SVG picture that plays by itself, without scripts and fonts."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

_CHARACTER_PX: Final = 8.4  # of a monospaced font of 14 px
_LINE_PX: Final = 20
_MARGIN_PX: Final = 18
_TITLE_PX: Final = 30
#: A command is read, and then its answer comes.
_SECONDS_PER_COMMAND: Final = 1.2
_SECONDS_PER_ANSWER: Final = 2.4


class Shown(NamedTuple):
    """A command, and what it printed."""

    command: str
    output: str


def drawn(steps: Sequence[Shown]) -> str:
    """Return the picture; where nothing moves, all of it is seen at once."""
    rows = list(_rows(steps))
    width = max(len(text) for _, _, text in rows) * _CHARACTER_PX + 2 * _MARGIN_PX
    height = _TITLE_PX + len(rows) * _LINE_PX + _MARGIN_PX
    lines = [
        f'<text class="{kind}" style="animation-delay:{at_s:.1f}s" x="{_MARGIN_PX}" y="{_TITLE_PX + number * _LINE_PX}" '
        f'xml:space="preserve">{escape(text)}</text>'
        for number, (kind, at_s, text) in enumerate(rows, 1)
        if text
    ]
    said = " ".join(step.command for step in steps)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">',
            f"<title>{escape(said)}</title>",
            "<style>",
            "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee6}",
            ".command{fill:#7fd1b9;font-weight:bold}",
            "@media (prefers-reduced-motion:no-preference){text{animation:come .2s both}}",
            "@keyframes come{from{opacity:0}to{opacity:1}}",
            "</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#161b22"/>',
            *(
                f'<circle cx="{_MARGIN_PX + number * 16}" cy="16" r="5" fill="{color}"/>'
                for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
            ),
            *lines,
            "</svg>",
            "",
        )
    )


def _rows(steps: Sequence[Shown]) -> Iterator[tuple[str, float, str]]:
    """Yield kind, time and text of each row."""
    at_s = 0.0
    for number, step in enumerate(steps):
        if number:
            yield "answer", at_s, ""
        yield "command", at_s, f"$ {step.command}"
        at_s += _SECONDS_PER_COMMAND
        yield from (("answer", at_s, line) for line in step.output.splitlines())
        at_s += _SECONDS_PER_ANSWER
