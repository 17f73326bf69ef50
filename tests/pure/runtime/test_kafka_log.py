"""Offsets asked of brokers that fall silent, answer late or answer nonsense."""

from collections.abc import AsyncIterator
from struct import Struct
from typing import Any

import pytest

from holdfast.runtime.broker_connection import ConnectionOptions
from holdfast.runtime.kafka_log import KafkaLog, KafkaLogConfig
from tests.pure.runtime.fake_brokers import FakeBrokers, wait_until

_FOUND = Struct(">ihqqi")


def offsets(found: dict[int, int]) -> bytes:
    """Return the answer to ListOffsets."""
    head = bytes(4) + (1).to_bytes(4, "big") + b"\x00\x05topic" + len(found).to_bytes(4, "big")
    return head + b"".join(_FOUND.pack(partition, 0, -1, offset, 0) for partition, offset in found.items())


class Listener:
    """Keeps the latest offsets that it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[int, int | None]]] = []

    def latest_offsets(self, round_number: int, found: dict[int, int | None]) -> None:
        self.told.append((round_number, found))


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({0: 1, 1: 2, 2: 2})


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def log(brokers: FakeBrokers, listener: Listener) -> AsyncIterator[KafkaLog]:
    nobody = ConnectionOptions(bootstrap=(("127.0.0.1", 1),))
    config = KafkaLogConfig(
        topic="topic", connection=nobody, client={"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    )
    log: Any = KafkaLog(config, lambda: 0)
    log._brokers, log._listener = brokers, listener
    yield log
    for task in log._tasks:
        task.cancel()


async def test_a_silent_broker_holds_up_only_what_it_leads(
    log: KafkaLog, brokers: FakeBrokers, listener: Listener
) -> None:
    brokers.hold()
    log.ask_latest_offsets(1, [0, 1, 2])
    await brokers.wait_requests(2)
    assert [broker_id for broker_id, _, _ in brokers.requests] == [1, 2]
    silent = brokers._waiting.popleft()
    brokers.answers.append(lambda _: offsets({1: 5, 2: 6}))
    brokers.answer_one()
    await wait_until(lambda: bool(listener.told))
    assert listener.told == [(1, {1: 5, 2: 6})]
    brokers.answers.append(lambda _: offsets({0: 4}))
    silent.set_result(None)
    await wait_until(lambda: len(listener.told) == 2)
    assert listener.told[1] == (1, {0: 4})


async def test_an_answer_that_comes_when_another_leads_is_none(
    log: KafkaLog, brokers: FakeBrokers, listener: Listener
) -> None:
    brokers.hold()
    log.ask_latest_offsets(1, [1, 2])
    await brokers.wait_requests(1)
    brokers.elected[1] = {1: (1, 1)}
    await brokers.refresh()
    brokers.answers.append(lambda _: offsets({1: 5, 2: 6}))
    brokers.answer_one()
    await wait_until(lambda: bool(listener.told))
    assert listener.told == [(1, {1: None, 2: 6})]


async def test_whoever_asks_is_told_of_any_failure_after_the_leaders_were_asked_for_anew(
    log: KafkaLog, brokers: FakeBrokers, listener: Listener
) -> None:
    def fail(_: bytes) -> bytes:
        raise RuntimeError("unable to perform operation; the handler is closed")

    brokers.answers.extend([fail, lambda _: b"?"])
    for number in (1, 2):
        log.ask_latest_offsets(number, [0])
        await wait_until(lambda: len(listener.told) == number)  # noqa: B023 - waited for within the turn
        assert listener.told[-1] == (number, {0: None})
        assert brokers.refreshes == number
    brokers.failures_left = 1
    brokers.answers.append(fail)
    log.ask_latest_offsets(3, [0])
    await wait_until(lambda: len(listener.told) == 3)
    assert listener.told[-1] == (3, {0: None})
