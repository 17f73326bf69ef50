"""What tables say of a contender beside the first one."""

from benchmarks.node.ratios import ratio_interval, ratio_text


def test_what_slows_both_of_a_round_widens_no_interval() -> None:
    bases = [1.0, 9.0, 2.0, 7.0, 3.0]
    assert ratio_interval([2 * base for base in bases], bases) == (2.0, 2.0)


def test_an_interval_leaves_out_a_fortieth_on_either_side() -> None:
    """The least of five values is the median of 6 % of their resamples, the least of seven of 1 % and the second of 10 %."""
    assert ratio_interval([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5) == (1.0, 5.0)
    assert ratio_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0] * 7) == (2.0, 6.0)


def test_an_interval_narrows_with_the_rounds() -> None:
    few, many = (ratio_interval([1.0, 1.5, 2.0] * each, [1.0] * 3 * each) for each in (2, 40))
    assert few == (1.0, 2.0)
    assert many == (1.5, 1.5)


def test_a_ratio_has_an_interval_from_six_rounds_on() -> None:
    values, bases = [1.0, 2.0, 2.0, 2.0, 4.0, 4.0], [2.0] * 6
    assert ratio_text(values[:5], bases[:5]) == "1.00"
    assert ratio_text(values, bases) == "1.00, 0.75 to 2.00"


def test_the_first_contender_has_no_interval() -> None:
    bases = [1.0, 2.0, 4.0] * 2
    assert ratio_text(bases, bases) == "1.00"
