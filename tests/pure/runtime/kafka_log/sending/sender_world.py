"""A sender, and the requests that its brokers get."""

import asyncio
from typing import Any, Final

from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from holdfast.runtime.kafka_log.sending.sender import Sender
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from tests.configs import accumulator_config, sender_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, produced
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.waiting import PATIENCE_MS, wait_until

_VALUES: Final[dict[str, Any]] = {
    "accumulator": accumulator_config(producer_queue_records_max=20),
    "message_timeout_ms": PATIENCE_MS,
    "produce_requests_in_flight_max": 2,
    "retry_backoff_ms": 1,
}
CONFIG = sender_config(**_VALUES)

Failures = list[tuple[int, bytes]]
Landings = list[tuple[int, bytes, int]]


def make_sender(brokers: FakeBrokers, **settings: Any) -> Sender:
    """Return a sender without listeners."""
    config = sender_config(**{**_VALUES, **settings})
    return Sender(config, brokers, SentBatches(), lambda *_: None, lambda *_: None, lambda: 1_000, make_metrics())  # type: ignore[arg-type]


def sent_of(sender: Sender, partition: int) -> list[SentBatch]:
    """Return the batches that were not read back, oldest first."""
    return list(sender.accumulator._sent._by_partition[partition])


def batches_of(body: bytes) -> dict[int, list[bytes]]:
    """Return the values that a Produce request carries, by partition."""
    at, found = body.index(b"\x00\x05topic") + 7, {}
    count = int.from_bytes(body[at : at + 4], "big")
    at += 4
    for _ in range(count):
        partition, size = int.from_bytes(body[at : at + 4], "big"), int.from_bytes(body[at + 4 : at + 8], "big")
        batch = MemoryRecords(body[at + 8 : at + 8 + size]).next_batch()
        assert batch.validate_crc()
        found[partition] = [record.value for record in batch]
        at += 8 + size
    return found


def refused(error_codes: dict[int, int]) -> bytes:
    """Return the answer to a Produce with only these partitions, each with its error code."""
    head = (1).to_bytes(4, "big") + b"\x00\x05topic" + len(error_codes).to_bytes(4, "big")
    entries = [
        partition.to_bytes(4, "big") + code.to_bytes(2, "big") + bytes(8 + 16 + 4) + b"\xff\xff"
        for partition, code in error_codes.items()
    ]
    return head + b"".join(entries) + bytes(4)


def throttled(body: bytes, throttle_ms: int, error_code: int = 0) -> bytes:
    """Return the answer of a broker that throttles because of a quota."""
    return produced(body, error_code)[:-4] + throttle_ms.to_bytes(4, "big")


async def go_on() -> None:
    """Run more turns of the loop than a flush waits for others."""
    for _ in range(20):
        await asyncio.sleep(0)


async def await_answers(sender: Sender, brokers: FakeBrokers, count: int) -> None:
    """Wait until brokers were sent `count` requests and have answered all of them."""
    await brokers.wait_requests(count)
    await wait_until(lambda: not sender._in_flight)
