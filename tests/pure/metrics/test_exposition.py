"""What Prometheus reads of the registry, read by Prometheus' own parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.metrics.exposition import expose
from holdfast.metrics.instruments import BUCKETS_MS
from holdfast.metrics.registry import Registry

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
Parse = Callable[[str], Iterable[Metric]]
Labels = frozenset[tuple[str, str]]


@pytest.fixture(params=["", OPENMETRICS], ids=["text", "openmetrics"])
def accept(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(registry: Registry, accept: str) -> str:
    return b"".join(expose(registry, accept).pieces).decode()


def parse(registry: Registry, accept: str) -> dict[str, Metric]:
    read: Parse = parse_openmetrics if accept else parse_text
    return {metric.name: metric for metric in read(text_of(registry, accept))}


def samples(metric: Metric) -> dict[tuple[str, Labels], float]:
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in metric.samples}


def test_each_kind_is_read_back_as_what_it_is(accept: str) -> None:
    registry = Registry()
    registry.counter("writes", "Writes.", topic="orders").value = 5
    registry.counter("throttle_time_ms", "Time.").value = 2_500
    registry.gauge("state_bytes", "Bytes.").value = 7
    histogram = registry.histogram("write_latency_ms", "Latency.")
    for value_ms in (0.01, 3, 3, 400_000):
        histogram.record(value_ms)
    found = parse(registry, accept)
    assert {name: (metric.type, metric.documentation) for name, metric in found.items()} == {
        "holdfast_writes": ("counter", "Writes."),
        "holdfast_throttle_time_seconds": ("counter", "Time."),
        "holdfast_state_bytes": ("gauge", "Bytes."),
        "holdfast_write_latency_seconds": ("histogram", "Latency."),
    }
    assert samples(found["holdfast_writes"]) == {("holdfast_writes_total", frozenset({("topic", "orders")})): 5}
    assert samples(found["holdfast_throttle_time_seconds"]) == {
        ("holdfast_throttle_time_seconds_total", frozenset()): 2.5
    }
    assert samples(found["holdfast_state_bytes"]) == {("holdfast_state_bytes", frozenset()): 7}
    latency = samples(found["holdfast_write_latency_seconds"])
    assert latency["holdfast_write_latency_seconds_count", frozenset()] == 4
    assert latency["holdfast_write_latency_seconds_sum", frozenset()] == pytest.approx(400.00601)
    ends = [*(upper_ms / 1_000 for upper_ms in BUCKETS_MS), float("inf")]
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in found["holdfast_write_latency_seconds"].samples
        if sample.name.endswith("_bucket")
    ]
    assert buckets == [(end, 1 if end < 0.005 else 3 if end <= 300 else 4) for end in ends], "they are cumulative"


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "# HELP x", "ä→", ""])
def test_a_label_may_hold_any_text(accept: str, value: str) -> None:
    registry = Registry()
    registry.gauge("lag", 'Lag, as of "a\\b".', group=value).value = 1
    (found,) = parse(registry, accept).values()
    assert [sample.labels for sample in found.samples] == [{"group": value}]
    assert found.documentation == 'Lag, as of "a\\b".'


def test_a_large_family_is_written_in_pieces_with_one_head(accept: str) -> None:
    registry = Registry()
    for partition in range(200):
        registry.gauge("keys", "Keys.", partition=partition).value = partition
        registry.histogram("load_ms", "Loads.", partition=partition).record(partition)
    pieces = list(expose(registry, accept).pieces)
    assert max(piece.count(b"\n") for piece in pieces) <= 32
    assert b"".join(pieces).count(b"# TYPE") == 2
    found = parse(registry, accept)
    assert len(found["holdfast_keys"].samples) == 200
    assert len(found["holdfast_load_seconds"].samples) == 200 * (len(BUCKETS_MS) + 3)


def test_pieces_are_small_and_of_very_many_series_not_many_more_than_a_thousand(accept: str) -> None:
    registry = Registry()
    for number in range(1_000):
        registry.gauge("few", "Few.", number=number)
    assert max(piece.count(b"\n") for piece in expose(registry, accept).pieces) <= 8
    for number in range(49_000):
        registry.gauge("many", "Many.", number=number)
    assert len(list(expose(registry, accept).pieces)) <= 1_010


def test_openmetrics_ends_with_its_end_and_text_has_none() -> None:
    registry = Registry()
    for name in ("a", "b"):
        registry.gauge(name, "Some.")
    assert text_of(registry, OPENMETRICS).count("# EOF") == 1
    assert text_of(registry, OPENMETRICS).endswith("# EOF\n")
    assert "EOF" not in text_of(registry, "")
    assert (text_of(Registry(), OPENMETRICS), text_of(Registry(), "")) == ("# EOF\n", "")


def test_the_format_is_the_one_that_the_reader_wants() -> None:
    assert expose(Registry(), OPENMETRICS).content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert expose(Registry(), "text/html, */*").content_type.startswith("text/plain; version=")


def test_a_log_partition_that_goes_while_it_is_written_is_left_out(accept: str) -> None:
    registry = Registry()
    for partition in range(100):
        registry.gauge("keys", "Keys.", partition=partition)
    pieces = expose(registry, accept).pieces
    first = next(pieces) + next(pieces)
    registry.remove(partition=99)
    assert b'partition="0"' in first
    assert b'partition="99"' not in b"".join(pieces)
    registry.gauge("other", "Other.", partition=5)
    pieces = expose(registry, accept).pieces
    next(pieces)
    registry.remove(partition=5)
    assert b"holdfast_other" not in b"".join(pieces)
