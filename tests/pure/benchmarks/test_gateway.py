"""The figures of the suite at the gateway."""

from __future__ import annotations

import pytest

from benchmarks.client import BenchmarkError
from benchmarks.gateway.crew import Seen
from benchmarks.gateway.limits import LIMITS, limit_table
from benchmarks.gateway.loads import BY_CONSUMERS, COPIED, COPIED_MARKS, FIRST, GROWTH, LOADS, MARKS, TAIL
from benchmarks.gateway.picture import growth_picture
from benchmarks.gateway.report import mark_table, run_table
from benchmarks.gateway.suite import _rate


def seen(*polls: tuple[float, int]) -> Seen:
    return Seen(0.0, 0.5, polls, (), ())


def test_a_rate_is_that_of_the_time_in_which_all_consumers_have_records() -> None:
    rate = _rate([seen((1.0, 900), (2.0, 100), (3.0, 200)), seen((2.0, 50), (4.0, 300), (5.0, 1))])
    assert rate["records_per_s"] == pytest.approx(200 / 1.0)
    assert rate["consumers"] == 2
    assert rate["consumers_cpu_s"] == 1.0


def test_a_consumer_without_records_has_no_part_in_the_rate_and_is_shown() -> None:
    rate = _rate([seen((1.0, 900), (2.0, 100)), seen()])
    assert (rate["records_per_s"], rate["consumers"]) == (100.0, 1)


def test_consumers_that_never_had_records_together_are_no_measurement() -> None:
    with pytest.raises(BenchmarkError):
        _rate([seen((1.0, 900)), seen((2.0, 5))])


def test_each_mark_names_a_load() -> None:
    for marks, loads in ((MARKS, LOADS), (COPIED_MARKS, COPIED), ((), GROWTH)):
        assert {mark.load for mark in marks} <= {load.name for load in loads}
        assert len({load.name for load in loads}) == len(loads)


def test_ratios_are_those_of_medians_with_the_processor_time_beside_them() -> None:
    runs = [
        {"load": TAIL.name, "contender": who, "p50_ms": p50, "p99_ms": 8.0, "cpu_us": cpu, "node_us": 1.0, "errors": 0}
        for who, p50, cpu in (
            ("kafka", 1.0, 100.0),
            ("gateway", 1.2, 30.0),
            ("gateway", 1.3, 40.0),
            ("gateway", 90.0, 35.0),
        )
    ]
    p50, p99 = mark_table(runs).splitlines()[2:]
    assert "| ≤ 1.4 | 1.30 | yes | 1.30 (1.20–90.0) | 1.00 (1.00–1.00) | 0.35 |" in p50
    assert "| ≤ 1.0 | 1.00 | yes |" in p99
    assert len(run_table(runs).splitlines()) == 4


def test_a_first_record_has_no_processor_time() -> None:
    runs = [
        {"load": FIRST.name, "contender": who, "new_ms": ms, "known_ms": 10.0}
        for who, ms in (("kafka", 5e3), ("gateway", 900.0))
    ]
    new, known = mark_table(runs).splitlines()[2:]
    assert "| ≤ 0.1 | 0.18 | no | 900 (900–900) | 5,000 (5,000–5,000) |  |" in new
    assert "| 1.00 | no |" in known


def test_the_picture_has_a_point_for_each_rate_that_was_measured() -> None:
    runs = [
        {"load": BY_CONSUMERS[count].name, "contender": who, "records_per_s": rate * count}
        for who, rate in (("kafka", 1_000.0), ("gateway", 2_000.0))
        for count in (1, 16)
    ]
    picture = growth_picture(runs)
    assert picture.count("<circle") == 4
    # The highest point of the first chart is at its top, the lowest of ours a sixteenth of its height.
    assert 'points="60,304 400,60"' in picture


def test_a_limit_is_kept_by_its_median_and_one_without_a_run_is_left_out() -> None:
    load, column = LIMITS[0].load, LIMITS[0].column
    runs = [{"load": load, "contender": "gateway", column: ratio} for ratio in (1.1, 1.9, 7.0)]
    assert limit_table(runs).splitlines()[2:] == [f"| {LIMITS[0].text} | 2.0 | 1.90 (1.10–7.00) | yes |"]
