"""The pace of a sender against brokers that answer or do not: when records are sent, and with which others."""

import asyncio

import uvloop

from holdfast.runtime.kafka_log.linger import FlushRule
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers
from tests.pure.runtime.kafka_log.sending.sender_world import CONFIG, await_answers, batches_of, go_on, make_sender
from tests.waiting import wait_until


async def test_partitions_linger_while_every_connection_to_their_broker_is_busy() -> None:
    brokers = FakeBrokers(dict.fromkeys(range(4), 1))
    sender = make_sender(brokers)
    brokers.withhold_answers()
    for partition in range(2):
        sender.append(partition, b"k", b"1", b"h")
        await brokers.wait_requests(partition + 1)
    for partition in (2, 3, 2):
        sender.append(partition, b"k", b"2", b"h")
    assert len(brokers.requests) == CONFIG.pace.produce_requests_in_flight_max
    brokers.release_answers()
    assert await sender.close(5)
    assert [batches_of(body) for _, _, body in brokers.requests[2:]] == [{2: [b"2", b"2"], 3: [b"2"]}]


async def test_while_a_broker_has_not_answered_records_linger_until_it_does() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 1, 3: 2})
    sender = make_sender(brokers, append_linger_min_ms=60_000, append_linger_max_ms=60_000)
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    for partition in (1, 2, 3):
        sender.append(partition, b"k", b"2", b"h")
        await asyncio.sleep(0)
    await brokers.wait_requests(2)
    assert [(broker_id, list(batches_of(body))) for broker_id, _, body in brokers.requests] == [(1, [0]), (2, [3])]
    brokers.answer_one()
    await brokers.wait_requests(3)
    assert sorted(batches_of(brokers.requests[2][2])) == [1, 2]
    brokers.release_answers()
    assert await sender.close(5)


async def test_request_is_sent_at_half_of_outstanding_or_after_an_empty_turn() -> None:
    brokers = FakeBrokers({0: 1})
    sender = make_sender(brokers, append_linger_max_ms=60_000)
    sender.pace._rule = FlushRule(60)
    for _ in range(8):
        sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    await wait_until(lambda: not sender._in_flight)
    for number in range(4):
        assert len(brokers.requests) == 1, number
        sender.append(0, b"k", b"2", b"h")
        await asyncio.sleep(0)
    await brokers.wait_requests(2)
    assert batches_of(brokers.requests[1][2]) == {0: 4 * [b"2"]}
    await wait_until(lambda: not sender._in_flight)
    sender.append(0, b"k", b"3", b"h")
    await asyncio.sleep(0)
    assert len(brokers.requests) == 2, "it came alone, and waits for one turn"
    await brokers.wait_requests(3)
    assert batches_of(brokers.requests[2][2]) == {0: [b"3"]}
    assert await sender.close(5)


async def test_all_outstanding_is_sent_within_turn_and_less_at_its_end(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers)
    sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 1)
    sender.append(0, b"k", b"2", b"h")
    sender.pace.flush_if_all_wait()
    assert sender._in_flight == 1
    sender.pace.flush_if_all_wait()
    await await_answers(sender, brokers, 2)
    assert batches_of(brokers.requests[1][2]) == {0: [b"2"]}
    for _ in range(8):
        sender.append(0, b"k", b"3", b"h")
    sender.pace.flush_if_all_wait()
    await await_answers(sender, brokers, 3)
    sender.append(0, b"k", b"4", b"h")
    sender.pace.flush_if_all_wait()
    assert sender._in_flight == 0, "seven more may come"
    await await_answers(sender, brokers, 4)
    assert batches_of(brokers.requests[3][2]) == {0: [b"4"]}
    for _ in range(7):
        sender.append(0, b"k", b"5", b"h")
        sender.pace.flush_if_all_wait()
    await await_answers(sender, brokers, 5)
    assert batches_of(brokers.requests[4][2]) == {0: 7 * [b"5"]}, "a turn of several calls is one request"
    assert await sender.close(5)
    assert len(brokers.requests) == 5, "each record left once"


async def test_where_a_linger_is_set_nothing_leaves_within_a_turn(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, append_linger_ms=1)
    sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 1)
    sender.append(0, b"k", b"2", b"h")
    sender.pace.flush_if_all_wait()
    assert sender._in_flight == 0
    await await_answers(sender, brokers, 2)
    assert await sender.close(5)


async def test_requests_after_slow_answers_wait_for_a_round_or_a_timeout() -> None:
    brokers, loop = FakeBrokers({0: 1, 1: 2, 2: 3}), asyncio.get_running_loop()
    sender = make_sender(brokers)

    def append(*records: int) -> None:
        for partition, count in enumerate(records):
            for _ in range(count):
                sender.append(partition, b"k", b"1", b"h")

    def be_patient(until_s: float) -> None:
        for slot in sender.pace.slots.values():
            slot.linger.patient_until_s = until_s

    append(0, 1, 1)
    await await_answers(sender, brokers, 2)
    append(20)
    await await_answers(sender, brokers, 3)
    be_patient(loop.time() + 60)
    append(5, 5, 5)
    await go_on()
    assert len(brokers.requests) == 3
    append(2, 1)
    await await_answers(sender, brokers, 6)
    round_of_all = {broker_id: batches_of(body) for broker_id, _, body in brokers.requests[3:]}
    assert round_of_all == {1: {0: 7 * [b"1"]}, 2: {1: 6 * [b"1"]}, 3: {2: 5 * [b"1"]}}, "less than a third leaves, too"
    be_patient(loop.time() + 60)
    append(4, 1)
    await go_on()
    assert len(brokers.requests) == 6
    append(1)
    await await_answers(sender, brokers, 7)
    assert batches_of(brokers.requests[6][2]) == {0: 5 * [b"1"]}, (
        "its part of 18, of which one waits for another broker"
    )
    be_patient(until_s := loop.time() + 0.005)
    append(1)
    await await_answers(sender, brokers, 8)
    assert loop.time() >= until_s
    assert await sender.close(5)


async def test_a_broker_that_leads_nothing_any_more_has_no_part_in_a_round() -> None:
    brokers, loop = FakeBrokers({0: 1, 1: 2, 2: 3}), asyncio.get_running_loop()
    sender = make_sender(brokers)
    for partition in (0, 1, 2):
        sender.append(partition, b"k", b"1", b"h")
    await await_answers(sender, brokers, 3)
    brokers.elected[1] = {2: (2, 1)}
    await brokers.refresh()
    for _ in range(20):
        sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 4)
    sender.pace.slots[1].linger.patient_until_s = loop.time() + 60
    for _ in range(8):
        sender.append(0, b"k", b"1", b"h")
    await go_on()
    assert len(brokers.requests) == 4, "more than a third of 20, which is not half of it"
    sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 5)
    assert await sender.close(5)


async def test_records_waiting_after_answer_are_sent_when_sender_closes() -> None:
    brokers = FakeBrokers({0: 1})
    sender = make_sender(brokers)
    for _ in range(8):
        sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 1)
    sender.pace.slots[1].linger.patient_until_s = asyncio.get_running_loop().time() + 60
    sender.append(0, b"k", b"2", b"h")
    assert await sender.close(5)
    assert batches_of(brokers.requests[1][2]) == {0: [b"2"]}


async def test_no_wait_after_an_answer_with_a_fixed_linger() -> None:
    for append_linger_ms, waits in ((-1, True), (0, False), (1, False)):
        brokers = FakeBrokers({0: 1})
        sender = make_sender(brokers, append_linger_ms=append_linger_ms)
        sender.append(0, b"k", b"1", b"h")
        await await_answers(sender, brokers, 1)
        linger = sender.pace.slots[1].linger
        for _ in range(100):
            linger.on_answered(0.1)
        linger.on_ended(1_000)
        assert (linger.patient_until_s > 1_000) is waits
        assert await sender.close(5)


async def test_broker_slower_than_usual_still_gets_the_next_request() -> None:
    brokers = FakeBrokers({0: 1, 1: 1})
    sender = make_sender(brokers, append_linger_min_ms=0, append_linger_max_ms=1)
    brokers.withhold_answers()
    for partition in range(2):
        sender.append(partition, b"k", b"1", b"h")
        await brokers.wait_requests(partition + 1)
    brokers.release_answers()
    assert await sender.close(5)


async def test_a_broker_waits_for_its_own_answers_only() -> None:
    brokers = FakeBrokers({0: 1, 1: 1, 2: 2, 3: 2})
    sender = make_sender(brokers, append_linger_min_ms=100, append_linger_max_ms=60_000)
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h")
    await brokers.wait_requests(1)
    for _ in range(100):
        sender.pace.slots[1].linger.on_answered(60)
    sender.append(1, b"k", b"1", b"h")
    await asyncio.sleep(0)  # now it lingers for a minute
    sender.append(2, b"k", b"1", b"h")
    await brokers.wait_requests(2)
    sender.append(3, b"k", b"1", b"h")
    await brokers.wait_requests(3)
    assert [(broker_id, list(batches_of(body))) for broker_id, _, body in brokers.requests[1:]] == [(2, [2]), (2, [3])]
    brokers.release_answers()
    assert await sender.close(5)


def test_it_lingers_for_less_than_uvloop_can_distinguish() -> None:
    async def scenario() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        brokers = FakeBrokers({0: 1, 1: 1})
        sender = make_sender(brokers, append_linger_min_ms=0.2, append_linger_max_ms=0.2)
        brokers.withhold_answers()
        sender.append(0, b"k", b"1", b"h")
        await brokers.wait_requests(1)
        sender.pace.slots[1].linger.on_sent(asyncio.get_running_loop().time())
        sender.append(1, b"k", b"1", b"h")
        sender.pace.flush()  # uvloop's clock stands still in one turn, and makes no timer of so little
        sender.pace.flush()
        await brokers.wait_requests(2)
        brokers.release_answers()
        assert await sender.close(5)
        assert failures == []

    uvloop.run(scenario())


async def test_records_wait_for_others_as_long_as_they_are_to_linger(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, append_linger_ms=60_000)
    for number in range(2):
        sender.append(0, b"k", b"%d" % number, b"h")
        for _ in range(10):
            await asyncio.sleep(0)
    assert brokers.requests == []
    assert await sender.close(5)
    assert [batches_of(body) for _, _, body in brokers.requests] == [{0: [b"0", b"1"]}]


async def test_records_that_lingered_are_sent_without_others(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, append_linger_ms=1)
    for number in range(2):
        sender.append(0, b"k", b"%d" % number, b"h")
        await brokers.wait_requests(number + 1)
        await wait_until(lambda: not sender._in_flight)
    assert await sender.close(5)


async def test_throttled_broker_is_not_sent_a_complete_round() -> None:
    for broker_id in (0, 1):
        brokers = FakeBrokers({0: broker_id})
        sender = make_sender(brokers)
        for _ in range(8):
            sender.append(0, b"k", b"1", b"h")
        await await_answers(sender, brokers, 1)
        sender.pace.slots[broker_id].linger.patient_until_s = asyncio.get_running_loop().time() + 60
        sender._throttle.on_answer(broker_id, 60_000)
        for _ in range(8):
            sender.append(0, b"k", b"2", b"h")
        await go_on()
        assert len(brokers.requests) == 1
        await sender.close(0)


async def test_a_broker_that_was_sent_nothing_has_no_part_in_a_round() -> None:
    brokers, loop = FakeBrokers({0: 1, 1: 2, 5: 9}), asyncio.get_running_loop()
    sender = make_sender(brokers)
    for partition in (0, 1):
        sender.append(partition, b"k", b"1", b"h")
    await await_answers(sender, brokers, 2)
    for _ in range(12):
        sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 3)
    for slot in sender.pace.slots.values():
        slot.linger.patient_until_s = loop.time() + 60
    for _ in range(4):
        sender.append(0, b"k", b"1", b"h")
    await go_on()
    assert len(brokers.requests) == 3, "a third of 12, which is not half of it"
    assert await sender.close(5)


async def test_new_records_after_answer_wait_for_others_until_enough(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers)
    for _ in range(8):
        sender.append(0, b"k", b"1", b"h")
    await await_answers(sender, brokers, 1)
    sender.append(0, b"k", b"2", b"h")
    sender.pace.flush_after_answer()
    assert sender._in_flight == 0
    for _ in range(3):
        sender.append(0, b"k", b"2", b"h")
    sender.pace.flush_after_answer()
    assert sender._in_flight == 1, "half of eight"
    assert await sender.close(5)


async def test_fixed_linger_goes_on_after_an_answer(brokers: FakeBrokers) -> None:
    sender = make_sender(brokers, append_linger_ms=60_000)
    brokers.withhold_answers()
    sender.append(0, b"k", b"1", b"h")
    sender.pace.flush()
    await brokers.wait_requests(1)
    sender.append(1, b"k", b"2", b"h")
    brokers.release_answers()
    await await_answers(sender, brokers, 1)
    await go_on()
    assert len(brokers.requests) == 1
    assert await sender.close(5)
