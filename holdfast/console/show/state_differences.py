"""The effect of a change on the state of a share partition: before → after for people and for JSON, and its losses; pure."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from holdfast.console.show.output import batch_data
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, STATE_NAMES, StateBatch
from holdfast.records.share.replay import ShareState

#: Fields of a state in the calls, other than its batches.
_FIELDS: Final = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
#: Field to the meaning of -1 in it.
_NONE: Final = {"start_offset": "not decided", "delivery_complete_count": "unknown"}

_FINISHED: Final = frozenset((ACKNOWLEDGED, ARCHIVED))
#: Ranges of offsets that are shown to people; JSON has them all.
_RANGES_SHOWN_MAX: Final = 20

#: First and last offset, both included.
Range = tuple[int, int]


class RangeChange(NamedTuple):
    """Offsets whose delivery state or count changes, all of them alike."""

    first_offset: int
    last_offset: int
    before: str
    after: str


def state_of(given: dict[str, Any] | None) -> ShareState | None:
    """Return the state that a node gave as JSON, None where there is none."""
    if given is None:
        return None
    batches = tuple(StateBatch(*batch) for batch in given["state_batches"])
    return ShareState(**given | {"state_batches": batches})


def state_data(state: ShareState | None) -> dict[str, Any] | None:
    """Return the fields of a state that the calls have, for JSON."""
    if state is None:
        return None
    fields: dict[str, Any] = {name: getattr(state, name) for name in _FIELDS}
    return fields | {"state_batches": [batch_data(batch) for batch in state.state_batches]}


def is_same(before: ShareState | None, after: ShareState | None) -> bool:
    """Tell whether two states are the same in the calls; what only the log has, such as times, may differ."""
    return state_data(before) == state_data(after)


def describe(before: ShareState | None, after: ShareState | None) -> list[str]:
    """Return what differs, a line for each field and each range of offsets: `name: before → after`."""
    lines = []
    for name in _FIELDS:
        was, becomes = _field_text(before, name), _field_text(after, name)
        if was != becomes:
            lines.append(f"{name.replace('_', ' ')}: {was} → {becomes}")
    changes = list(range_changes(before, after))
    lines += [
        f"{_range_text((change.first_offset, change.last_offset))}: {change.before} → {change.after}"
        for change in changes[:_RANGES_SHOWN_MAX]
    ]
    if len(changes) > _RANGES_SHOWN_MAX:
        lines.append(f"… and {len(changes) - _RANGES_SHOWN_MAX} more ranges of offsets, which --json shows")
    return lines


def range_changes(before: ShareState | None, after: ShareState | None) -> Iterator[RangeChange]:
    """Yield the offsets whose delivery state or count differs, ascending, neighbours that change alike as one."""
    was, becomes = (() if state is None else state.state_batches for state in (before, after))
    start = -1 if after is None else after.start_offset
    last: RangeChange | None = None
    for (first, end), old, new in _overlay(was, becomes, start):
        change = RangeChange(first, end, _batch_text(old), "below the start" if first < start else _batch_text(new))
        if change.before == change.after:
            continue
        if last is not None and last[1:] == (first - 1, *change[2:]):
            last = last._replace(last_offset=end)
            continue
        if last is not None:
            yield last
        last = change
    if last is not None:
        yield last


def losses(before: ShareState | None, after: ShareState | None, topic: Range | None = None) -> list[str]:
    """Return what is lost by a change, a sentence each without its full stop.

    Args:
        before: the state as it is.
        after: the state as it would be.
        topic: first offset of the topic's partition and its end, where they are known: no other offsets can be passed over.
    """
    if before is None:
        return []
    found = []
    start = -1 if after is None else after.start_offset
    kept = () if after is None else after.state_batches
    forgotten = [
        each for each, old, new in _overlay(before.state_batches, kept, start) if old and not new and each[0] >= start
    ]
    if forgotten:
        found.append(f"what became of {_ranges_text(forgotten)} is forgotten")
    if before.start_offset == -1:
        return found
    if start == -1:
        found.append(
            f"the start offset {before.start_offset} is forgotten, and where the group goes on is decided again"
        )
    elif start < before.start_offset:
        found.append(
            f"the start offset goes back, so the group gets {_ranges_text([(start, before.start_offset - 1)])} again"
        )
    elif passed := _unfinished(before, start, topic):
        found.append(
            f"the start offset passes over {_ranges_text(passed)}, which are not finished and will not be delivered any more"
        )
    return found


def _unfinished(before: ShareState, start: int, topic: Range | None) -> list[Range]:
    """Return the offsets from the old start offset to a new one that are not finished."""
    offset, end = before.start_offset, start
    if topic is not None:
        offset, end = max(offset, topic[0]), min(end, topic[1])
    found = []
    for first, last, delivery_state, _ in before.state_batches:
        if delivery_state not in _FINISHED or last < offset:
            continue
        if offset < min(first, end):
            found.append((offset, min(first, end) - 1))
        offset = max(offset, last + 1)
    if offset < end:
        found.append((offset, end - 1))
    return found


def _overlay(
    before: Sequence[StateBatch], after: Sequence[StateBatch], start: int
) -> Iterator[tuple[Range, StateBatch | None, StateBatch | None]]:
    """Yield ranges that no batch begins or ends within and that `start` does not divide, with the batch of each list that covers it."""
    edges = sorted({start, *chain.from_iterable((batch[0], batch[1] + 1) for batch in (*before, *after))})
    olds, news = iter(before), iter(after)
    old, new = next(olds, None), next(news, None)
    for first, behind in pairwise(edges):
        while old is not None and old[1] < first:
            old = next(olds, None)
        while new is not None and new[1] < first:
            new = next(news, None)
        covering = [batch if batch is not None and batch[0] <= first else None for batch in (old, new)]
        if any(covering):
            yield (first, behind - 1), covering[0], covering[1]


def _field_text(state: ShareState | None, name: str) -> str:
    if state is None:
        return "none"
    value = getattr(state, name)
    return f"{value} ({_NONE[name]})" if value == -1 and name in _NONE else str(value)


def _batch_text(batch: StateBatch | None) -> str:
    if batch is None:
        return "none"
    _, _, delivery_state, delivery_count = batch
    return f"{STATE_NAMES.get(delivery_state, delivery_state)}:{delivery_count}"


def _range_text(offsets: Range) -> str:
    first, last = offsets
    return f"offset {first}" if first == last else f"offsets {first}-{last}"


def _ranges_text(ranges: Sequence[Range]) -> str:
    joined: list[Range] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first - 1:
            first = joined.pop()[0]
        joined.append((first, last))
    if len(joined) == 1:
        return _range_text(joined[0])
    count = sum(last - first + 1 for first, last in joined)
    return f"{count} offsets ({joined[0][0]} to {joined[-1][1]})"
