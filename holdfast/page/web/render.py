"""HTML of views, by the templates: each text is escaped where it is written, and a name that a template lacks is an error."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.distribution import VERSION
from holdfast.page.source import GroupRow
from holdfast.page.web import formats, strip

_HERE: Final = Path(__file__).parent
#: The files that a browser asks for beside the pages, with their types.
STATIC_TYPES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}

#: Pieces of a page between two turns, each of some texts and values: a millisecond or two.
_PIECES_PER_TURN: Final = 300
#: Reasons for which lags are unknown that a page tells in sentences; others are with their numbers.
_REASONS_MAX: Final = 3
#: Lines of a sparkline from bottom to top.
SPARK_HEIGHT: Final = 16


class Renderer:
    """The templates, read once."""

    def __init__(self) -> None:
        self.static: Mapping[str, bytes] = {name: (_HERE / "static" / name).read_bytes() for name in STATIC_TYPES}
        self._environment = environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= {
            "number": formats.number,
            "rate": formats.rate,
            "span": formats.span,
            "at": formats.at,
            "machine_time": formats.machine_time,
        }
        environment.globals |= {
            "link": formats.link,
            "counted": formats.counted,
            "offsets": formats.offsets,
            "static": self._static_link,
            "spark": spark_bars,
            "spark_gaps": spark_gaps,
            "spark_words": spark_words,
            "why_unknown": why_unknown,
            "describe_range": strip.describe_range,
            "RETRIED": strip.RETRIED,
            "STRIP_WIDTH": strip.WIDTH,
            "STRIP_HEIGHT": strip.HEIGHT,
            "SPARK_HEIGHT": SPARK_HEIGHT,
            "VERSION": VERSION,
        }
        # Each is compiled now, which takes some milliseconds.
        for name in environment.list_templates():
            environment.get_template(name)

    async def render_in_turns(self, template: str, **values: Any) -> str:  # noqa: ANN401
        """Return a page, made in turns with what else the loop has to do."""
        pieces: list[str] = []
        for piece in self._environment.get_template(template).generate(**values):
            pieces.append(piece)
            if len(pieces) % _PIECES_PER_TURN == 0:
                await asyncio.sleep(0)
        return "".join(pieces)

    def version_of(self, name: str) -> str:
        """Return a text that changes with a static file."""
        return sha256(self.static[name]).hexdigest()[:12]

    def _static_link(self, name: str) -> str:
        return formats.link(f"static/{name}", v=self.version_of(name))


def why_unknown(counts: Iterable[Mapping[str, int]]) -> list[str]:
    """Return why lags are unknown, in a sentence for each of the reasons that most share partitions have."""
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return [
        f"The lag of {formats.counted(count, 'share partition')} is unknown: {why.rstrip('.')}."
        for why, count in total.most_common(_REASONS_MAX)
    ]


def spark_bars(row: GroupRow) -> list[tuple[int, float, float]]:
    """Return place, upper edge and height of a bar for each minute in which records were finished."""
    most = max((finished or 0 for finished in row.finished_by_minute), default=0)
    bars = []
    for place, finished in enumerate(row.finished_by_minute):
        if finished:
            height = round(max(1.5, SPARK_HEIGHT * finished / most), 1)
            bars.append((place, round(SPARK_HEIGHT - height, 1), height))
    return bars


def spark_gaps(row: GroupRow) -> list[tuple[int, int]]:
    """Return place and width of each run of minutes of which it is not known how many records were finished."""
    gaps, place = list[tuple[int, int]](), 0
    for is_known, minutes in groupby(row.finished_by_minute, lambda finished: finished is not None):
        width = sum(1 for _ in minutes)
        if not is_known:
            gaps.append((place, width))
        place += width
    return gaps


def spark_words(row: GroupRow) -> str:
    """Return what a sparkline shows, for those who do not see it."""
    known = [finished for finished in row.finished_by_minute if finished is not None]
    minutes = len(row.finished_by_minute)
    said = f"{formats.counted(sum(known), 'record')} finished in"
    if len(known) == minutes:
        return f"{said} the last {minutes} minutes"
    if not known:
        return f"it is not known how many records were finished in the last {minutes} minutes"
    return f"{said} {len(known)} of the last {minutes} minutes; the others are not known"
