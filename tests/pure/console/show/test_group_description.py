"""A group on a screen: all of it where there is room, else what needs attention, and always when it was true."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.console.show.group_description import Look, screen_lines
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.group_lag import LagTotals, TopicEnd, with_lag
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

TOPIC_ID = bytes(range(16))
AT_MS = 1_790_000_000_000


def look(partitions: int, *, tried: int = -1, unknown: str = "", topic: str = "orders", **changes: Any) -> Look:
    """Look at a group whose record was tried four times in one of its partitions."""
    totals = LagTotals()
    rows = []
    for partition in range(partitions):
        batches = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 5, AVAILABLE, 4 if partition == tried else 1))
        state = ShareState(0, 1, 3, 0, 0, 0, 0, batches, 3, 1, 0)
        row = describe_state(SharePartitionKey("workers", TOPIC_ID, partition), state, 7, "1")
        end = TopicEnd(topic, None, unknown) if unknown else TopicEnd(topic, 20)
        rows.append(with_lag(row, end))
    return Look(AT_MS, "workers", tuple(totals.adding(rows)), totals)._replace(**changes)


def test_a_screen_with_room_has_each_share_partition_and_the_moment() -> None:
    assert screen_lines(look(2, tried=1), "", 80, 24) == [
        "group             workers",
        "lag               30",
        "in flight         2",
        "share partitions  2 (1 topic)",
        "owners            1",
        "",
        "topic   partition  start  oldest  end  lag  in flight  deliveries (records)",
        "orders          0      0       5   20   15          1  1 (1)",
        "orders          1      0       5   20   15          1  4 (1)",
        "",
        "As of 2026-09-21T14:13:20.000Z. Ctrl-C ends it.",
    ]


@pytest.mark.parametrize("width", [80, 30])
@pytest.mark.parametrize("height", [12, 16, 24, 40])
def test_where_not_all_fit_the_record_that_is_stuck_is_seen(width: int, height: int) -> None:
    lines = screen_lines(look(1_000, tried=777), "", width, height)
    assert len(lines) <= height
    assert lines[-1].startswith("As of 2026-09-21T14:13:20.000Z")
    assert sum("4 (1)" in line for line in lines) == (width == 80 or height > 20)
    [told] = [line for line in lines if " more; those whose records are tried most often come first." in line]
    shown = sum(line.startswith(("orders", "topic ")) for line in lines) - (width == 80)
    assert told.startswith(f"{1_000 - shown} share partitions")


@pytest.mark.parametrize("height", range(1, 12))
def test_no_screen_is_too_low(height: int) -> None:
    assert len(screen_lines(look(50), "Nothing answers.", 20, height)) <= height


def test_trouble_gaps_and_unknown_lags_stand_below_the_numbers() -> None:
    found = look(2, unknown="its leader cannot be reached", gaps=("The state in log partition 3 is missing",))
    assert screen_lines(found, "Nothing answers at n:1.", 80, 24)[-4:] == [
        "As of 2026-09-21T14:13:20.000Z. Ctrl-C ends it.",
        "There are no newer numbers: Nothing answers at n:1.",
        "The lag of 2 share partitions is unknown: its leader cannot be reached.",
        "The state in log partition 3 is missing.",
    ]


def test_a_group_that_is_gone_is_said_to_be() -> None:
    gone = Look(AT_MS, "workers", (), LagTotals())
    assert screen_lines(gone, "", 80, 24)[-1] == "There is no state of the group workers any more."


def test_nothing_of_a_name_or_a_sentence_moves_the_cursor() -> None:
    lines = screen_lines(look(1, topic="\x1b[2J", group="a\x07b"), "gone\x1b[H", 80, 24)
    assert all(line.isprintable() for line in lines)
