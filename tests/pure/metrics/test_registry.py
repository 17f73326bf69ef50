"""The registry of metrics: names, labels, totals, buckets."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.log_metrics import LogMetrics
from holdfast.metrics.instruments import BUCKETS_MS, Counter, Gauge, Histogram
from holdfast.metrics.registry import Registry, exported_name
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.share.metrics import ShareMetrics


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize(
    ("name", "sort", "exported"),
    [
        ("writes", Counter, ("holdfast_writes_total", 1)),
        ("throttle_time_ms", Counter, ("holdfast_throttle_time_seconds_total", 1_000)),
        ("state_bytes", Gauge, ("holdfast_state_bytes", 1)),
        ("broker_silence_ms", Gauge, ("holdfast_broker_silence_seconds", 1_000)),
        ("write_latency_ms", Histogram, ("holdfast_write_latency_seconds", 1_000)),
    ],
)
def test_readers_see_a_prefix_the_base_unit_and_what_a_total_is(
    name: str, sort: type, exported: tuple[str, int]
) -> None:
    assert exported_name(name, sort) == exported


def test_a_series_is_made_once_and_distinguished_by_its_labels(registry: Registry) -> None:
    registry.counter("reads", "Reads.", partition=1).value += 2
    registry.counter("reads", "Reads.", partition=1).value += 3
    registry.counter("reads", "Reads.", partition=2).value += 7
    assert dict(registry.numbers()) == {"holdfast_reads_total{partition=1}": 5, "holdfast_reads_total{partition=2}": 7}


def test_asking_for_a_series_as_another_sort_is_refused(registry: Registry) -> None:
    registry.gauge("write_ms", "Writes.")
    with pytest.raises(TypeError, match="write_ms is a Gauge already, not a Histogram"):
        registry.histogram("write_ms", "Writes.")


def test_a_histogram_is_of_times(registry: Registry) -> None:
    with pytest.raises(AssertionError, match="sizes names none"):
        registry.histogram("sizes", "Sizes.")


def test_removing_a_label_removes_its_series_alone(registry: Registry) -> None:
    registry.gauge("keys", "Keys.", partition=3)
    registry.gauge("keys", "Keys.", partition=30)
    registry.histogram("load_ms", "Loads.", partition=3, kind="fast")
    registry.counter("keys", "Keys.").value += 1
    registry.remove(partition=3)
    assert dict(registry.numbers()) == {"holdfast_keys{partition=30}": 0, "holdfast_keys_total": 1}
    assert [family.name for family in registry.families()] == ["holdfast_keys", "holdfast_keys_total"]


def test_what_has_a_source_is_read_at_each_reading(registry: Registry) -> None:
    queue: list[int] = []
    registry.gauge("queue", "Length.", lambda: len(queue))
    registry.counter("queued", "Lengths.", lambda: 10 * len(queue))
    registry.gauge("silence_ms", "Silence.", lambda: 250 * len(queue))
    assert set(dict(registry.numbers()).values()) == {0}
    queue.append(1)
    assert dict(registry.numbers()) == {
        "holdfast_queue": 1,
        "holdfast_queued_total": 10,
        "holdfast_silence_seconds": 0.25,
    }


def test_a_time_that_is_the_end_of_a_bucket_is_in_it(registry: Registry) -> None:
    histogram = registry.histogram("time_ms", "Time.")
    for value_ms in (-5, 0.025, 0.026, 1, 300_000, 300_001):
        histogram.record(value_ms)
    counts = dict(zip((*BUCKETS_MS, math.inf), histogram.counts, strict=True))
    assert {end: count for end, count in counts.items() if count} == {0.025: 2, 0.05: 1, 1: 1, 300_000: 1, math.inf: 1}
    assert histogram.count == 6
    assert histogram.sum_ms == pytest.approx(0.051 + 1 + 600_001)


@given(st.lists(st.sampled_from(BUCKETS_MS) | st.floats(0, 2 * BUCKETS_MS[-1]), max_size=50))
def test_each_time_is_in_its_bucket_whatever_came_before(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    ends = (0.0, *BUCKETS_MS, math.inf)
    between = [sum(above < value <= end for value in values) for above, end in pairwise(ends)]
    between[0] += values.count(0)
    assert histogram.counts == between


@given(st.lists(st.floats(0, 2 * BUCKETS_MS[-1]), min_size=1, max_size=50), st.sampled_from([0.01, 0.5, 0.99]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    ends = (0.0, *BUCKETS_MS)
    upper = min((end for end in ends[1:] if end >= true), default=ends[-1])
    lower = ends[-1] if true > ends[-1] else ends[ends.index(upper) - 1]
    assert lower <= histogram.quantile_ms(share) <= upper


def test_a_histogram_without_times_has_quantiles_of_0(registry: Registry) -> None:
    registry.histogram("time_ms", "Time.")
    assert set(dict(registry.numbers()).values()) == {0}


def test_reading_changes_nothing_and_fits_json(registry: Registry) -> None:
    RuntimeMetrics(registry).event_queue_time.record(3)
    share = ShareMetrics(registry)
    share.write_recorded(3)
    share.write_latency(1.5)
    share.watch_partition("state", 4, lambda: 7)
    LogMetrics(registry).watch_partition("state", 4, lambda: 120, lambda: (30, 90))
    found = json.loads(json.dumps(dict(registry.numbers())))
    assert found == dict(registry.numbers())
    assert found["holdfast_writes_total"] == 3
    assert found["holdfast_write_latency_seconds_count"] == 1
    assert found["holdfast_write_latency_seconds_sum"] == 0.0015
    assert found["holdfast_write_latency_seconds_p50"] == 0.00175, "the middle of 1 to 2.5 ms"
    assert found["holdfast_last_pruned_offset{partition=4,topic=state}"] == 120
    assert found["holdfast_share_partitions{partition=4,topic=state}"] == 7


def test_more_labels_stand_among_the_others(registry: Registry) -> None:
    registry.gauge("keys", "Keys.", partition=3)
    assert dict(registry.numbers(node=1)) == {"holdfast_keys{node=1,partition=3}": 0}


def test_every_family_has_a_description(registry: Registry) -> None:
    RuntimeMetrics(registry)
    assert all(family.description.endswith(".") for family in registry.families())


def test_what_a_source_gives_is_shown_as_it_is(registry: Registry) -> None:
    registry.gauge("offset", "An offset.", lambda: 2**53 + 1)
    registry.gauge("ratio", "A ratio.", lambda: 0.5)
    registry.counter("things", "Things.", lambda: 2**53 + 1)
    numbers = dict(registry.numbers())
    assert numbers == {"holdfast_offset": 2**53 + 1, "holdfast_ratio": 0.5, "holdfast_things_total": 2**53 + 1}
    assert [type(number) for number in numbers.values()] == [int, float, int]
