"""Sentences for readers who may not DESCRIBE the cluster."""

from __future__ import annotations

import pytest

from holdfast.page.source import PageRefused
from holdfast.share.page.veil import VeiledPage, hide
from tests.world.page_source import Held, MemorySource

HOSTS = ("kafka-1.example", "broker", "10.0.0.7", "fe80::1")
SILENT = "its leader cannot be reached: kafka-1.example:9092 cannot be reached: Connection refused"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("127.0.0.1:9092 cannot be reached", "(hidden) cannot be reached"),
        ("the node at [::1]:9492, which has it", "the node at (hidden), which has it"),
        ("the node at broker:9492 is silent", "the node at (hidden) is silent"),
        ("Connect call failed ('10.1.2.3', 9092)", "Connect call failed (hidden)"),
        ("Connect call failed ('::1', 9092, 0, 0)", "Connect call failed (hidden)"),
        ("certificate is not valid for 'kafka-1.example'.", "certificate is not valid for '(hidden)'."),
        ("no route to fe80::1 or 10.0.0.7.", "no route to (hidden) or (hidden)."),
        ("cannot read '/etc/holdfast/client.properties': denied", "cannot read '(hidden)': denied"),
        ("from the history at /var/history, which", "from the history at (hidden), which"),
        ("from s3a://bucket/history on", "from (hidden) on"),
    ],
)
def test_addresses_and_paths_are_hidden(text: str, hidden: str) -> None:
    assert hide(text, HOSTS) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "It is shown as it was at 2026-11-29 07:33:28 UTC.",
        "Log partition 3 of __share_group_state is not read on: no broker answered within 5000 ms.",
        "Kafka cannot be reached; the state says 3 records beyond the end, at offset 12.",
        "its records are read by other.topic-1 or read/write",
    ],
)
def test_other_words_and_times_stay(text: str) -> None:
    assert hide(text, HOSTS) == text


def source_in_trouble() -> MemorySource:
    held = [Held("orders", f"topic.{number}", 0, 3, ((3, 3, 0, 4),), None, SILENT) for number in range(2)]
    return MemorySource(held, (f"Log partition 3 is not shown: {SILENT}.",))


@pytest.mark.parametrize("sees_cluster", [True, False])
async def test_every_view_is_covered_for_those_who_do_not_see_the_cluster(sees_cluster: bool) -> None:
    source = source_in_trouble()
    page = VeiledPage(source, lambda: sees_cluster, lambda: HOSTS)
    views = [
        await page.groups(),
        await page.group("orders"),
        await page.window("orders", "topic.0", 0),
        await page.timeline("orders", "topic.0", 0, 3),
    ]
    for view in views:
        assert ("kafka-1" in repr(view)) == sees_cluster
        assert "Connection refused" in repr(view)
        assert "topic.0" in repr(view)
    assert (await source.groups() == views[0]) == sees_cluster
    # A refusal about a name has that name.
    for status in (404, 502, 503):
        source.refused = PageRefused(status, SILENT, ("near:9092",))
        with pytest.raises(PageRefused) as refusal:
            await page.record("topic.0", 0, 3)
        assert ("kafka-1" in refusal.value.text) == (sees_cluster or status == 404)
        assert refusal.value.nearest == ("near:9092",)
