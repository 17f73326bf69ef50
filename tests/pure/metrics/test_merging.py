"""Texts of several processes as one, read by Prometheus' own parsers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.metrics.exposition import expose
from holdfast.metrics.merging import merge_texts
from holdfast.metrics.registry import Registry

OPENMETRICS = "application/openmetrics-text"


def text_of(registry: Registry, accept: str) -> str:
    return b"".join(expose(registry, accept).pieces).decode()


def merged(accept: str, *sources: tuple[Mapping[str, object], Registry]) -> dict[str, Metric]:
    text = merge_texts([(labels, text_of(registry, accept)) for labels, registry in sources])
    families = list((parse_openmetrics if accept else parse_text)(text))
    assert len({family.name for family in families}) == len(families), "each family comes once"
    return {family.name: family for family in families}


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_samples_of_each_process_have_its_labels_and_each_family_comes_once(accept: str) -> None:
    one, two, own = Registry(), Registry(), Registry()
    for number, registry in enumerate((one, two), 1):
        registry.counter("writes", "Writes.").value = number
        registry.gauge("lag", "Lag.", group='a} {b="c" \n,\\').value = 7 * number
        registry.histogram("load_ms", "Loads.").record(3)
    two.gauge("only_here", "Of one alone.").value = 5
    own.gauge("silent", "Silent.").value = 0
    found = merged(accept, ({"node": 1}, one), ({"node": 2}, two), ({}, own))
    writes = found["holdfast_writes"]
    assert (writes.type, writes.documentation) == ("counter", "Writes.")
    assert [(each.labels, each.value) for each in writes.samples if each.name.endswith("_total")] == [
        ({"node": "1"}, 1),
        ({"node": "2"}, 2),
    ]
    lag = {each.labels["node"]: (each.labels["group"], each.value) for each in found["holdfast_lag"].samples}
    assert lag == {"1": ('a} {b="c" \n,\\', 7), "2": ('a} {b="c" \n,\\', 14)}
    loads = found["holdfast_load_seconds"]
    assert loads.type == "histogram"
    assert [each.labels["node"] for each in loads.samples if each.name.endswith("_count")] == ["1", "2"]
    assert [each.labels for each in found["holdfast_only_here"].samples] == [{"node": "2"}]
    assert [each.labels for each in found["holdfast_silent"].samples] == [{}]


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_without_any_process_there_is_nothing(accept: str) -> None:
    assert merged(accept, ({}, Registry())) == {}
    assert merge_texts([]) == ""
