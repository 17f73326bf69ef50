"""The moments of a node that asks others: it pays for what they do for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.kafka.topics.topic_ends import Ends, TopicEnds
from holdfast.page.book import Described
from holdfast.page.source import SENTENCES_MAX, utc
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.share.page.moments import Moments
from holdfast.share.page.others import OtherStates
from holdfast.share.page.purse import PART, Purse
from holdfast.share.page.samples import Samples
from holdfast.share.page.states import Held
from tests.pure.page.samples import NOW_MS


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("spent", "rests_s"), [({"spent_s": 0.25}, 0.5 / PART), ({}, 0.0)])
async def test_time_of_other_nodes_is_paid_by_the_node_that_asks(spent: dict[str, float], rests_s: float) -> None:
    clock, asked = Clock(), list[object]()

    async def query(address: str, command: str, timeout_ms: int, **arguments: object) -> Any:
        asked.append(arguments["after"])
        return {"share_partitions": [], "next": len(asked) if len(asked) % 2 else None, "not_listed": [], **spent}

    async def collect() -> Held:
        return Held({}, {}, {})

    purse = Purse(clock, lambda: 0.0)
    states = cast("Any", SimpleNamespace(collect=collect))
    others = OtherStates(query, lambda: [{"partition": 1, "owner_address": "127.0.0.1:9"}])
    cluster = cast("Any", SimpleNamespace(record_times=None))
    moments = Moments(states, others, bytes(16), cluster, purse, lambda: NOW_MS, "run")
    await moments.moment()
    assert asked == [None, 1]
    assert purse.is_empty == bool(spent)
    clock.now_s = 0.9 * rests_s
    assert purse.is_empty == bool(spent)
    clock.now_s = 1.1 * rests_s
    assert not purse.is_empty
    assert moments._fresh_s == max(1.0, 2 * rests_s)


async def test_the_first_reader_is_shown_the_minutes_that_the_node_has_sampled() -> None:
    key = SharePartitionKey("workers", bytes(16), 0)
    state = ShareState(0, 1, 0, -1, -1, 0, 0, (), 0, 1, 0)

    async def collect() -> Held:
        return Held({key: Described(state, "1", describe_state(key, state, 3, "1"), 0)}, {3: 9}, {})

    async def look_up(wanted: object) -> object:
        return {bytes(16): TopicEnds("orders", {0: Ends(0, 5)})}

    def of_last_minutes(*asked: object) -> tuple[int | None, ...]:
        assert asked[:2] == ("workers", bytes(16))
        assert list(cast("Any", asked[2])) == [3]
        return (*range(59), None)

    states = cast("Any", SimpleNamespace(collect=collect))
    look_ups = SimpleNamespace(ends=SimpleNamespace(look_up=look_up))
    cluster = cast("Any", SimpleNamespace(record_times=None, look_ups=look_ups))
    samples = cast("Samples", SimpleNamespace(of_last_minutes=of_last_minutes))
    others = OtherStates(cast("Any", None), list)
    moments = Moments(states, others, bytes(16), cluster, Purse(), lambda: NOW_MS, "run", samples)
    [row] = (await moments.moment()).groups(None).rows
    assert row.finished_by_minute == (*range(59), None)
    assert row.rate_per_s == round(58 / 60, 2)


async def test_sentences_about_log_partitions_that_are_not_shown_are_bounded() -> None:
    async def collect() -> Held:
        return Held({}, {}, dict.fromkeys(range(1_000), "no node has it"))

    states, cluster = cast("Any", SimpleNamespace(collect=collect)), cast("Any", SimpleNamespace(record_times=None))
    others = OtherStates(cast("Any", None), list)
    moment = await Moments(states, others, bytes(16), cluster, Purse(), lambda: NOW_MS, "run").moment()
    assert moment.unknown[0] == "Log partition 0 is not shown: no node has it. Share groups in it may be missing."
    assert (len(moment.unknown), moment.unknown[-1]) == (SENTENCES_MAX + 1, "950 more of these are not named here.")


async def test_state_at_a_silent_broker_is_of_the_time_of_its_last_answer() -> None:
    state = ShareState(0, 1, 0, -1, -1, 0, 0, (), 0, 1, 0)
    keys = {3: SharePartitionKey("cut-off", bytes(16), 0), 4: SharePartitionKey("new", bytes(16), 1)}

    async def collect() -> Held:
        described = {key: Described(state, "1", describe_state(key, state, at, "1"), 0) for at, key in keys.items()}
        return Held(described, {3: 9, 4: 9}, {})

    async def look_up(wanted: object) -> object:
        return {bytes(16): TopicEnds("orders", {0: Ends(0, 5), 1: Ends(0, 5)})}

    states = cast("Any", SimpleNamespace(collect=collect))
    cluster = cast(
        "Any", SimpleNamespace(record_times=None, look_ups=SimpleNamespace(ends=SimpleNamespace(look_up=look_up)))
    )
    others, since_s = OtherStates(cast("Any", None), list), {3: NOW_MS / 1_000 - 7}
    moments = Moments(
        states, others, bytes(16), cluster, Purse(), lambda: NOW_MS, "run", unheard_since_s=lambda at: since_s.get(at)
    )
    moment = await moments.moment()
    assert {row.group: row.is_old for row in moment.groups(None).rows} == {"cut-off": True, "new": False}
    [said] = moment.unknown
    assert said.startswith("Log partition 3 of the state topic is led by no broker that answers now. ")
    assert utc(NOW_MS - 7_000) in said
    old, new = moment.window("cut-off", "orders", 0), moment.window("new", "orders", 1)
    assert (old.as_of_ms, new.as_of_ms, new.unknown) == (NOW_MS - 7_000, NOW_MS, ())
    assert old.unknown
    assert moment.as_of_ms == NOW_MS

    since_s[4] = NOW_MS / 1_000 - 9
    moments._moment = None
    moment = await moments.moment()
    assert moment.as_of_ms == NOW_MS - 9_000, "nothing is newer"
    assert moment.unknown[0].endswith(f"Everything is shown as it was at {utc(NOW_MS - 9_000)}.")


@pytest.mark.virtual_time
async def test_readers_look_again_in_each_tenth_moment_changed_or_not() -> None:
    """The page of the cluster has brokers and nodes, of which no moment tells."""

    async def collect() -> Held:
        return Held({}, {}, {})

    loop = asyncio.get_running_loop()
    states = cast("Any", SimpleNamespace(collect=collect))
    cluster = cast("Any", SimpleNamespace(record_times=None))
    purse = Purse(loop.time, lambda: 0.0)
    moments = Moments(states, OtherStates(cast("Any", None), list), bytes(16), cluster, purse, lambda: NOW_MS, "run")
    begin_s, turns = loop.time(), list[tuple[int, bool]]()
    async for is_due in moments.changed():
        turns.append((round(loop.time() - begin_s), is_due))
        if len(turns) == 3:
            break
    assert turns == [(0, False), (9, True), (19, True)]


async def test_a_topic_keeps_its_name_while_brokers_are_silent() -> None:
    key = SharePartitionKey("workers", bytes(16), 0)
    state = ShareState(0, 1, 0, -1, -1, 0, 0, (), 0, 1, 0)
    answers = [TopicEnds("orders", {0: Ends(0, 5)}), TopicEnds(None, {0: Ends(-1, -1, "Kafka cannot be reached")})]

    async def collect() -> Held:
        return Held({key: Described(state, "1", describe_state(key, state, 3, "1"), 0)}, {3: 9}, {})

    async def look_up(wanted: object) -> object:
        return {bytes(16): answers.pop(0)}

    states = cast("Any", SimpleNamespace(collect=collect, forget=lambda: None))
    cluster = cast(
        "Any", SimpleNamespace(record_times=None, look_ups=SimpleNamespace(ends=SimpleNamespace(look_up=look_up)))
    )
    not_ready = ["", "brokers are silent"]

    async def why_not_ready() -> str:
        return not_ready.pop(0)

    others = OtherStates(cast("Any", None), list)
    moments = Moments(states, others, bytes(16), cluster, Purse(), lambda: NOW_MS, "run", why_not_ready=why_not_ready)
    for lag_unknown in ("", "Kafka cannot be reached"):
        told = (await moments.moment()).unknown
        assert told == (("The node is not ready: brokers are silent. Its numbers may be old.",) if lag_unknown else ())
        window = (await moments.moment()).window("workers", "orders", 0)
        assert (window.topic, window.log_unknown) == ("orders", lag_unknown)
        moments.forget()
