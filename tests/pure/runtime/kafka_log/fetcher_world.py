"""A listener that keeps the reports of a fetcher, and answers to its fetches."""

from collections.abc import Callable
from typing import Any

from holdfast.kafka.protocol.requests import Fetched
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig
from holdfast.runtime.kafka_log.fetcher import Fetcher, FetchEvents
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.metrics import RuntimeMetrics
from tests.configs import fetcher_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers

CONFIG = fetcher_config()


class Reports:
    """A listener that accepts batches as ours or not, as the test says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.takes_own = True
        self.at_records: Callable[[], object] = lambda: None

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        answered = ", ".join(f"{record.offset} {(record.value or b'').decode()}" for record in records)
        self.lines.append(f"{partition} instance {instance}: {answered}")
        self.at_records()

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        if self.takes_own:
            self.lines.append(f"{partition} instance {instance}: {count} own from {base_offset}")
        self.at_records()
        return self.takes_own

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        self.lines.append(f"{partition} instance {instance}: stands at {next_offset}")

    def ended(self, partition: int, instance: int, next_offset: int, last_epoch: int) -> None:
        self.lines.append(f"{partition} instance {instance}: ended at {next_offset}")

    def log_start_moved(self, partition: int, instance: int, log_start_offset: int) -> None:
        if log_start_offset:
            self.lines.append(f"{partition} instance {instance}: log starts at {log_start_offset}")

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        self.lines.append(f"{partition} instance {instance}: {'alarm' if error.is_alarm else 'failed'}, {error.text}")


class Sent:
    """The batches that were sent to partition 0 and not read back."""

    def __init__(self, *batches: SentBatch) -> None:
        self.batches = SentBatches()
        for batch in batches:
            self.append(batch)

    def append(self, batch: SentBatch) -> None:
        self.batches.add(0, batch)

    @property
    def oldest(self) -> SentBatch:
        oldest = self.batches.oldest(0)
        assert oldest is not None
        return oldest

    def __bool__(self) -> bool:
        return self.batches.oldest(0) is not None

    def clear(self) -> None:
        self.batches.forget(0)


def make_metrics() -> RuntimeMetrics:
    return RuntimeMetrics(Registry())


def make_tail(brokers: Any, reports: Any, sent: SentBatches, config: FetcherConfig = CONFIG) -> Fetcher:
    """Return a fetcher of the tail; it tells `reports` when a partition is followed to its end."""
    return Fetcher("tail", config, brokers, lambda: reports, sent, make_metrics(), FetchEvents(reports.ended))


def found(records: bytes, partition: int = 0, *, error_code: int = 0, is_diverging: bool = False) -> Fetched:
    return Fetched(partition, error_code, 99, 0, is_diverging, records)


async def answer(brokers: FakeBrokers, *answers: bytes) -> None:
    """Answer the waiting fetch and the ones after it with these, and stop before the next one."""
    for each in answers:
        count = len(brokers.requests)
        brokers.answers.append(lambda _, each=each: each)  # type: ignore[misc]
        brokers.withhold_answers()
        await brokers.wait_requests(max(1, count))
        brokers.answer_one()
        await brokers.wait_requests(max(1, count) + 1)
