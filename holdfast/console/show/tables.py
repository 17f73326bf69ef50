"""Rows laid out as lines of text: one for each where there is room, and on a narrow terminal in a form that is chosen.

If there is no room, columns of detail go to a line of their own below the others, and then those that can be missed are
left out; if even that does not fit, each row becomes a list of names and values. Words are never broken.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from rich.cells import cell_len

_GAP: Final = "  "
_INDENT: Final = "    "
_NOTHING: Final = "-"

#: Text with less room than this, in characters, is not wrapped: a column of single words is harder to read than a long line.
_WRAPPED_WIDTH_MIN: Final = 24


class Column(NamedTuple):
    """A column of a table."""

    title: str
    is_number: bool = False  #: aligned right
    width: int = 0  #: characters, at least
    is_detail: bool = False  #: goes below the others where there is no room beside them
    dropped_as: int = 0  #: where there is no room even so, it is left out as the first, the second, …; 0: never


def table_lines(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    width: int | None,
    *,
    rows_measured: int | None = None,
    emphasize: Callable[[str], str] = str,
) -> Iterator[str]:
    """Yield the lines of a table, the titles first.

    Args:
        columns: titles, and how each is shown.
        rows: a cell for each column; None is shown as a dash. They are taken one after the other.
        width: of the terminal, in characters; without one each row is a line of any length.
        rows_measured: number of rows from which the widths are taken, before a line comes out; without it, all.
        emphasize: makes a title stand out.
    """
    remaining = ([cell_text(value) for value in row] for row in rows)
    measured = list(islice(remaining, rows_measured))
    layout = _Layout(columns, measured, width)
    yield from map(emphasize, layout.titles())
    for row in chain(measured, remaining):
        yield from layout.lines(row, emphasize)


def facts_lines(
    facts: Mapping[str, object], width: int | None, *, emphasize: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield names and their values, one a line; the parts of a list or a tuple have lines of their own.

    Args:
        facts: values by name.
        width: as of a table.
        emphasize: makes a name stand out.
    """
    name_width = max(map(_length, facts), default=0)
    for name, value in facts.items():
        parts = value if isinstance(value, (list, tuple)) and value else (value,)
        for index, part in enumerate(parts):
            start = _padded("" if index else name, name_width) + _GAP
            first, *more = _wrapped(start, cell_text(part), width)
            yield emphasize(start) + first.removeprefix(start)
            yield from more


def cell_text(value: object) -> str:
    """Return a value as people read it; characters that cannot be printed are shown by their escapes."""
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escaped(str(rounded(value) if isinstance(value, float) else value))


def rounded(number: float) -> float:
    """Return a measured number without digits that mean nothing: to thousandths, or where it is below 1 to three digits."""
    if isinstance(number, int):
        return number
    found = round(number, 3) if abs(number) >= 1 else float(f"{number:.3g}")
    return int(found) if found.is_integer() else found


def escaped(text: str) -> str:
    """Return a text without characters that could move the cursor, change colours or the direction of writing."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class _Layout:
    """The columns that are shown, by their places in a row, and their widths."""

    def __init__(self, columns: Sequence[Column], measured: Sequence[Sequence[str]], width: int | None) -> None:
        self._columns = columns
        self._width = width
        self._widths = [
            max(column.width, _length(column.title), *(_length(row[place]) for row in measured))
            for place, column in enumerate(columns)
        ]
        everything = range(len(columns))
        self._beside: Sequence[int] = everything
        self._below: Sequence[int] = ()
        #: Names and values in the place of lines.
        self._is_list = False
        if self._fits():
            return
        self._below = [place for place in everything if columns[place].is_detail]
        self._beside = [place for place in everything if not columns[place].is_detail]
        for place in sorted(self._beside, key=lambda place: columns[place].dropped_as):
            if columns[place].dropped_as and not self._fits():
                self._beside = [each for each in self._beside if each != place]
        self._is_list = not self._fits()

    def titles(self) -> Iterator[str]:
        """Yield the lines above all rows."""
        if self._is_list:
            return
        titles = [column.title for column in self._columns]
        yield self._line(titles).rstrip()
        if self._below:
            yield _INDENT + _GAP.join(titles[place] for place in self._below)

    def lines(self, row: Sequence[str], emphasize: Callable[[str], str]) -> Iterator[str]:
        """Yield the lines of a row."""
        if self._is_list:
            facts = {column.title: cell for column, cell in zip(self._columns, row, strict=True)}
            yield from facts_lines(facts, self._width, emphasize=emphasize)
            yield ""
            return
        line = self._line(row)
        last = self._beside[-1]
        if self._width is None or _length(line) <= self._width or self._columns[last].is_number:
            yield line.rstrip()
        else:
            yield from _wrapped(line.removesuffix(row[last]), row[last], self._width)
        if details := [row[place] for place in self._below if row[place] != _NOTHING]:
            yield from _wrapped(_INDENT, _GAP.join(details), self._width)

    def _line(self, row: Sequence[str]) -> str:
        cells = [self._cell(row, place) for place in self._beside[:-1]]
        last = self._beside[-1]
        cells.append(self._cell(row, last) if self._columns[last].is_number else row[last])
        return _GAP.join(cells)

    def _cell(self, row: Sequence[str], place: int) -> str:
        return _padded(row[place], self._widths[place], is_number=self._columns[place].is_number)

    def _fits(self) -> bool:
        if self._width is None:
            return True
        return sum(self._widths[place] + len(_GAP) for place in self._beside) - len(_GAP) <= self._width


def _length(text: str) -> int:
    """Return how many places of a terminal's line a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def _padded(text: str, width: int, *, is_number: bool = False) -> str:
    padding = " " * (width - _length(text))
    return padding + text if is_number else text + padding


def _wrapped(start: str, text: str, width: int | None) -> list[str]:
    """Return the start and then the text, on more lines if a terminal needs them; they are broken at spaces alone."""
    indent = _length(start)
    if width is None or indent + _length(text) <= width or width - indent < _WRAPPED_WIDTH_MIN:
        return [start + text]
    first, *more = textwrap.wrap(text, width - indent, break_long_words=False, break_on_hyphens=False) or [""]
    return [start + first, *(" " * indent + line for line in more)]
