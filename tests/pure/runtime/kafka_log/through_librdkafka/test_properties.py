"""The properties of clients of librdkafka, and the lines of theirs that are logged."""

from __future__ import annotations

import asyncio
import logging

import pytest
from confluent_kafka import Consumer, Producer

from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.kafka.librdkafka import KafkaClients, unsaid
from holdfast.runtime.kafka_log.through_librdkafka.properties import (
    LinesOnLoop,
    consumer_properties,
    make_clients,
    producer_properties,
)

DAY_MS = 24 * 60 * 60_000
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("fetch_bytes_max", [64 * 1024, 4 * 1_048_576, 1024 * 1_048_576])
@pytest.mark.parametrize("fetch_wait_ms", [1, DAY_MS])
def test_a_consumer_takes_all_bounds_that_settings_allow(fetch_bytes_max: int, fetch_wait_ms: int) -> None:
    properties = consumer_properties(
        fetch_wait_ms=fetch_wait_ms,
        fetch_bytes_max=fetch_bytes_max,
        fetch_partition_bytes_max=16 * 1024,
        request_timeout_ms=1,
    )
    consumer = KafkaClients(NOWHERE).consumer("name", properties)
    assert isinstance(consumer, Consumer)
    consumer.close()


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(("message_bytes_max", "records_max"), [(200, 2), (2**31 - 1, 20_000_000)])
def test_a_producer_takes_all_bounds_that_settings_allow(codec: int, message_bytes_max: int, records_max: int) -> None:
    properties = producer_properties(
        message_bytes_max=message_bytes_max,
        message_timeout_ms=1_000 if codec else DAY_MS,
        request_timeout_ms=1 if codec else DAY_MS,
        linger_ms=1_000,
        records_max=records_max,
        codec=codec,
    )
    assert isinstance(KafkaClients(NOWHERE).producer(properties), Producer)


def test_clients_have_the_properties_of_the_time_at_which_they_are_made() -> None:
    live = LiveProperties(NOWHERE)
    clients = make_clients(live.connection_options(), unsaid)
    assert clients.renewals == 0
    live.renew({**NOWHERE, "client.id": "renewed"})
    assert clients.renewals == 1
    assert clients._now()["client.id"] == "renewed"
    by_hand = make_clients(ConnectionOptions(bootstrap=(("::1", 9092), ("a", 1))), unsaid)
    assert by_hand.bootstrap_servers == "[::1]:9092,a:1"


async def test_lines_about_logins_are_said_on_the_loop_and_no_others() -> None:
    said: list[str] = []
    lines = LinesOnLoop(lambda *line: said.append(line[3]))
    texts = ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", "SASL authentication error: no such user")
    for text in texts:
        await asyncio.to_thread(lines, logging.ERROR, "FAIL", "rdkafka#1", text)
    await asyncio.sleep(0)
    assert said == [texts[1]]
