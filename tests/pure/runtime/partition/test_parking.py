"""Parked answers are sent in order: after earlier writes, and at their read index."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.partition.parking import Parked, Parking
from tests.pure.runtime.counter import Add


def operation(name: str) -> Add:
    return Add(name, [], "add", lambda _operation, _outcome: None)


def released(parking: Parking, committed_sequence: int, position: int) -> str:
    return "".join(waiter.operation.name for waiter in parking.release(committed_sequence, position))


def test_waiter_leaves_when_index_and_sequence_are_reached() -> None:
    parking = Parking()
    parking.wait(operation("a"), "a", after_sequence=3, index_round=1)
    assert released(parking, 9, 9) == ""
    parking.set_read_index(1, 7)
    assert parking.answers == 1
    assert released(parking, 2, 7) == ""
    assert released(parking, 3, 6) == ""
    assert released(parking, 3, 7) == "a"
    assert len(parking) == parking.answers == 0


def test_read_index_serves_its_round_and_earlier_ones_only() -> None:
    parking = Parking()
    for name, index_round in [("a", 1), ("b", 2), ("c", 2), ("d", 3)]:
        parking.wait(operation(name), name, 0, index_round)
    parking.set_read_index(2, 5)
    assert released(parking, 0, 5) == "abc"
    parking.set_read_index(2, 9)
    assert released(parking, 0, 9) == ""
    parking.set_read_index(3, 9)
    assert released(parking, 0, 9) == "d"


def test_drain_gives_all_records_first_and_forgets() -> None:
    parking = Parking()
    parking.wait(operation("w"), None, 0, 1)
    parking.set_read_index(1, 5)
    parking.wait(operation("x"), None, 0, 2)
    for sequence, name in [(1, ""), (2, "p")]:
        parked = operation(name) if name else None
        parking.records.append(Parked(sequence, b"", b"", None, None, None, parked, None))
    assert len(parking) == 4
    assert "".join(waiting.name for waiting in parking.drain()) == "pwx"
    assert len(parking) == parking.answers == 0
    assert parking.drain() == []


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8), st.data())
def test_waiters_leave_in_order_each_once_and_never_early(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Rounds, sequences and offsets only grow, as the runtime lets them."""
    parking, index_round, sequence = Parking(), 1, 0
    needs: list[tuple[int, int]] = []  #: (after sequence, round) of each waiter
    for more_rounds, more_records in steps:
        index_round += more_rounds
        sequence += more_records
        parking.wait(operation(str(len(needs))), None, sequence, index_round)
        needs.append((sequence, index_round))
    indexes: dict[int, int] = {}
    committed = position = offset = 0
    left: list[int] = []
    for asked in range(1, index_round + 1):
        offset += data.draw(st.integers(0, 3))
        parking.set_read_index(asked, offset)
        indexes[asked] = offset
        committed += data.draw(st.integers(0, 3))
        position += data.draw(st.integers(0, 3))
        for waiter in parking.release(committed, position):
            number = int(waiter.operation.name)
            after_sequence, waited_round = needs[number]
            assert after_sequence <= committed
            assert waited_round <= asked
            assert indexes[waited_round] <= position
            left.append(number)
    parking.set_read_index(index_round, offset)
    left += [int(waiter.operation.name) for waiter in parking.release(sequence, offset)]
    assert left == list(range(len(needs)))
