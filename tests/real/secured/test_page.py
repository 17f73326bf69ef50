"""The page's table of rights against a real authorizer: without each of them one sentence names the ACL, and with it the page goes on."""

from __future__ import annotations

import asyncio
import html
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from holdfast.client import connect
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.kafka_page import KafkaPage
from holdfast.page.web.app import make_app
from holdfast.records.share.batches import AVAILABLE, StateBatch
from tests.kafka_acls import Acl
from tests.real.nodes import FIRST_CLIENT, topic_id_of
from tests.real.secured.secured_kafka import PASSWORD, UNCLOSED, SecuredKafka
from tests.waiting import PATIENCE_S
from tests.world.http import get
from tests.world.page_server import PageServer

pytestmark = [pytest.mark.real, *UNCLOSED]

STATES = "__share_group_state"


@asynccontextmanager
async def page_of(properties: dict[str, str]) -> AsyncIterator[int]:
    """Give the port of a page that comes to the brokers by some properties."""
    source = KafkaPage(
        connection_options(properties),
        (STATES,),
        bootstrap="here",
        now_ms=lambda: time.time_ns() // 1_000_000,
        run_id="run",
    )
    server, following = PageServer(make_app(source)), asyncio.create_task(source.run())
    await server.start("127.0.0.1", 0)
    try:
        yield server.port
    finally:
        following.cancel()
        await asyncio.wait([following])
        await server.stop()


async def ask(port: int, query: str, fits: Callable[[int, Any], object], **parameters: object) -> Any:
    """Return an answer as soon as it and its status fit."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = await get(port, f"/api/v1/{query}?{urlencode(parameters)}")
        if fits(answer.status, found := answer.json()):
            return found
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.1)


async def test_each_right_that_lacks_is_named_until_it_is_given(secured: SecuredKafka) -> None:
    topic, user = f"orders-{uuid.uuid4()}", f"page-{uuid.uuid4()}"
    secured.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": secured.open})
    producer.produce(topic, "one")
    assert producer.flush(PATIENCE_S) == 0
    async with connect(secured.open, FIRST_CLIENT) as client:
        topic_id = topic_id_of(secured.open, topic)
        await client.initialize(topic, topic_id, 0, state_epoch=1, start_offset=0)
        await client.write(topic, topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 2)])
    secured.set_password(PASSWORD, user)
    where = {"group": topic, "topic": format_topic_id(topic_id), "partition": 0}
    properties = secured.by_bare_password() | {"sasl.username": user, "sasl.password": PASSWORD}
    async with page_of(properties) as port:

        def lacks(what: str) -> Callable[[int, Any], bool]:
            return lambda _, found: f"; allow {what} to User:{user}" in str(found)

        async def page_says(path: str, what: str, **parameters: object) -> int:
            """Wait until a page says it, and return the status."""
            deadline = time.monotonic() + PATIENCE_S
            while True:
                shown = await get(port, f"/{path}?{urlencode(parameters)}")
                if f"; allow {what} to User:{user}" in html.unescape(shown.body.decode()):
                    return shown.status
                assert time.monotonic() < deadline, shown
                await asyncio.sleep(0.1)

        await ask(port, "group-topics", lacks(f"Describe on topic {STATES}"))
        assert await page_says("", f"Describe on topic {STATES}") == 403
        secured.allow([Acl("Describe", "topic", STATES)], user)
        await ask(port, "group-topics", lacks(f"Read on topic {STATES}"))
        await page_says("", f"Read on topic {STATES}")
        secured.allow([Acl("Read", "topic", STATES)], user)
        await ask(port, "window", lacks("Describe on the topic of this id"), **where)
        await page_says("window", "Describe on the topic of this id", **where)
        await page_says("group", "Describe on the topic of this id", **where)
        secured.allow([Acl("Describe", "topic", topic)], user)
        await ask(port, "window", lambda _, found: found.get("topic") == topic and found["row"]["lag"] == 1, **where)
        await ask(port, "record", lacks(f"Read on topic {topic}"), offset=0, **where)
        await page_says("record", f"Read on topic {topic}", offset=0, **where)
        secured.allow([Acl("Read", "topic", topic)], user)
        found = await ask(port, "record", lambda status, _: status == 200, offset=0, **where)
        assert found["value"]["base64"] == "b25l"

        def has_age(status: int, found: Any) -> bool:
            if status != 200 or found["unknown"]:
                return False
            [row] = [row for row in found["rows"] if row["group"] == topic]
            return row["oldest"]["written_ms"] is not None

        await ask(port, "group-topics", has_age)
