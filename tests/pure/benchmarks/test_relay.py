"""What `benchmarks.node.relay` shows."""

from dataclasses import replace

from benchmarks.node.relay import table
from tests.pure.benchmarks.test_compare import RUN


def test_a_row_has_medians_and_what_they_are_of_kafkas_and_all_errors() -> None:
    quick = replace(RUN, p50_ms=1.0, p99_ms=3.0, errors=2)
    assert table({"kafka": [RUN, RUN], "relay": [quick, replace(RUN, errors=1), quick]}) == [
        "| one connection | p50 µs | of Kafka's | p99 µs | of Kafka's | errors |",
        "| --- | --: | --: | --: | --: | --: |",
        "| kafka | 2000 | 1.00 | 4000 | 1.00 | 0 |",
        "| relay | 1000 | 0.50 | 3000 | 0.75 | 5 |",
    ]


def test_a_row_has_intervals_where_there_are_rounds_enough() -> None:
    quick = replace(RUN, p50_ms=1.0, p99_ms=3.0)
    assert table({"kafka": [RUN] * 6, "relay": [quick, RUN] * 3})[2:] == [
        "| kafka | 2000 | 1.00 | 4000 | 1.00 | 0 |",
        "| relay | 1500 | 0.75, 0.50 to 1.00 | 3500 | 0.88, 0.75 to 1.00 | 0 |",
    ]
