"""The lists of a cluster in parts, all by one cursor."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from holdfast.page.cursors import Listed, cut, cut_cluster
from holdfast.page.source import (
    ROWS_PER_PAGE,
    BrokerView,
    ClusterView,
    HandOverView,
    LogPartitionView,
    NodeView,
    PageRefused,
    ReaderView,
)
from holdfast.page.web import app

LISTS = ("brokers", "log_partitions", "nodes", "readers", "hand_overs")


def cluster(log_partitions: int, readers: int = 1) -> ClusterView:
    return ClusterView(
        as_of_ms=1,
        bootstrap="here",
        cluster_id="c",
        state_topic="states",
        brokers=tuple(BrokerView(number, "a:1") for number in (2, 1)),
        log_partitions=tuple(LogPartitionView(number, 1, 0, 0, 0, 0, "") for number in range(log_partitions)),
        problems=(),
        nodes=(NodeView("1", None, "absent", (), (), 0), NodeView("1", "a:1", "member", (), (), 0)),
        readers=tuple(ReaderView(f"fold-{number:05}", "reads", 0, 0) for number in range(readers)),
        hand_overs=tuple(HandOverView(number // 2, number, None, "1", 1, 1, 1, None) for number in reversed(range(7))),
    )


def parts_of(whole: ClusterView) -> list[ClusterView]:
    parts = [cut_cluster(whole, "run", None)]
    while (after := parts[-1].next) is not None:
        parts.append(cut_cluster(whole, "run", after))
    return parts


def test_each_row_of_each_list_is_in_one_part_and_every_part_is_bounded() -> None:
    whole = cluster(2 * ROWS_PER_PAGE + 1, ROWS_PER_PAGE + 1)
    parts = parts_of(whole)
    assert [len(part.log_partitions) for part in parts] == [ROWS_PER_PAGE, ROWS_PER_PAGE, 1]
    assert [len(part.readers) for part in parts] == [ROWS_PER_PAGE, 1, 0]
    for name in LISTS:
        shown = [each for part in parts for each in getattr(part, name)]
        assert sorted(shown, key=repr) == sorted(getattr(whole, name), key=repr), name
        assert {getattr(part, f"{name}_in_all") for part in parts} == {len(shown)}
    [newest, *_] = parts[0].hand_overs
    assert newest.at_ms == 3


def test_a_cluster_of_a_usual_size_has_one_part() -> None:
    [part] = parts_of(cluster(50))
    assert ([each.broker_id for each in part.brokers], len(part.log_partitions)) == ([1, 2], 50)


def test_a_part_goes_on_where_the_last_one_ended_though_rows_came_and_went() -> None:
    first = cut_cluster(cluster(ROWS_PER_PAGE + 1), "run", None)
    later = cluster(ROWS_PER_PAGE + 2)
    later = later._replace(log_partitions=later.log_partitions[3:], brokers=(*later.brokers, BrokerView(3, "a:1")))
    second = cut_cluster(later, "run", first.next)
    assert [each.partition for each in second.log_partitions] == [ROWS_PER_PAGE, ROWS_PER_PAGE + 1]
    assert [each.broker_id for each in second.brokers] == [3]


def test_a_cursor_of_another_run_is_refused_in_words() -> None:
    after = cut_cluster(cluster(ROWS_PER_PAGE + 1), "another", None).next
    with pytest.raises(PageRefused, match="of another run of this page; begin with the first page") as refusal:
        cut_cluster(cluster(1), "run", after)
    assert refusal.value.status == 400


@pytest.mark.parametrize("letter", ["a", "\u0634", "\U0001f600"])
def test_a_cursor_with_a_name_of_700_letters_is_as_short_as_a_parameter(letter: str) -> None:
    rows = [(number, 700 * letter, "A" * 22) for number in range(1 << 60, (1 << 60) + ROWS_PER_PAGE + 1)]
    listed = Listed(rows, lambda row: row, (int, str, str))
    [first], after = cut("12345678", None, listed)
    assert after is not None
    assert len(after) <= app._TEXT_MAX
    [second], last = cut("12345678", after, listed)
    assert ([*first, *second], last) == (rows, None)


def test_a_cursor_with_half_a_letter_is_one_as_well() -> None:
    half, whole = Listed([], lambda row: row, (str,)), Listed(range(ROWS_PER_PAGE + 1), lambda row: (row,), (int,))
    after = urlsafe_b64encode(b'["run", ["\\ud800"], null]').decode()
    [_, first], more = cut("run", after, half, whole)
    [_, second], last = cut("run", more, half, whole)
    assert ([*first, *second], last) == (list(range(ROWS_PER_PAGE + 1)), None)
