"""Each error code that may leave a gateway, told to stock share consumers: they go on, or say one clear thing.

The node is in the process of the test, which changes what its answers say before they are encoded.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from holdfast.api import share_acknowledge, share_errors, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import ShareAcknowledgeResponse
from holdfast.api.share_fetch import FetchedPartition, Piece, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatResponse
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.interop.gateway.clients import (
    CLIENTS,
    NEWEST_JAVA,
    PYTHON,
    Client,
    ConsumerFailed,
    StockConsumer,
    stock_consumer,
)
from tests.real.gateway.test_stock_consumers import produce
from tests.real.nodes import topic_id_of
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

#: The application hears of these; every other code is the client's own affair.
TOLD: Final = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE}
#: These end a consumer.
FATAL: Final = {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_MAX_SIZE_REACHED}

_HEARTBEAT_MS: Final = 200
#: The newest of each; GATEWAY_CLIENTS=all tries all.
_TRIED: Final = CLIENTS if os.environ.get("GATEWAY_CLIENTS") == "all" else (PYTHON, NEWEST_JAVA)


class Answers:
    """Codes that the next answers of each kind say instead of success; where there are none, answers are as the node makes them."""

    def __init__(self, topic_id: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partition: list[int] = []
        self.whole: list[int] = []
        self.acknowledged: list[int] = []
        self.heartbeat: list[int] = []
        self._topic_id = topic_id
        self._encode_fetch = share_fetch.encode_response
        self._encode_acknowledge = share_acknowledge.encode_response
        self._encode_heartbeat = share_group_heartbeat.encode_response
        monkeypatch.setattr(share_fetch, "encode_response", self._fetch)
        monkeypatch.setattr(share_acknowledge, "encode_response", self._acknowledge)
        monkeypatch.setattr(share_group_heartbeat, "encode_response", self._beat)

    @property
    def left(self) -> list[int]:
        """Return the codes that no client was told yet."""
        return [*self.partition, *self.whole, *self.acknowledged, *self.heartbeat]

    def _fetch(self, answer: ShareFetchResponse) -> list[Piece]:
        partitions = [each for _, some in answer.topics for each in some]
        if self.acknowledged and partitions and not any(each.acquired for each in partitions):
            code = self.acknowledged.pop(0)
            settled = [each._replace(acknowledge_error_code=code) for each in partitions]
            answer = answer._replace(topics=[(self._topic_id, settled)])
        elif self.partition and not any(each.acquired for each in partitions):
            answer = answer._replace(
                topics=[(self._topic_id, [FetchedPartition(0, (), (), self.partition.pop(0), "told")])]
            )
        elif self.whole and not any(each.acquired for each in partitions):
            answer = answer._replace(topics=(), error_code=self.whole.pop(0), error_message="told")
        return self._encode_fetch(answer)

    def _acknowledge(self, version: int, answer: ShareAcknowledgeResponse) -> bytes:
        if self.acknowledged and answer.topics:
            code = self.acknowledged.pop(0)
            topics = [(topic, [each._replace(error_code=code) for each in some]) for topic, some in answer.topics]
            answer = answer._replace(topics=topics)
        return self._encode_acknowledge(version, answer)

    def _beat(self, answer: HeartbeatResponse) -> bytes:
        if self.heartbeat and not answer.error_code and answer.member_epoch > 0:
            answer = HeartbeatResponse(self.heartbeat.pop(0), "told")
        # The least that a group may have is 5 s.
        answer = answer._replace(heartbeat_interval_ms=min(answer.heartbeat_interval_ms, _HEARTBEAT_MS))
        return self._encode_heartbeat(answer)


class Talk:
    """A consumer and what its gateway answers."""

    def __init__(self, consumer: StockConsumer, answers: Answers, kafka: str, topic: str) -> None:
        self.answers = answers
        self._consumer = consumer
        self._kafka = kafka
        self._topic = topic

    async def until_told(self) -> None:
        """Poll until the answers have said all codes."""
        deadline = time.monotonic() + PATIENCE_S
        while self.answers.left:
            assert time.monotonic() < deadline, f"nobody was told {self.answers.left}"
            assert await asyncio.to_thread(self._consumer.poll, 100) == []

    async def work_off_one(self, code: int | None = None) -> None:
        """Have it take a record and accept it, and look at what it is told of that."""
        produce(self._kafka, self._topic, [b"order"])
        [given] = await asyncio.to_thread(self._consumer.poll_until, 1)
        await asyncio.to_thread(self._consumer.acknowledge, "ACCEPT", [given])
        self.answers.acknowledged += [] if code is None else [code]
        failed = await asyncio.to_thread(self._consumer.commit)
        assert bool(failed) == (code is not None), f"{code}: {failed}"

    async def error(self) -> str:
        """Poll until the application is told of an error, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, "the consumer says nothing"
            try:
                assert await asyncio.to_thread(self._consumer.poll, 100) == []
            except ConsumerFailed as failure:
                return str(failure).splitlines()[0]


@pytest_asyncio.fixture(params=_TRIED, ids=str)
async def talk(
    request: pytest.FixtureRequest, kafka: str, topic: str, new_topic: NewTopicFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Talk]:
    """Give a consumer of each release that has worked off a record."""
    client: Client = request.param
    offered = new_topic(1)
    settings = {"gateway.topics": offered, "gateway.groups.default.share.auto.offset.reset": "earliest"}
    async with running(make_settings(kafka, topic, **settings)) as node:
        answers = Answers(topic_id_of(kafka, offered), monkeypatch)
        with stock_consumer(client, node.address, f"group-{uuid.uuid4()}", offered) as consumer:
            talk = Talk(consumer, answers, kafka, offered)
            await talk.work_off_one()
            yield talk


async def test_consumer_goes_on_after_each_code_of_a_fetch(talk: Talk) -> None:
    for code in sorted(share_errors.FETCH_CODES - TOLD - {ErrorCode.NONE}):
        talk.answers.partition.append(code)
        await talk.until_told()
        await talk.work_off_one()
    for code in sorted(share_errors.REQUEST_CODES - {ErrorCode.NONE}):
        talk.answers.whole.append(code)
        await talk.until_told()
        await talk.work_off_one()
    for code in sorted(TOLD):
        talk.answers.partition.append(code)
        assert await talk.error()
        await talk.work_off_one()


async def test_consumer_is_told_each_code_of_an_acknowledgement_and_goes_on(talk: Talk) -> None:
    for code in sorted(share_errors.ACKNOWLEDGE_CODES - {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}):
        await talk.work_off_one(code)
    await talk.work_off_one()


async def test_consumer_joins_again_or_waits_after_each_code_of_a_heartbeat(talk: Talk) -> None:
    talk.answers.heartbeat += sorted(share_errors.HEARTBEAT_CODES - TOLD - FATAL - {ErrorCode.NONE})
    await talk.until_told()
    await talk.work_off_one()
    talk.answers.heartbeat.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert "opic" in await talk.error()
    await talk.work_off_one()


@pytest.mark.parametrize("code", sorted(FATAL), ids=lambda code: code.name)
async def test_consumer_that_may_not_go_on_says_so(talk: Talk, code: ErrorCode) -> None:
    talk.answers.heartbeat.append(code)
    assert await talk.error()
