"""A sender and a tail with their brokers, for the tests of this room."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, fetched
from tests.pure.runtime.kafka_log.fetcher_world import Reports, Sent, make_metrics, make_tail
from tests.pure.runtime.kafka_log.sending.sender_world import CONFIG as SENDER_CONFIG
from tests.pure.runtime.kafka_log.sending.sender_world import Failures, Landings
from tests.waiting import PATIENCE_MS


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({0: 1, 1: 1, 2: 2})


@pytest.fixture
def failures() -> Failures:
    return []


@pytest.fixture
def landings() -> Landings:
    return []


@pytest.fixture
def message_timeout_ms() -> int:
    return PATIENCE_MS


@pytest.fixture
async def sender(
    brokers: FakeBrokers, landings: Landings, failures: Failures, message_timeout_ms: int
) -> AsyncIterator[Sender]:
    def landed(partition: int, batch: SentBatch, base_offset: int) -> None:
        landings.append((partition, batch.first_header, base_offset))

    def failed(partition: int, header: bytes, _: str) -> None:
        failures.append((partition, header))

    config = replace(SENDER_CONFIG, message_timeout_ms=message_timeout_ms)
    sender = Sender(config, brokers, SentBatches(), landed, failed, lambda: 1_000, make_metrics())  # type: ignore[arg-type]
    yield sender
    await sender.close(1)


@pytest.fixture
def silent_brokers() -> FakeBrokers:
    silent_brokers = FakeBrokers({0: 1, 1: 1})
    silent_brokers.withhold_answers()
    silent_brokers.always = lambda _: fetched([])
    return silent_brokers


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def tail(silent_brokers: FakeBrokers, reports: Reports, sent: Sent) -> AsyncIterator[Fetcher]:
    tail = make_tail(silent_brokers, reports, sent.batches)
    yield tail
    await tail.close()
