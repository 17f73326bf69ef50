"""The timeline against a model that copies the whole map at every position."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.runtime.timeline import TimelineMap
from tests.timelines import items_at, undoable_count

KEYS = st.sampled_from("abc")
VALUES = st.none() | st.integers(0, 3)


class TimelineAgainstCopies(RuleBasedStateMachine):
    """Puts at ascending positions, reverts and trims, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline: TimelineMap[str, int] = TimelineMap()
        self.copies: dict[int, dict[str, int]] = {0: {}}  #: position -> the map after it, for all that can be read
        self.written = 0
        self.trimmed = 0
        self.puts: list[tuple[int, str, int | None]] = []  #: above the trimmed position

    @rule(entries=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3), gap=st.integers(1, 2))
    def write(self, entries: list[tuple[str, int | None]], gap: int) -> None:
        """Change some keys by a record, the same key perhaps twice, after a position without changes."""
        before = dict(self.copies[self.written])
        for position in range(self.written + 1, self.written + gap):
            self.copies[position] = dict(before)
        self.written += gap
        for key, value in entries:
            self.timeline.put(self.written, key, value)
            self.puts.append((self.written, key, value))
            if value is None:
                before.pop(key, None)
            else:
                before[key] = value
        self.copies[self.written] = before

    @rule(share=st.floats(0, 1))
    def revert(self, share: float) -> None:
        position = self.trimmed + round((self.written - self.trimmed) * share)
        undone = self.timeline.revert(position)
        expected = [(key, value) for at, key, value in reversed(self.puts) if at > position]
        assert [(key, value) for key, value, _ in undone] == expected
        self.puts = [put for put in self.puts if put[0] <= position]
        self.copies = {at: copy for at, copy in self.copies.items() if at <= position}
        self.written = position

    @precondition(lambda self: self.written > self.trimmed)
    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        self.trimmed += round((self.written - self.trimmed) * share)
        self.timeline.trim(self.trimmed)
        self.puts = [put for put in self.puts if put[0] > self.trimmed]
        self.copies = {at: copy for at, copy in self.copies.items() if at >= self.trimmed}

    @invariant()
    def every_position_can_be_read(self) -> None:
        assert self.timeline.current == self.copies[self.written]
        for position, copy in self.copies.items():
            assert items_at(self.timeline, position) == copy
            assert {key: self.timeline.get_at(position, key) for key in "abc"} == {key: copy.get(key) for key in "abc"}

    @invariant()
    def no_change_is_kept_longer_than_needed(self) -> None:
        assert undoable_count(self.timeline) == len(self.puts)


TestTimeline = TimelineAgainstCopies.TestCase
TestTimeline.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=10))
def test_revert_then_redo_is_never_having_done_it(entries: list[tuple[str, int | None]]) -> None:
    once: TimelineMap[str, int] = TimelineMap()
    twice: TimelineMap[str, int] = TimelineMap()
    for position, (key, value) in enumerate(entries, 1):
        once.put(position, key, value)
        twice.put(position, key, value)
        twice.revert(position - 1)
        twice.put(position, key, value)
    assert twice.current == once.current
    assert twice.revert(0) == once.revert(0)
    assert twice.current == once.current == {}


def test_values_can_be_read_while_the_newest_ones_change() -> None:
    timeline: TimelineMap[str, int] = TimelineMap()
    timeline.put(1, "a", 1)
    timeline.put(1, "b", 2)
    timeline.put(2, "a", None)
    assert items_at(timeline, 1) == {"a": 1, "b": 2}
    assert timeline.current == {"b": 2}
