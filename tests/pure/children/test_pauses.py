"""Pauses before what ended is started again."""

from holdfast.children.pauses import Pauses


def test_pauses_double_up_to_the_longest_and_begin_again_when_things_went_well() -> None:
    pauses = Pauses(100, 350)
    assert [pauses.take() for _ in range(4)] == [100, 200, 350, 350]
    pauses.reset()
    assert [pauses.take() for _ in range(2)] == [100, 200]
