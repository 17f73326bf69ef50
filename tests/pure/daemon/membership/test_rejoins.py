"""When a member joins again by itself, and when a group that rebalances too often raises an alarm."""

from holdfast.backoff import Backoff
from holdfast.daemon.membership.rebalance_watch import WINDOW_MS, RebalanceWatch
from holdfast.daemon.membership.rejoins import Rejoins
from holdfast.metrics.instruments import Counter


def test_a_wish_waits_for_its_pause_and_is_taken_once() -> None:
    rejoins = Rejoins(Backoff(100, 1_000, lambda: 1.0), 2_000)
    rejoins.request("first", 0)
    rejoins.request("second", 50)
    assert (rejoins.is_requested, rejoins.take_due(99)) == (True, "")
    assert (rejoins.take_due(100), rejoins.is_requested, rejoins.take_due(100)) == ("first", False, "")


def test_a_join_fulfils_the_wishes_before_it() -> None:
    rejoins = Rejoins(Backoff(100, 1_000, lambda: 1.0), 2_000)
    rejoins.request("first", 0)
    rejoins.joining()
    assert (rejoins.is_requested, rejoins.take_due(10_000)) == (False, "")
    rejoins.request("while it joins", 10)
    assert rejoins.take_due(10_000) == "while it joins"


def test_wishes_that_never_end_cause_few_rebalances_a_minute() -> None:
    rejoins = Rejoins(Backoff(200, 30_000, lambda: 0.0), 60_000)
    joined = 0
    for now_ms in range(0, 600_000, 100):
        joined += bool(rejoins.take_due(now_ms))
        rejoins.request("the config topic cannot be read", now_ms)
    # Eight pauses from 0.1 s to 12.8 s, then one each 15 s.
    assert joined == 8 + (600_000 - 25_500) // 15_000


def test_pauses_are_short_again_after_a_long_rest() -> None:
    rejoins = Rejoins(Backoff(100, 1_000, lambda: 1.0), 2_000)
    for now_ms in (0, 5_000 // 10):
        rejoins.request("often", now_ms)
        rejoins.joining()
    rejoins.request("again", 3_000)
    assert (rejoins.take_due(3_099), rejoins.take_due(3_100)) == ("", "again")


def test_more_rebalances_than_allowed_in_ten_minutes_are_an_alarm_with_their_reasons() -> None:
    watch = RebalanceWatch(Counter(), 3)
    assert [watch.count("x", at) for at in (0, 1, 2)] == [None, None, None]
    assert watch.count("y", 3) == {"x": 3, "y": 1}
    assert watch.count("y", 4) is None, "once in ten minutes"
    for at in (WINDOW_MS + 10, WINDOW_MS + 11, WINDOW_MS + 12):
        assert watch.count("z", at) is None
    assert watch.count("z", WINDOW_MS + 13) == {"z": 4}


def test_as_many_rebalances_in_more_than_ten_minutes_are_none() -> None:
    watch = RebalanceWatch(Counter(), 3)
    assert [watch.count("x", at) for at in range(0, 10 * WINDOW_MS, WINDOW_MS // 3)] == [None] * 30
