"""Who is worked for next, on a clock that the work itself moves."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from holdfast.daemon.server.wire.turns import Payer, Turns, Worker
from tests.waiting import wait_until

MS = 0.001


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Client(Worker):
    """Has some steps to do, each of which takes a time."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        diary: list[str],
        steps: int = 0,
        step_ms: float = 1.0,
        payer: Payer | None = None,
    ) -> None:
        super().__init__(payer or Payer())
        self.name, self.clock, self.diary, self.steps, self.step_ms = name, clock, diary, steps, step_ms

    def work(self, ends_s: float) -> bool:
        while self.steps:
            self.steps -= 1
            self.clock.now_s += self.step_ms * MS
            self.diary.append(self.name)
            if self.clock.now_s >= ends_s:
                break
        return self.steps > 0


async def until_done(turns: Turns) -> int:
    """Let the loop run until no worker waits; returns how many turns of the loop that took."""
    count = 0
    while turns.waiting:
        await asyncio.sleep(0)
        count += 1
    return count


async def test_work_begins_in_the_turn_of_the_loop_in_which_it_arrives_while_no_worker_waits() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    for name in "abc":
        turns.offer(Client(name, clock, diary, steps=1), clock())
    assert diary == ["a", "b", "c"]
    assert not turns.waiting


async def test_after_a_slice_of_work_the_next_one_waits_for_the_loop() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    for name in "abcdefgh":
        turns.offer(Client(name, clock, diary, steps=1), clock())
    assert diary == ["a", "b", "c", "d", "e"]
    assert await until_done(turns) == 1
    assert "".join(diary) == "abcdefgh"


async def test_time_without_work_makes_room_for_work_at_once() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    turns.offer(Client("a", clock, diary, steps=5), clock())
    clock.now_s += 1 * MS
    turns.offer(Client("b", clock, diary, steps=1), clock())
    assert "".join(diary) == "aaaaab"


async def test_one_that_sends_without_end_gives_way_to_the_loop_after_each_slice() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    turns.offer(Client("a", clock, diary, steps=50), clock())
    assert diary == ["a"] * 5
    assert await until_done(turns) == 9


async def test_a_short_request_is_not_behind_long_ones() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    for number in range(50):
        turns.offer(Client(str(number), clock, diary, steps=100), clock())
    for _ in range(20):
        await asyncio.sleep(0)
    before = len(diary)
    short = Client("short", clock, diary, steps=1)
    turns.offer(short, clock())
    await asyncio.sleep(0)
    assert diary[before] == "short"


async def test_clients_have_the_same_time_however_long_their_steps_are() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    turns.offer(Client("long", clock, diary, steps=100, step_ms=4), clock())
    turns.offer(Client("short", clock, diary, steps=400, step_ms=1), clock())
    for _ in range(40):
        await asyncio.sleep(0)
    assert abs(diary.count("long") * 4 - diary.count("short")) <= 10


async def test_who_was_silent_for_long_has_no_more_than_a_turn_in_advance() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    turns.offer(Client("old", clock, diary, steps=1_000), clock())
    for _ in range(50):
        await asyncio.sleep(0)
    turns.offer(Client("new", clock, diary, steps=1_000), clock())
    begin = len(diary)
    for _ in range(10):
        await asyncio.sleep(0)
    assert diary[begin:].count("old") >= 20


async def test_a_crowd_that_comes_at_once_is_no_more_than_a_turn_or_two_each_before_one_that_was_there() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    healthy = Client("a", clock, diary, steps=400)
    turns.offer(healthy, clock())
    await until_done(turns)
    diary.clear()
    for _ in range(50):
        turns.wait(Client("x", clock, diary, steps=1_000))
    healthy.steps = 1
    turns.wait(healthy)
    for _ in range(100):
        await asyncio.sleep(0)
    assert diary.index("a") <= 50 * 2 * 2  # a turn is two steps here


async def test_a_step_that_could_not_be_cut_is_followed_by_a_pause_as_long() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    heavy = [Client(name, clock, diary, steps=3, step_ms=80) for name in "xyz"]
    for client in heavy:
        turns.offer(client, clock())
    light = Client("a", clock, diary)
    for _ in range(5):
        await asyncio.sleep(0)
        light.steps = 1
        turns.wait(light)
    assert diary[:3] == ["x", "y", "z"]
    # Each has had one turn; now they pause, while the light one goes on.
    assert set(diary[3:]) == {"a"}
    assert all(client.is_waiting for client in heavy)
    clock.now_s += 1
    for client in heavy:
        turns._resume(client)
    await asyncio.sleep(0)
    assert diary[-1] in "xyz"


async def test_who_had_one_long_step_does_not_pause_for_as_long_as_others_go_on_with_theirs() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    healthy = Client("a", clock, diary, steps=1, step_ms=11)  # the machine was busy once
    turns.offer(healthy, clock())
    healthy.step_ms = 0.1
    for number in range(10):
        # Meanwhile there is always another with a long step.
        turns.offer(Client("x", clock, diary, steps=1, step_ms=80), clock())
        if not number:
            healthy.steps = 1
        turns.wait(healthy)
        await asyncio.sleep(0)
        if healthy.is_waiting and clock() > 100.2:
            turns._resume(healthy)  # as its timer would
            await asyncio.sleep(0)
    assert diary.count("a") == 2


async def test_who_worked_when_the_process_was_stopped_does_not_pay_for_the_time_that_it_slept() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    sleeper = Client("s", clock, diary, steps=1, step_ms=60_000)
    turns.offer(sleeper, clock())
    sleeper.steps, sleeper.step_ms = 100, 1
    turns.wait(sleeper)
    await asyncio.sleep(0)
    assert sleeper.is_waiting, "one that long is heavy all the same"
    clock.now_s += 0.5  # a hundred slices
    turns._resume(sleeper)
    turns.wait(Client("a", clock, diary, steps=10_000, step_ms=1))
    for _ in range(200):
        await asyncio.sleep(0)
    assert round(turns.take_longest_ms()) == 60_000, "what held the loop is reported as it was"
    assert diary.count("s") > 1, "nor do others go first for a minute"


async def test_the_longest_time_at_once_is_reported_once() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    turns.offer(Client("a", clock, diary, steps=1, step_ms=7), clock())
    turns.offer(Client("b", clock, diary, steps=1, step_ms=3), clock())
    await until_done(turns)
    assert round(turns.take_longest_ms()) == 7
    assert turns.take_longest_ms() == 0


async def test_a_client_has_its_turns_however_many_connections_it_has() -> None:
    clock, diary = Clock(), list[str]()
    turns, greedy = Turns(5, clock), Payer()
    for _ in range(64):
        turns.offer(Client("greedy", clock, diary, steps=1_000, payer=greedy), clock())
    turns.offer(Client("polite", clock, diary, steps=1_000), clock())
    for _ in range(100):
        await asyncio.sleep(0)
    assert abs(diary.count("polite") - diary.count("greedy")) <= 5


async def test_the_connections_of_a_client_share_its_turns_evenly() -> None:
    clock, diary = Clock(), list[str]()
    turns, one = Turns(5, clock), Payer()
    turns.offer(Client("other", clock, diary, steps=1_000), clock())
    turns.offer(Client("long", clock, diary, steps=1_000, step_ms=4, payer=one), clock())
    turns.offer(Client("short", clock, diary, steps=1_000, step_ms=1, payer=one), clock())
    for _ in range(100):
        await asyncio.sleep(0)
    assert abs(diary.count("long") * 4 - diary.count("short")) <= 10
    assert abs(diary.count("other") - diary.count("long") * 4 - diary.count("short")) <= 15


@pytest.mark.virtual_time
async def test_a_connection_that_pauses_keeps_no_other_one_of_its_client_waiting() -> None:
    clock, diary = Clock(), list[str]()
    turns, one = Turns(5, clock), Payer()
    heavy = Client("heavy", clock, diary, steps=2, step_ms=20, payer=one)
    turns.offer(heavy, clock())
    turns.offer(Client("light", clock, diary, steps=8, payer=one), clock())
    for _ in range(5):
        await asyncio.sleep(0)
    assert "".join(each[0] for each in diary) == "h" + "l" * 8
    assert turns.waiting == 0


async def test_whoever_waits_is_worked_for_whatever_its_client_did_meanwhile() -> None:
    """Workers come while others of their client work, pause, or have gone over to another client."""
    clock, diary, random = Clock(), list[str](), Random(7)
    turns, payers = Turns(5, clock), [Payer() for _ in range(3)]
    clients = [Client(str(number), clock, diary, payer=random.choice(payers)) for number in range(20)]
    for _ in range(300):
        client = random.choice(clients)
        client.steps += 1
        client.step_ms = random.choice([0.1, 1, 12])
        if random.random() < 0.1 and not client.is_waiting:
            client.payer = random.choice(payers)
        turns.wait(client)
        if random.random() < 0.3:
            await asyncio.sleep(0)
        clock.now_s += 50 * MS
    while turns.waiting:
        clock.now_s += 50 * MS
        await asyncio.sleep(0)
    await wait_until(lambda: not any(client.is_waiting for client in clients))
    assert [client.name for client in clients if client.steps] == []
    assert not any(payer.waiting or payer.is_queued for payer in payers)


async def test_clients_that_used_the_same_time_are_worked_for_in_the_order_in_which_they_came() -> None:
    clock, diary = Clock(), list[str]()
    turns = Turns(5, clock)
    payers = Payer(), Payer()
    for number in "12":
        for name, payer in zip("ab", payers, strict=True):
            turns.wait(Client(name + number, clock, diary, steps=1, step_ms=0, payer=payer))
    await until_done(turns)
    assert diary == ["a1", "b1", "a2", "b2"]
