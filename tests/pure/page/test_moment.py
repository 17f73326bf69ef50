"""The views of one moment: sums, order, pages, and what there is none of."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import NO_SUCH_ID, Ends
from holdfast.page.moment import Moment, Truth, _attention
from holdfast.page.source import ROWS_PER_PAGE, SPARK_MINUTES, GroupRow, PageRefused, StateRange, to_json
from holdfast.records.share.batches import StateBatch
from tests.pure.page.samples import (
    KEY,
    NOW_MS,
    TOPIC_ID,
    Log,
    acknowledged,
    available,
    book_of,
    moment_of,
    snapshot,
)

STUCK = snapshot(5, acknowledged(7, 8), available(12, 4))


def one_stuck() -> Moment:
    log = Log()
    log.put(KEY, STUCK)
    log.put(KEY._replace(partition=1), snapshot(3))
    ends = {KEY: Ends(2, 20), KEY._replace(partition=1): Ends(0, 3)}
    return moment_of(book_of(log), ends, {(TOPIC_ID, 0, 5): NOW_MS - 60_000})


def many(groups: int, run_id: str = "run") -> Moment:
    log = Log()
    for number in range(groups):
        key = KEY._replace(group_id=f"group-{number:05}")
        log.put(key, snapshot(0, available(number % 7, 1 + number % 5)))
    return moment_of(book_of(log), {}, run_id=run_id)


def test_a_large_moment_is_made_in_steps_and_sorted_in_them() -> None:
    whole = many(1_000)
    places = [place for number in reversed(range(1_000)) for place in whole._of_group(f"group-{number:05}")]
    steps = Moment.in_steps(NOW_MS, places, {}, lambda *_: (0,) * SPARK_MINUTES, (), "run", {})
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            moment = end.value
            break
        count += 1
    assert count == 10
    assert [row.group for row in moment._rows] == [row.group for row in whole._rows]
    assert moment._rows == sorted(moment._rows, key=_attention)


def test_a_group_and_its_topic_are_summed_up() -> None:
    [row] = one_stuck().groups(None).rows
    assert (row.group, row.topic, row.share_partitions, row.lag) == ("workers", "orders", 2, 13)
    assert (row.in_flight, row.delivery_count_max, row.given_up) == (6, 4, 0)
    assert row.oldest is not None
    assert (row.oldest.partition, row.oldest.offset, row.oldest.written_ms) == (0, 5, NOW_MS - 60_000)


def test_a_lag_that_is_not_known_is_none_with_the_reason() -> None:
    log = Log()
    log.put(KEY, STUCK)
    log.put(KEY._replace(partition=1), snapshot(3))
    moment = moment_of(book_of(log), {KEY: Ends(0, 20)})
    [row] = moment.groups(None).rows
    assert (row.lag, row.lag_known, row.lag_unknown) == (None, 13, {"its leader is silent": 1})
    window = moment.window("workers", "orders", 1)
    assert (window.log_start, window.log_end, window.log_unknown) == (None, None, "its leader is silent")
    assert window.row["lag"] is None


def test_a_group_has_the_share_partitions_of_the_command_line() -> None:
    view = one_stuck().group("workers", None)
    assert [(row["topic"], row["partition"], row["lag"], row["end_offset"]) for row in view.states] == [
        ("orders", 0, 13, 20),
        ("orders", 1, 0, 3),
    ]
    assert (view.totals["lag"], view.totals["share_partitions"]) == (13, 2)
    shown = to_json(view)
    assert (shown["lag"], shown["topics"], shown["states"][0]["lag"]) == (13, 1, 13)
    assert [row["group"] for row in shown["topics_in_detail"]] == ["workers"]


def test_a_window_has_the_ranges_from_the_start_offset_on() -> None:
    log = Log()
    log.put(KEY, snapshot(5, StateBatch(2, 6, 2, 1), available(12, 4)))
    window = moment_of(book_of(log), {KEY: Ends(2, 20)}).window("workers", format_topic_id(TOPIC_ID), 0)
    assert window.ranges == (StateRange(5, 6, "acknowledged", 1), StateRange(12, 12, "available", 4))
    assert (window.start_offset, window.state_end_offset, window.log_start, window.log_end) == (5, 13, 2, 20)


def test_groups_come_in_pages_and_those_in_need_first() -> None:
    moment = many(2 * ROWS_PER_PAGE + 1)
    page, names, counts = moment.groups(None), list[str](), list[int]()
    while True:
        names += [row.group for row in page.rows]
        counts += [row.delivery_count_max for row in page.rows]
        assert len(page.rows) <= ROWS_PER_PAGE
        assert page.rows_in_all == 2 * ROWS_PER_PAGE + 1
        if page.next is None:
            break
        page = moment.groups(page.next)
    assert len(set(names)) == len(names) == 2 * ROWS_PER_PAGE + 1
    assert counts == sorted(counts, reverse=True)


def test_the_place_of_a_cursor_is_found_without_a_look_at_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, looks = many(2 * ROWS_PER_PAGE), list[GroupRow]()
    cursor = whole.groups(None).next

    def attention(row: GroupRow) -> tuple[object, ...]:
        looks.append(row)
        return _attention(row)

    monkeypatch.setattr("holdfast.page.moment._attention", attention)
    assert whole.groups(cursor).rows == tuple(whole._rows[ROWS_PER_PAGE:])
    assert len(looks) < 20


def test_groups_are_found_by_a_part_of_their_names_in_pages() -> None:
    moment = many(3 * ROWS_PER_PAGE)
    page, names = moment.groups(None, "GROUP-00"), list[str]()
    while True:
        names += [row.group for row in page.rows]
        assert page.rows_in_all == 3 * ROWS_PER_PAGE
        if page.next is None:
            break
        page = moment.groups(page.next, "GROUP-00")
    assert len(set(names)) == len(names) == 3 * ROWS_PER_PAGE
    assert {row.group for row in moment.groups(None, "p-0012").rows} == {f"group-0012{digit}" for digit in range(10)}
    assert moment.groups(None, "none").rows == ()
    assert [row.group for row in one_stuck().groups(None, "ORD").rows] == ["workers"], "it has the topic orders"


def test_all_of_a_group_comes_in_pages_of_one_cursor() -> None:
    log, topics = Log(), [number.to_bytes(16, "big") for number in range(ROWS_PER_PAGE + 1)]
    for number, topic_id in enumerate(topics):
        log.put(KEY._replace(topic_id=topic_id), snapshot(0, available(0, 1 + number % 5)))
    for partition in range(1, ROWS_PER_PAGE + 1):
        log.put(KEY._replace(topic_id=topics[-1], partition=partition), snapshot(0))
    moment = moment_of(book_of(log), {})
    view = moment.group("workers", None)
    views = [view]
    while view.next is not None:
        view = moment.group("workers", view.next)
        views.append(view)
    assert [(len(each.topics), len(each.states)) for each in views] == [(200, 200), (1, 200), (0, 1)]
    shown = [row for each in views for row in each.topics]
    assert shown == moment._rows
    assert {row.topic_id for row in shown} == set(map(format_topic_id, topics))
    states = [(row["topic_id"], row["partition"]) for each in views for row in each.states]
    assert len(set(states)) == len(states) == 2 * ROWS_PER_PAGE + 1


def test_a_part_of_a_group_names_the_old_log_partitions_of_its_own_rows() -> None:
    log = Log()
    for partition in range(ROWS_PER_PAGE + 1):
        log.put(KEY._replace(partition=partition), snapshot(0))
    whole = moment_of(book_of(log), {})
    places = list(whole.places())
    # The last share partition lies in another log partition, of which nothing is heard.
    last = places[-1]
    places[-1] = last._replace(row=last.row | {"log_partition": 1})
    truths = {
        1: Truth(NOW_MS, "led by no broker that answers now"),
        2: Truth(NOW_MS, "led by no broker that answers now"),
    }
    moment = Moment(NOW_MS, places, {}, lambda *_: (0,) * SPARK_MINUTES, ("Some are old.",), "run", truths)
    first = moment.group("workers", None)
    second = moment.group("workers", first.next)
    assert [(each.old, each.is_old) for each in (first, second)] == [((), True), ((1,), True)]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "none of ours",
        "\N{SNOWMAN}",
        urlsafe_b64encode(b"7").decode(),
        urlsafe_b64encode(b'["run"]').decode(),
        urlsafe_b64encode(b'["run", "a", 2]').decode(),
        urlsafe_b64encode(b'["run", 1, 2, 3, 4, 5]').decode(),
        urlsafe_b64encode(b'["run", [1, 2, 3, 4, 5]]').decode(),
        urlsafe_b64encode(b'["run", [1, 2, 3, "a", "b"], null]').decode(),
        urlsafe_b64encode(b"[" * 60_000).decode(),
        many(ROWS_PER_PAGE + 1, "another").groups(None).next,
    ],
)
def test_a_cursor_of_anything_else_is_refused(cursor: str) -> None:
    with pytest.raises(PageRefused) as refusal:
        one_stuck().groups(cursor)
    assert refusal.value.status == 400


def test_there_is_a_word_for_each_name_that_is_wrong() -> None:
    moment = one_stuck()
    with pytest.raises(PageRefused) as group:
        moment.group("worker", None)
    assert (group.value.status, group.value.nearest) == (404, ("workers",))
    with pytest.raises(PageRefused) as topic:
        moment.window("workers", "order", 0)
    assert (topic.value.status, topic.value.nearest) == (404, ("orders",))
    with pytest.raises(PageRefused) as partition:
        moment.window("workers", "orders", 2)
    assert "it has some of 0, 1." in partition.value.text


def test_a_group_whose_oldest_record_has_no_known_age_comes_first() -> None:
    log = Log()
    for name, offset in (("young", 1), ("old", 2), ("unknown", 3)):
        log.put(KEY._replace(group_id=name), snapshot(offset))
    written = {(TOPIC_ID, 0, 1): NOW_MS - 1_000, (TOPIC_ID, 0, 2): NOW_MS - 60_000}
    ends = {KEY._replace(group_id=name): Ends(0, 20) for name in ("young", "old", "unknown")}
    rows = moment_of(book_of(log), ends, written).groups(None).rows
    assert [row.group for row in rows] == ["unknown", "old", "young"]
    assert [row.oldest and (row.oldest.written_ms, row.oldest.unknown) for row in rows] == [
        (None, 1),
        (NOW_MS - 60_000, 0),
        (NOW_MS - 1_000, 0),
    ]


def test_an_oldest_record_beside_one_of_unknown_age_may_not_be_the_oldest() -> None:
    log, second = Log(), KEY._replace(partition=1)
    log.put(KEY, snapshot(5))
    log.put(second, snapshot(3))
    moment = moment_of(book_of(log), {KEY: Ends(0, 20), second: Ends(0, 20)}, {(TOPIC_ID, 0, 5): NOW_MS - 60_000})
    [row] = moment.groups(None).rows
    assert row.oldest is not None
    assert (row.oldest.partition, row.oldest.written_ms, row.oldest.unknown) == (0, NOW_MS - 60_000, 1)


def test_a_window_of_an_old_log_partition_names_its_moment_and_the_reason() -> None:
    log = Log()
    log.put(KEY, STUCK)
    truth = Truth(NOW_MS - 600_000, "not read on: its leader is silent")
    moment = moment_of(book_of(log), {KEY: Ends(2, 20)}, truth=truth)
    window = moment.window("workers", "orders", 0)
    assert (window.as_of_ms, moment_of(book_of(log), {}).window("workers", "orders", 0).unknown) == (truth.as_of_ms, ())
    assert window.unknown == (
        "Log partition 0, which has its state, is not read on: its leader is silent. "
        "This is how it was at 2027-01-15 07:50:30 UTC.",
    )
    [row] = moment.groups(None).rows
    assert (row.rate_per_s, row.finished_by_minute[-10:]) == (None, (None,) * 10)


@pytest.mark.parametrize(
    ("group", "topic", "partition"), [("worker", "orders", 0), ("workers", "order", 0), ("workers", "orders", 7)]
)
def test_nothing_is_said_not_to_be_there_while_a_log_partition_is_old(group: str, topic: str, partition: int) -> None:
    log = Log()
    log.put(KEY, STUCK)
    moment = moment_of(book_of(log), {}, truth=Truth(NOW_MS, "not read on: its leader is silent"))
    with pytest.raises(PageRefused) as refusal:
        moment.window(group, topic, partition)
    assert refusal.value.status == 503
    assert "It is not known whether this is so now" in refusal.value.text
    assert "its leader is silent" in refusal.value.text


@pytest.mark.parametrize("why_old", ["", "not read on: its leader is silent"])
def test_rows_whose_log_partition_is_old_say_so(why_old: str) -> None:
    log = Log()
    log.put(KEY, STUCK)
    moment = moment_of(book_of(log), {}, truth=Truth(NOW_MS, why_old))
    [row] = moment.groups(None).rows
    group = moment.group("workers", None)
    assert (row.is_old, group.is_old, group.old) == (bool(why_old), bool(why_old), (0,) * bool(why_old))


@pytest.mark.parametrize(("problem", "status"), [("no broker answered", 503), (NO_SUCH_ID, 404)])
def test_no_topic_is_said_to_be_missing_while_its_name_is_not_known(problem: str, status: int) -> None:
    log = Log()
    log.put(KEY, STUCK)
    moment = moment_of(book_of(log), {KEY: Ends(-1, -1, problem)})
    nameless = [place._replace(end=place.end._replace(topic=None)) for place in moment.places()]
    moment = Moment(NOW_MS, nameless, {}, lambda *_: (0,) * SPARK_MINUTES, (), "run", {})
    with pytest.raises(PageRefused) as refusal:
        moment.window("workers", "orders", 0)
    assert refusal.value.status == status
    assert moment.window("workers", format_topic_id(TOPIC_ID), 0).topic is None
