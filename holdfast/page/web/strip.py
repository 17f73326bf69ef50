"""The strip of offsets: a share partition as a picture with a bounded number of marks, in which a stuck record is seen.

The picture goes from the start offset to the end of the state, and has a place of its own for records that come after: a log with ten
million of them would leave no point for the window. If there are more offsets than columns, a column shows the record in it that
needs attention most, so that one stuck record among a million is as wide as any other mark.
Height and colour say the same, for eyes that tell no colours apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.page.source import StateRange, WindowView
from holdfast.page.web.formats import counted, number, offsets

#: Units of the picture from left to right, and from top to bottom.
WIDTH: Final = 1_000
HEIGHT: Final = 64
#: Marks that a strip has at most, those for the records after it included.
MARKS_MAX: Final = 241
#: Each is four units wide, a point and a half of a telephone.
_COLUMNS: Final = MARKS_MAX - 1
#: Ranges and gaps that are looked at in a step.
_RANGES_PER_STEP: Final = 1_000
#: Units at the right end for the records that come after, where there are any.
_AFTER_WIDTH: Final = 60
#: Delivery counts from here on look alike.
LEVEL_MAX: Final = 5
#: Marks that a pin points to at most.
_PINS_MAX: Final = 8
#: The lowest delivery count of a record that was tried again.
RETRIED: Final = 2

UNTOLD: Final = "untold"
AFTER: Final = "after"
#: A state in words.
STATE_WORDS: Final = {
    "available": "to be given out again",
    "acknowledged": "acknowledged",
    "archiving": "being given up",
    "archived": "given up",
    UNTOLD: "untold: never given out, or in flight for the first time",
}
#: How much attention finished and untold records need.
_RANKS: Final = {"acknowledged": 0, UNTOLD: 1}
#: Parts of the height, in hundredths; those of records to be given out grow with the delivery count.
_HEIGHTS: Final = {"acknowledged": 26, UNTOLD: 10, "archiving": 100, "archived": 100, AFTER: 10}
#: A state that a newer Kafka has, and this page does not know.
_HEIGHT_OF_OTHERS: Final = 100
_AVAILABLE_HEIGHTS: Final = (40, 40, 58, 72, 86, 100)


class Mark(NamedTuple):
    """A rectangle of the strip."""

    x: float
    width: float
    height: float  #: from the bottom
    state: str  #: as in `StateRange`, or `UNTOLD` or `AFTER`
    level: int  #: the delivery count, up to `LEVEL_MAX`
    first_offset: int
    last_offset: int  #: inclusive
    target: int | None  #: the offset that it leads to; None: there is nothing to be told of any
    text: str
    is_pinned: bool

    @property
    def y(self) -> float:
        """Return its upper edge."""
        return HEIGHT - self.height

    @property
    def middle(self) -> float:
        """Return its centre, from the left."""
        return round(self.x + self.width / 2, 2)


class Strip(NamedTuple):
    """The whole picture."""

    marks: tuple[Mark, ...]
    summary: str  #: one sentence for those who do not see it
    first_offset: int
    end_offset: int  #: after the last offset of the window


class _Column(NamedTuple):
    """The range that a column shows, and how many touch it."""

    shown: StateRange
    first_offset: int
    last_offset: int
    ranges: int


def draw_in_steps(view: WindowView) -> Generator[None, None, Strip | None]:
    """Return the strip of a share partition, in steps of a few milliseconds; None where it has no offsets to show."""
    start = view.start_offset if view.start_offset is not None else _first_of(view.ranges)
    if start is None:
        return None
    end = max(start, start if view.state_end_offset is None else view.state_end_offset)
    after = 0 if view.log_end is None else max(0, view.log_end - end)
    if end == start and not after:
        return Strip((), f"No record waits from offset {start} on.", start, end)
    columns = yield from _columns(with_gaps(view.ranges, start, end), start, end)
    width = 0 if end == start else WIDTH - (_AFTER_WIDTH if after else 0)
    highest = max((each.shown.delivery_count for each in columns if each.shown.state == "available"), default=0)
    marks, pins = [], 0
    for column in columns:
        state, count = column.shown.state, column.shown.delivery_count
        is_pinned = state == "available" and count == highest >= RETRIED and pins < _PINS_MAX
        pins += is_pinned
        level = min(count, LEVEL_MAX)
        part = _AVAILABLE_HEIGHTS[level] if state == "available" else _HEIGHTS.get(state, _HEIGHT_OF_OTHERS)
        x = (column.first_offset - start) / (end - start) * width
        marks.append(
            Mark(
                x=round(x, 2),
                width=round((column.last_offset + 1 - start) / (end - start) * width - x, 2),
                height=round(HEIGHT * part / 100, 1),
                state=state,
                level=level,
                first_offset=column.first_offset,
                last_offset=column.last_offset,
                target=column.shown.first_offset,
                text=_text(column),
                is_pinned=is_pinned,
            )
        )
    if after:
        text = f"offsets {offsets(end, end + after - 1)}: {counted(after, 'record')} after the window, up to the end of the log"
        height = HEIGHT * _HEIGHTS[AFTER] / 100
        marks.append(Mark(width, WIDTH - width, height, AFTER, 0, end, end + after - 1, None, text, False))
    return Strip(tuple(marks), _summary(view, start, end, highest), start, end)


def with_gaps(ranges: Sequence[StateRange], start: int, end: int) -> Iterator[StateRange]:
    """Yield ranges from the start offset on, and between them the offsets of which the state says nothing."""
    due = start
    for each in ranges:
        if each.last_offset < due:
            continue
        if each.first_offset > due:
            yield StateRange(due, each.first_offset - 1, UNTOLD, 0)
        yield each if each.first_offset >= due else each._replace(first_offset=due)
        due = each.last_offset + 1
    if due < end:
        yield StateRange(due, end - 1, UNTOLD, 0)


def describe_range(state: str, delivery_count: int) -> str:
    """Return what the state says of an offset, in words."""
    words = STATE_WORDS.get(state, f"in state {state}, which this page does not know")
    return words if state == UNTOLD else f"{words}, {counted(delivery_count, 'delivery', 'deliveries')}"


def urgency(each: StateRange) -> tuple[int, int]:
    """Return a key by which ranges that need attention more are larger."""
    if each.state == "available":
        return (4 if each.delivery_count >= RETRIED else 2, each.delivery_count)
    return _RANKS.get(each.state, 3), each.delivery_count


def _columns(ranges: Iterable[StateRange], start: int, end: int) -> Generator[None, None, list[_Column]]:
    """Return the columns from left to right; neighbours that would look alike and show one range are one."""
    if end - start <= _COLUMNS:
        return [_Column(each, each.first_offset, each.last_offset, 1) for each in ranges]
    firsts = [start + (end - start) * place // _COLUMNS for place in range(_COLUMNS)]
    shown: list[tuple[tuple[int, int], StateRange] | None] = [None] * _COLUMNS
    touching = [0] * _COLUMNS
    for count, each in enumerate(ranges, start=1):
        if count % _RANGES_PER_STEP == 0:
            yield
        low, high, needed = _place(firsts, each.first_offset), _place(firsts, each.last_offset), urgency(each)
        for place in range(low, high + 1):
            touching[place] += 1
            before = shown[place]
            if before is None or needed > before[0]:
                shown[place] = needed, each
    found: list[_Column] = []
    for place, winner in enumerate(shown):
        assert winner is not None
        last = (firsts[place + 1] if place + 1 < _COLUMNS else end) - 1
        column = _Column(winner[1], firsts[place], last, touching[place])
        if found and found[-1].shown is column.shown and found[-1].ranges == column.ranges == 1:
            found[-1] = found[-1]._replace(last_offset=last)
        else:
            found.append(column)
    return found


def _place(firsts: Sequence[int], offset: int) -> int:
    return bisect_right(firsts, offset) - 1


def _first_of(ranges: Sequence[StateRange]) -> int | None:
    return ranges[0].first_offset if ranges else None


def _text(column: _Column) -> str:
    shown, place = column.shown, offsets(column.first_offset, column.last_offset)
    noun = "offset" if column.first_offset == column.last_offset else "offsets"
    said = describe_range(shown.state, shown.delivery_count)
    if column.ranges == 1:
        return f"{noun} {place}: {said}"
    return f"{noun} {place}: {counted(column.ranges, 'range')}, of which {offsets(shown.first_offset, shown.last_offset)}: {said}"


def _summary(view: WindowView, start: int, end: int, highest: int) -> str:
    if end == start:
        return (
            f"The state says nothing of any record from offset {start} on; the log goes on to {number(view.log_end)}."
        )
    said = f"Offsets {start} to {end - 1} in {counted(len(view.ranges), 'range')}"
    if highest >= RETRIED:
        return f"{said}; a record that is not finished was delivered {highest} times."
    return f"{said}; no record was tried again."
