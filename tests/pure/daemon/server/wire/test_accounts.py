"""The quota of a client over all its connections: what is over it waits, and no other client does."""

from __future__ import annotations

import asyncio
from time import monotonic

from holdfast.api import share_state
from holdfast.daemon.server.wire.accounts import Account, Accounts
from holdfast.daemon.server.wire.connection import NEED_DATA, NEED_QUOTA, Connection
from holdfast.daemon.server.wire.requests import ANONYMOUS, Request, RequestMemory, WireBounds
from holdfast.daemon.server.wire.turns import Payer, Turns, Worker
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from tests.waiting import wait_until
from tests.world.serving import CountingTransport, open_connection, serve, write_body, write_frame
from tests.world.tenants import APIS

LIMITS = LimitSettings(
    requests_in_flight_per_principal_max=4,
    requests_in_flight_bytes_per_principal_max=100_000,
    connections_max=50,
)
#: A slice of time that never ends: how busy the machine is must not decide who goes on in which turn.
BOUNDS = WireBounds(slice_ms=60_000)


class Idler(Worker):
    """A connection that never works."""

    def __init__(self) -> None:
        super().__init__(Payer())

    def work(self, ends_s: float) -> bool:
        return False


def unused(bug: Exception) -> None:
    raise bug


def make_accounts() -> Accounts:
    return Accounts(LIMITS, RequestMemory(), Turns(5, monotonic), unused)


def test_a_client_is_a_principal_or_without_login_an_address() -> None:
    accounts = make_accounts()
    first = accounts.enter("User:a", "10.0.0.1")
    assert accounts.enter("User:a", "10.0.0.2") is first
    assert accounts.enter("User:b", "10.0.0.1") is not first
    nobody = accounts.enter(ANONYMOUS, "10.0.0.1")
    assert accounts.enter(ANONYMOUS, "10.0.0.1") is nobody
    assert accounts.enter(ANONYMOUS, "10.0.0.2") is not nobody
    assert [account.connections for account in accounts._open.values()] == [2, 1, 2, 1]


def test_an_account_ends_with_its_last_connection_and_the_last_of_its_requests() -> None:
    accounts, node, one, two = make_accounts(), RequestMemory(), Idler(), Idler()
    account = accounts.enter("User:a", "h")
    account.memory.count_work(1, 10)
    request = Request(85, 1, 1, b"", b"", 0, "h:1", account.memory, 10)
    accounts.leave(account, one)
    assert accounts.take_ready() == []
    assert accounts.enter("User:a", "h") is account, "who comes back has what it began before"
    accounts.leave(account, two)
    request.release()
    request.release()
    assert accounts.take_ready() == []
    assert (accounts._open, accounts._watched) == ({}, {})
    assert accounts.enter("User:a", "h") is not account
    assert node.requests == 0


def test_as_many_connections_try_again_as_there_is_room_for_requests() -> None:
    accounts, idlers = make_accounts(), [Idler() for _ in range(6)]
    account = accounts.enter("User:a", "h")
    account.memory.requests = 4
    for idler in (*idlers, idlers[0]):
        accounts.wait(account, idler)
    assert accounts.take_ready() == []
    account.memory.requests = 2
    assert accounts.take_ready() == idlers[:2]
    account.memory.work_bytes = 100_000
    assert accounts.take_ready() == idlers[2:3], "small ones may go on"
    accounts.leave(account, idlers[3])
    account.memory.requests = account.memory.work_bytes = 0
    assert accounts.take_ready() == idlers[4:]
    assert accounts.take_ready() == []


def test_a_running_node_keeps_to_another_quota_at_once() -> None:
    accounts = make_accounts()
    account = accounts.enter("User:a", "h")
    account.memory.requests = 4
    assert not account.has_room(is_large=False)
    accounts.reconfigure(LIMITS.model_copy(update={"requests_in_flight_per_principal_max": 5}))
    assert account.has_room(is_large=False)
    account.memory.work_bytes = 100_000
    assert account.has_room(is_large=False)
    assert not account.has_room(is_large=True)


def test_a_connection_says_that_its_client_has_all_it_may_have_and_goes_on_when_it_has_not() -> None:
    node = RequestMemory()
    account = Account("User:a", LIMITS, node, Turns(5, monotonic), unused)
    one, two = (Connection(APIS, LIMITS, "h:1", 0, node) for _ in range(2))
    for connection in (one, two):
        connection.join(account)
        connection.receive(b"".join(write_frame(number) for number in range(3)))
    begun = [connection.next_event(0) for connection in (one, one, one, two)]
    assert all(isinstance(each, Request) for each in begun)
    assert (two.next_event(0), one.next_event(0)) == (NEED_QUOTA, NEED_DATA)
    assert (account.memory.requests, node.requests) == (4, 4)
    assert isinstance(begun[0], Request)
    one.reply(begun[0], b"")
    last = two.next_event(0)
    assert (isinstance(last, Request), two.next_event(0)) == (True, NEED_QUOTA)
    for request in (*begun[1:], last):
        assert isinstance(request, Request)
        request.release()
    assert (account.memory.requests, node.requests, node.work_bytes) == (0, 0, 0)


async def test_what_is_over_the_quota_is_not_begun_and_another_client_does_not_notice() -> None:
    async with serve(LIMITS, bounds=BOUNDS) as served:
        served.service.is_holding = True
        greedy = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(3)]
        for number, client in enumerate(greedy):
            client.data_received(b"".join(write_frame(10 * number + each) for each in range(3)))
        await asyncio.sleep(0)
        assert len(served.service.held) == 4
        polite = await open_connection(served, CountingTransport("10.0.0.2"))
        polite.data_received(write_frame(99))
        await asyncio.sleep(0)
        assert len(served.service.held) == 5
        for begun in (6, 7, 8, 9):  # each that is answered lets one more begin
            served.service.release()
            await wait_until(lambda begun=begun: len(served.service.requests) == begun)  # type: ignore[misc]
            assert len(served.service.held) == 5
        while served.server.connections.memory.requests:
            served.service.release()
            await asyncio.sleep(0)
        assert len(served.service.requests) == 10


async def test_a_client_that_logs_in_is_counted_as_its_principal_from_then_on() -> None:
    async with serve(LIMITS, bounds=BOUNDS) as served:
        served.service.is_holding = True
        one, two = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(2)]
        one.data_received(write_frame(1))
        await asyncio.sleep(0)
        assert one.payer is two.payer, "they share their turns, too"
        assert one._connection is not None
        one._connection.principal = "User:a"
        one.data_received(b"".join(write_frame(number) for number in range(2, 6)))
        await asyncio.sleep(0)
        assert len(served.service.held) == 5, "four as User:a, beside the one before the login"
        assert one.payer is not two.payer
        two.data_received(b"".join(write_frame(number) for number in range(4)))
        await asyncio.sleep(0)
        assert len(served.service.held) == 8, "three more from the address"
        names = {name: account.memory.requests for name, account in served.server.connections.accounts._open.items()}
        assert names == {"10.0.0.1": 4, "User:a": 4}
        while served.server.connections.memory.requests:
            served.service.release()
            await asyncio.sleep(0)


async def test_large_requests_wait_for_the_bytes_of_their_client_and_small_ones_do_not() -> None:
    async with serve(LIMITS, bounds=BOUNDS) as served:
        served.service.is_holding = True
        one, two = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(2)]
        large = frames.encode_request(share_state.WRITE, 1, 3, b"test", write_body(batches=400))
        one.data_received(large + large)
        await wait_until(lambda: len(served.service.requests) == 1 and not served.server.connections.turns.waiting)
        two.data_received(write_frame(7))
        await asyncio.sleep(0)
        assert len(served.service.requests) == 2
        served.service.release()
        await wait_until(lambda: len(served.service.requests) == 3)
        while served.server.connections.memory.requests:
            served.service.release()
            await asyncio.sleep(0)


async def test_a_greedy_client_gets_all_its_answers_whatever_its_quota() -> None:
    async with serve(LIMITS, bounds=BOUNDS) as served:
        served.service.is_holding = True
        clients = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(20)]
        for client in clients:
            client.data_received(b"".join(write_frame(number) for number in range(50)))
        requests = served.service.requests
        while served.service.held:
            assert len(served.service.held) <= 4
            served.service.release()
            if len(requests) % 3 == 0:
                await wait_until(lambda: not served.server.connections.turns.waiting)
            if not served.service.held:
                await wait_until(lambda: bool(served.service.held) or len(requests) == 1_000)
        assert len(requests) == 1_000


async def test_room_that_a_connection_cannot_use_goes_to_the_next_of_its_client() -> None:
    async with serve(LimitSettings(requests_in_flight_per_principal_max=1)) as served:
        served.service.is_holding = True
        silent = await open_connection(served, CountingTransport("10.0.0.1"))
        other = await open_connection(served, CountingTransport("10.0.0.1"))
        [account] = served.server.connections.accounts._open.values()
        silent.data_received(write_frame(1) + write_frame(2))
        await wait_until(lambda: served.service.requests and silent in account.waiting)
        other.data_received(write_frame(3))
        await wait_until(lambda: other in account.waiting)
        silent.pause_writing()  # its client does not read
        served.service.release()
        await wait_until(lambda: len(served.service.requests) == 2)
        assert (served.server.connections.memory.requests, list(account.waiting)) == (1, [])
        served.service.release()
