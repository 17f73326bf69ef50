"""The link to a group's coordinator: it is found, lost and found again, and any failure on it becomes an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import Generation, MembershipSettings
from holdfast.membership.kafka_group.group_link import GroupLink
from holdfast.membership.requests import Acknowledged, Heartbeat, JoinGroup, Refused, Request
from holdfast.metrics.instruments import Counter
from tests.pure.kafka.discovery import fake_servers
from tests.waiting import in_patience, look_until, wait_until

JOIN_GROUP, HEARTBEAT = 11, 12
SETTINGS = MembershipSettings(
    group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=70_000, request_timeout_ms=5_000
)
JOIN = JoinGroup(Generation.NONE, (("p", b""),), "")
BEAT = Heartbeat(Generation(1, "m", "p"))


class Cluster:
    """A coordinator that answers as it is told, and two brokers that name it."""

    def __init__(self) -> None:
        #: "a" is the one to begin with.
        self.brokers = fake_servers.FakeCluster("ab")
        for broker in self.brokers.servers.values():
            broker.coordinator = lambda _type, _key: self.find_error or self.coordinator
        self.coordinator = "one"
        self.find_error: KioErrorCode | None = None
        self.throttle_ms = 0
        self.failure: Exception | None = None
        self.is_silent = False
        #: The first of two addresses of its name connects and says nothing: that takes half of the time to connect.
        self.has_silent_address = False
        self.gate = asyncio.Event()
        #: Connections that are being opened wait for this; None: for nothing.
        self.opening_gate: asyncio.Event | None = None
        #: Those that were opened, but for those of look-ups.
        self.connections: list[Connection] = []
        #: Host and bound of answers of each connection, but for those of look-ups.
        self.opened: list[tuple[str, int]] = []
        #: Host, API key and time of each request, but for look-ups.
        self.requests: list[tuple[str, int, float]] = []

    async def open(
        self, address: Address, options: ConnectionOptions, timeout_ms: int, answer_timeout_ms: int | None = None
    ) -> Connection | fake_servers.Connection:
        if address[0] in self.brokers.servers:
            return await self.brokers.open_one(address)
        self.opened.append((address[0], answer_timeout_ms or timeout_ms))
        if self.has_silent_address:
            await asyncio.sleep(timeout_ms / 2_000)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.opening_gate is not None:
            await self.opening_gate.wait()
        self.connections.append(Connection(self, address[0]))
        return self.connections[-1]

    def named_by(self) -> list[tuple[str, int]]:
        """Return which broker was queried for the coordinator each time, and in which version."""
        return [(asked.host, asked.version) for asked in self.brokers.requests()]

    def count(self, api_key: int) -> int:
        return sum(each[1] == api_key for each in self.requests)

    def answer(self, api_key: int) -> Any:
        throttle_time = i32Timedelta.parse(timedelta(milliseconds=self.throttle_ms))
        if api_key == HEARTBEAT:
            return HeartbeatResponse(throttle_time=throttle_time, error_code=KioErrorCode.none)
        return JoinGroupResponse(
            throttle_time=throttle_time,
            error_code=KioErrorCode.member_id_required,
            protocol_name=None,
            leader="",
            member_id="m",
            members=(),
        )


class Connection:
    """A connection to the coordinator."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._closed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set()

    def close(self) -> None:
        self._closed.set()

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        cluster = self._cluster
        cluster.requests.append((self._host, api_key, asyncio.get_running_loop().time()))
        if api_key == JOIN_GROUP:
            waits = [asyncio.create_task(each.wait()) for each in (cluster.gate, self._closed)]
            _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
            if self._closed.is_set():
                raise ConnectionFailed("closed")
        if cluster.failure is not None:
            raise cluster.failure
        answer = cluster.answer(api_key)
        buffer = BytesIO()
        entity_writer(type(answer))(buffer, answer)
        return buffer.getvalue()


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(BrokerConnection, "open", cluster.open)
    return cluster


def make_link(settings: MembershipSettings = SETTINGS, throttle_time_ms: Counter | None = None) -> GroupLink:
    return GroupLink(ConnectionOptions(bootstrap=(("a", 9092),)), settings, "test", throttle_time_ms)


async def test_heartbeats_do_not_wait_behind_a_join_that_the_broker_holds(cluster: Cluster) -> None:
    link = make_link()
    joining = asyncio.create_task(link.exchange(JOIN))
    await wait_until(lambda: cluster.count(JOIN_GROUP))
    assert await in_patience(link.exchange(BEAT)) == Acknowledged()
    assert not joining.done()
    # JoinGroup may take as long as a rebalance; of the others the session outlives two that are lost.
    assert cluster.opened == [("one", 75_000), ("one", 5_000)]
    cluster.gate.set()
    assert await in_patience(joining) == Refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    assert cluster.named_by() == [("a", 6)]


async def test_a_heartbeat_waits_no_longer_than_a_third_of_the_session(cluster: Cluster) -> None:
    short = MembershipSettings(group_id="g", session_timeout_ms=3_000, heartbeat_interval_ms=900)
    assert await make_link(short).exchange(BEAT) == Acknowledged()
    assert cluster.opened == [("one", 1_000)]


async def test_a_forgotten_coordinator_is_looked_up_again_and_its_requests_fail(cluster: Cluster) -> None:
    link = make_link()
    joining = asyncio.create_task(link.exchange(JOIN))
    await wait_until(lambda: cluster.count(JOIN_GROUP))
    cluster.coordinator = "two"
    link.forget()
    assert await in_patience(joining) == Refused(ErrorCode.NETWORK_EXCEPTION, "closed")
    assert await link.exchange(BEAT) == Acknowledged()
    assert [host for host, _ in cluster.opened] == ["one", "two"]


async def test_the_coordinator_is_found_when_every_broker_to_begin_with_is_gone(cluster: Cluster) -> None:
    link = make_link()
    await link.exchange(BEAT)
    cluster.brokers.servers["a"].is_gone = True
    cluster.coordinator = "two"
    link.forget()
    assert await in_patience(link.exchange(BEAT)) == Acknowledged()
    assert [host for host, _ in cluster.opened] == ["one", "two"]
    assert cluster.named_by() == [("a", 6), ("b", 6)]


async def test_a_broker_that_is_frozen_holds_no_look_up(cluster: Cluster) -> None:
    link = make_link(MembershipSettings(group_id="g", request_timeout_ms=40))
    await link.exchange(BEAT)
    cluster.brokers.servers["a"].is_silent = True
    link.forget()
    assert await in_patience(link.exchange(BEAT)) == Acknowledged()
    assert ("b", 6) in cluster.named_by()


async def test_a_broker_with_the_first_version_only_finds_the_coordinator(cluster: Cluster) -> None:
    for broker in cluster.brokers.servers.values():
        broker.versions[10] = (0, 0)
    assert await make_link().exchange(BEAT) == Acknowledged()
    assert cluster.named_by() == [("a", 0)]


async def test_two_requests_that_need_the_coordinator_share_one_look_up(cluster: Cluster) -> None:
    cluster.gate.set()
    link = make_link()
    await in_patience(asyncio.gather(link.exchange(JOIN), link.exchange(BEAT)))
    assert cluster.named_by() == [("a", 6)]


async def test_an_error_of_the_look_up_is_the_answer(cluster: Cluster) -> None:
    link = make_link()
    cluster.find_error = KioErrorCode.group_authorization_failed
    assert await link.exchange(JOIN) == Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    cluster.find_error = None
    assert await link.exchange(BEAT) == Acknowledged()


async def test_a_broken_connection_is_an_answer_and_the_next_request_connects(cluster: Cluster) -> None:
    link = make_link()
    cluster.failure = ConnectionFailed("broken")
    assert await link.exchange(BEAT) == Refused(ErrorCode.NETWORK_EXCEPTION, "broken")
    cluster.failure = None
    assert await link.exchange(BEAT) == Acknowledged()
    assert len(cluster.opened) == 2


async def test_a_connection_is_waited_for_no_longer_than_an_answer(cluster: Cluster) -> None:
    cluster.is_silent = True
    link = make_link(MembershipSettings(group_id="g", request_timeout_ms=1))
    for request in (JOIN, BEAT):
        answer = await in_patience(link.exchange(request))
        assert answer == Refused(ErrorCode.NETWORK_EXCEPTION, "one:9092 let nobody in for 1 ms")


@pytest.mark.parametrize("request_", [JOIN, BEAT], ids=["join", "heartbeat"])
async def test_a_coordinator_with_a_silent_address_is_reached_by_the_next(cluster: Cluster, request_: Request) -> None:
    cluster.has_silent_address = True
    cluster.gate.set()
    link = make_link(MembershipSettings(group_id="g", request_timeout_ms=200))
    # On a machine that stalls, the half that is left may be over.
    await look_until(
        lambda: in_patience(link.exchange(request_)),
        lambda answer: not isinstance(answer, Refused) or answer.error_code == ErrorCode.MEMBER_ID_REQUIRED,
        "a request behind the silent address",
    )


async def test_a_broker_that_is_too_old_is_a_final_answer(cluster: Cluster) -> None:
    cluster.failure = VersionUnsupported("version 4 of API 12")
    assert await make_link().exchange(BEAT) == Refused(ErrorCode.UNSUPPORTED_VERSION, "version 4 of API 12")


async def test_a_broker_that_throttles_is_left_alone_for_so_long(cluster: Cluster) -> None:
    throttle_time_ms = Counter()
    link = make_link(throttle_time_ms=throttle_time_ms)
    cluster.throttle_ms = 20
    cluster.brokers.servers["a"].throttles_ms = [1]
    for _ in range(2):
        await link.exchange(BEAT)
    first, second = (at_s for _, api_key, at_s in cluster.requests if api_key == HEARTBEAT)
    assert second - first >= 0.02
    assert throttle_time_ms.value == 41, "those of the broker that named the coordinator, too"


async def test_after_a_disconnect_a_request_connects_again(cluster: Cluster) -> None:
    link = make_link()
    await link.exchange(BEAT)
    link.disconnect()
    assert await link.exchange(BEAT) == Acknowledged()
    assert len(cluster.opened) == 2


async def test_after_close_no_connection_is_left(cluster: Cluster) -> None:
    link = make_link()
    await link.exchange(BEAT)
    link.close()
    assert not any(connection.is_open for _, connection in cluster.brokers.opened)
    refused = await link.exchange(BEAT)
    assert isinstance(refused, Refused)
    assert refused.error_code == ErrorCode.NETWORK_EXCEPTION
    assert not any(connection.is_open for connection in cluster.connections)


@pytest.mark.parametrize("end", [GroupLink.disconnect, GroupLink.close], ids=["disconnect", "close"])
async def test_a_connection_that_was_being_opened_ends_with_the_others(
    cluster: Cluster, end: Callable[[GroupLink], None]
) -> None:
    """A JoinGroup that was given up would join again who has left, and would be answered before any other."""
    link, cluster.opening_gate = make_link(), asyncio.Event()
    cluster.gate.set()
    joining = asyncio.create_task(link.exchange(JOIN))
    await wait_until(lambda: cluster.opened)
    end(link)
    cluster.opening_gate.set()
    refused = await in_patience(joining)
    assert refused == Refused(ErrorCode.NETWORK_EXCEPTION, "the connection was closed while it was opened")
    assert [connection.is_open for connection in cluster.connections] == [False]
    assert cluster.count(JOIN_GROUP) == 0
