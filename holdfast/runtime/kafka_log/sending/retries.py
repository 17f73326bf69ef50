"""Retries of batches: each is sent again after a pause, to its leader by then, until its time is over."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.sending.broker_slot import PendingBatch, ProduceRequest, leader_id, make_retry


class RetryPorts(NamedTuple):
    """The calls of a sender that its retries make."""

    #: Runs a task; the sender waits for its end when it closes.
    run: Callable[[Coroutine[Any, Any, None]], None]
    #: Sends a request.
    send: Callable[[ProduceRequest], None]
    #: Ends a batch if the tail has read it meanwhile; returns whether it has.
    end_read_back: Callable[[PendingBatch], bool]
    #: Ends a batch that may or may not be in the log, with the reason.
    give_up: Callable[[PendingBatch, str], None]


class Retries:
    """The batches of one sender whose last attempt was not acknowledged."""

    def __init__(
        self,
        backoff_ms: int,
        message_timeout_ms: int,
        brokers: Brokers,
        throttle: Throttle[int],
        bugs: BugReports,
        sender: RetryPorts,
    ) -> None:
        """Keep the calls of the sender.

        Args:
            backoff_ms: the pause before each attempt.
            message_timeout_ms: the time for which a batch is tried, for error texts.
            brokers: the leaders of partitions.
            throttle: the time for which each broker must be sent nothing.
            bugs: the receiver of bugs of ours.
            sender: the calls that it takes.
        """
        self._backoff_s = backoff_ms / 1_000
        self._message_timeout_ms = message_timeout_ms
        self._brokers = brokers
        self._throttle = throttle
        self._bugs = bugs
        self._run_task, self._send, self._end_read_back, self._give_up = sender
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def close(self) -> None:
        """Stop all retries; no batch is given up from now on."""
        self._is_closed = True

    def retry(self, batches: Iterable[PendingBatch], why: str) -> None:
        """Send batches again; each is given up when its time is over, in any state of its retry."""
        if self._is_closed:
            return
        again = [batch for batch in batches if not batch.is_over]
        for batch in again:
            batch.failure = why
            if batch.end is None:
                batch.end = self._loop.call_at(batch.expires_s, self._expire, batch)
        if again:
            self._run_task(self._send_again(again))

    async def _send_again(self, batches: list[PendingBatch]) -> None:
        await asyncio.sleep(self._backoff_s)
        try:
            await self._brokers.refresh()
        except Exception as failure:
            self.retry(batches, self._bugs.explain(failure, "looking up leaders failed"))
            return
        by_broker: dict[int | None, list[PendingBatch]] = {}
        for batch in batches:
            if batch.is_over or self._end_read_back(batch):
                continue
            by_broker.setdefault(leader_id(self._brokers.leaders, batch.partition), []).append(batch)
        for broker_id, led in by_broker.items():
            wait_s = 0.0 if broker_id is None else self._throttle.wait_s(broker_id)
            request = make_retry(broker_id, led)
            if wait_s > 0:
                self._run_task(self._send_later(wait_s, request))
            else:
                self._send(request)

    async def _send_later(self, wait_s: float, request: ProduceRequest) -> None:
        await asyncio.sleep(wait_s)
        request.batches = [batch for batch in request.batches if not batch.is_over]
        if request.batches:
            self._send(request)

    def _expire(self, batch: PendingBatch) -> None:
        if not self._is_closed and not self._end_read_back(batch):
            self._give_up(batch, f"{batch.failure}; tried for {self._message_timeout_ms} ms")
