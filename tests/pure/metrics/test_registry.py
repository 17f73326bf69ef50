"""The registry of metrics: windows, quantiles, labels."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.metrics.registry import HISTOGRAM_MAX_MS, WINDOW_MS, Registry
from holdfast.runtime.metrics import RuntimeMetrics


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    return Registry(clock)


def test_a_series_is_made_once_and_distinguished_by_its_labels(registry: Registry) -> None:
    registry.counter("reads-total", "Reads.", partition=1).value += 2
    registry.counter("reads-total", "Reads.", partition=1).value += 3
    registry.counter("reads-total", "Reads.", partition=2).value += 7
    assert registry.snapshot() == {"reads-total{partition=1}": 5, "reads-total{partition=2}": 7}


def test_asking_for_a_series_as_another_sort_is_refused(registry: Registry) -> None:
    registry.meter("write", "Writes.")
    with pytest.raises(TypeError, match="write is a Meter already, not a Counter"):
        registry.counter("write", "Writes.")


def test_removing_a_label_removes_its_series_alone(registry: Registry) -> None:
    registry.gauge("keys", "Keys.", partition=3)
    registry.gauge("keys", "Keys.", partition=30)
    registry.histogram("load", "Loads.", partition=3, kind="fast")
    registry.counter("keys-total", "Keys.").value += 1
    registry.remove(partition=3)
    assert registry.snapshot() == {"keys{partition=30}": 0, "keys-total": 1}


def test_a_gauge_with_a_source_reads_it_at_each_reading(registry: Registry) -> None:
    queue: list[int] = []
    registry.gauge("queue", "Length.", lambda: len(queue))
    assert registry.snapshot() == {"queue": 0}
    queue.append(1)
    assert registry.snapshot() == {"queue": 1}


def test_a_rate_covers_up_to_two_windows_and_the_total_stays(registry: Registry, clock: Clock) -> None:
    meter = registry.meter("write", "Writes.")
    meter.value += 60
    clock.now_ms += 100
    assert registry.snapshot() == {"write-rate": 2.0, "write-total": 60}, "a young window counts as a full one"
    clock.now_ms += WINDOW_MS - 100
    registry.roll()
    clock.now_ms += WINDOW_MS // 2
    assert registry.snapshot()["write-rate"] == pytest.approx(60 / 45)
    clock.now_ms += WINDOW_MS // 2
    registry.roll()
    assert registry.snapshot() == {"write-rate": 0.0, "write-total": 60}


def test_an_idle_ratio_is_the_time_not_spent_at_work(registry: Registry, clock: Clock) -> None:
    busy = registry.idle_ratio("thread-idle-ratio-avg", "Idle.")
    assert registry.snapshot() == {"thread-idle-ratio-avg": 1.0}
    clock.now_ms += WINDOW_MS
    busy.value += WINDOW_MS // 4
    assert registry.snapshot() == {"thread-idle-ratio-avg": 0.75}


def test_a_window_forgets_after_two_turns(registry: Registry, clock: Clock) -> None:
    latency = registry.window("write-latency", "Latency.")
    latency.record(10)
    latency.record(30)
    clock.now_ms += WINDOW_MS
    registry.roll()
    latency.record(80)
    assert registry.snapshot() == {"write-latency-avg": 40.0, "write-latency-max": 80}
    clock.now_ms += WINDOW_MS
    assert registry.snapshot() == {"write-latency-avg": 80.0, "write-latency-max": 80}
    clock.now_ms += 2 * WINDOW_MS
    assert registry.snapshot() == {"write-latency-avg": 0.0, "write-latency-max": 0.0}


def test_reading_twice_gives_the_same(registry: Registry) -> None:
    histogram = registry.histogram("time-ms", "Time.")
    histogram.record(3.5)
    assert registry.snapshot() == registry.snapshot()


@given(st.lists(st.floats(0, 2 * HISTOGRAM_MAX_MS, allow_subnormal=False), min_size=1, max_size=300))
def test_a_quantile_is_at_most_one_percent_off_the_true_one(values: list[float]) -> None:
    registry = Registry(lambda: 0)
    histogram = registry.histogram("time-ms", "Time.")
    for value in values:
        histogram.record(value)
    found = registry.snapshot()
    ranked = sorted(min(value, HISTOGRAM_MAX_MS) for value in values)
    assert found["time-ms-max"] == ranked[-1]
    assert found["time-ms-count"] == len(values)
    for suffix, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        true = ranked[math.ceil(share * len(ranked)) - 1]
        assert found[f"time-ms-{suffix}"] == pytest.approx(true, rel=0.01, abs=0.001)


def test_a_histogram_clamps_what_lies_outside(registry: Registry) -> None:
    histogram = registry.histogram("time-ms", "Time.")
    histogram.record(-5)
    assert registry.snapshot()["time-ms-p999"] == 0
    histogram.record(10 * HISTOGRAM_MAX_MS)
    assert registry.snapshot()["time-ms-max"] == HISTOGRAM_MAX_MS
    assert registry.snapshot()["time-ms-p999"] == pytest.approx(HISTOGRAM_MAX_MS, rel=0.01)


def test_the_names_are_those_of_kafka_and_fit_json(registry: Registry) -> None:
    RuntimeMetrics(registry)
    share = ShareMetrics(registry)
    share.write_recorded(3)
    share.write_latency(1.5)
    share.watch_partition("state", 4, lambda: 120, lambda: 7, lambda: (30, 90))
    found = json.loads(json.dumps(registry.snapshot()))
    timed = ("event-queue", "event-processing", "event-purgatory", "batch-linger", "batch-flush")
    kafka = {
        *(f"num-partitions{{state={state}}}" for state in ("loading", "active", "failed")),
        *(f"{name}-time-ms-{suffix}" for name in timed for suffix in ("max", "p50", "p95", "p99", "p999")),
        *("partition-load-time-max", "partition-load-time-avg", "thread-idle-ratio-avg"),
        *("batch-flush-rate", "write-rate", "write-total", "write-latency-avg", "write-latency-max"),
    }
    assert kafka <= found.keys()
    assert found["write-total"] == 3
    assert found["write-latency-max"] == 1.5
    assert found["last-pruned-offset{partition=4,topic=state}"] == 120


def test_every_sample_has_a_kind_and_a_description(registry: Registry) -> None:
    RuntimeMetrics(registry)
    for sample in registry.samples():
        assert (sample.kind == "counter") == sample.name.endswith(("-total", "-count"))
        assert sample.description.endswith(".")
