"""The log over librdkafka: what one client writes, the other one must read."""

from __future__ import annotations

import pytest

from holdfast.runtime.kafka_log.through_librdkafka import properties
from tests.pure.runtime.kafka_log.fake_cluster import FakeCluster
from tests.pure.runtime.kafka_log.log_world import Listener, make_log
from tests.pure.runtime.kafka_log.through_librdkafka.fake_clients import FakeClients
from tests.waiting import wait_until


async def test_a_consumer_that_does_not_read_what_was_acknowledged_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, reports = FakeClients(), Listener()
    monkeypatch.setattr(properties, "make_clients", lambda *_: clients)
    log = make_log(FakeCluster(monkeypatch, {0: (1, 0)}), client="librdkafka", request_timeout_ms=10)
    log._listener = reports
    log._tail.follow(0, 1, 0)
    log.append(0, b"k", b"v", b"h")
    await wait_until(lambda: clients.producers and clients.producers[0].waiting)
    clients.producers[0].settle(offset=0)
    await wait_until(lambda: len(clients.consumers) > 1, "another consumer")
    await log.close(1)
