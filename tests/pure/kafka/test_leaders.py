"""The brokers of a topic, while they are being reached."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import REFRESH_INTERVAL_S, Brokers
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from tests.pure.kafka.brokers.metadata_answers import TOPIC_ID, metadata
from tests.waiting import PATIENCE_S, wait_until


class SilentServer:
    """Accepts connections and never answers."""

    def __init__(self) -> None:
        self.accepted = 0
        self.open = 0

    async def start(self) -> tuple[str, int]:
        """Listen and return the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def stop(self) -> None:
        """Listen no more."""
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        while await reader.read(1_000):
            pass
        self.open -= 1
        writer.close()


@pytest.mark.parametrize("ask", ["refresh", "connection"])
async def test_close_hangs_up_on_what_is_being_reached(ask: str) -> None:
    server = SilentServer()
    address = await server.start()
    brokers = Brokers(ConnectionOptions(bootstrap=(address,)), "topic", 10_000)
    brokers.addresses = {1: address}
    asking = asyncio.ensure_future(brokers.refresh() if ask == "refresh" else brokers.connection(1, "fetch"))
    await wait_until(lambda: server.accepted == 1)
    brokers.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await wait_until(lambda: server.open == 0)
    await server.stop()


async def test_broker_that_does_not_answer_in_time_is_hung_up_on() -> None:
    server = SilentServer()
    address = await server.start()
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{address[1]} cannot be reached"):
        await BrokerConnection.open(address, ConnectionOptions(bootstrap=(address,)), 50)
    await wait_until(lambda: server.accepted == 1)
    await wait_until(lambda: server.open == 0)
    await server.stop()


async def test_nobody_is_reached_after_close() -> None:
    brokers = Brokers(ConnectionOptions(bootstrap=(("127.0.0.1", 1),)), "topic", 10_000)
    brokers.addresses = {1: ("127.0.0.1", 1)}
    brokers.close()
    with pytest.raises(ConnectionFailed, match="broker 1 is not known"):
        await brokers.connection(1, "fetch")


class Place:
    """Brokers by address, each a coroutine function that answers a Metadata request or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Callable[[], Awaitable[bytes]]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        monkeypatch.setattr(BrokerConnection, "open", self._open)
        self.brokers = Brokers(ConnectionOptions(bootstrap=tuple((host, 1) for host in answers)), "topic", 10_000)

    async def _open(self, address: tuple[str, int], options: ConnectionOptions, timeout_ms: int) -> Any:
        if address[0] not in self._answers:
            raise ConnectionFailed("no such host")
        self.asked.append(address[0])
        place, host = self, address[0]

        class Connection:
            async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
                return await place._answers[host]()

            def close(self) -> None:
                place.asked.append(f"{host} closed")

        return Connection()


async def silence() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError("it never answers")


async def answer() -> bytes:
    return metadata({0: (7, 3)})


def always(body: bytes) -> Callable[[], Awaitable[bytes]]:
    """Return a broker that gives this answer."""

    async def answer_it() -> bytes:
        return body

    return answer_it


def in_turn(*bodies: bytes) -> Callable[[], Awaitable[bytes]]:
    """Return a broker that gives one of these answers after the other."""
    left = iter(bodies)

    async def answer_next() -> bytes:
        return next(left)

    return answer_next


async def nonsense() -> bytes:
    return b"?"


async def test_a_silent_broker_does_not_keep_the_others_from_telling_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, silent=silence, talking=answer, spare=answer)
    async with asyncio.timeout(PATIENCE_S):
        await place.brokers.refresh()
    assert place.brokers.leaders == {0: (7, 3)}
    assert place.asked == ["silent", "talking", "talking closed", "silent closed"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("first", [answer, nonsense])
async def test_the_pause_comes_before_the_next_query_and_not_behind_an_answer(
    monkeypatch: pytest.MonkeyPatch, first: Callable[[], Awaitable[bytes]]
) -> None:
    place, pauses_s = Place(monkeypatch, broker=first), list[tuple[float, int]]()
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        pauses_s.append((delay_s, len(place.asked)))
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", note)
    for _ in range(2):
        with suppress(ConnectionFailed):
            await place.brokers.refresh()
    (first_s, asked_before_first), (second_s, asked_before_second) = pauses_s
    assert first_s <= 0 < second_s <= REFRESH_INTERVAL_S
    assert asked_before_first == 0 < asked_before_second == len(place.asked) // 2


async def test_a_broker_that_talks_nonsense_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, nonsense=nonsense, talking=answer)
    await place.brokers.refresh()
    assert place.brokers.leaders == {0: (7, 3)}


async def test_when_no_broker_names_the_leaders_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused() -> bytes:
        raise ConnectionFailed("refused")

    place = Place(monkeypatch, first=refused, second=nonsense)
    with pytest.raises(ConnectionFailed, match=r"^refused; a broker sent an answer that cannot be read: "):
        await place.brokers.refresh()
    assert place.brokers.leaders == {}


async def test_a_broker_that_names_a_leader_of_the_past_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = metadata({0: (1, 3), 1: (1, 3)}), metadata({0: (2, 4), 1: (1, 3)})
    place = Place(monkeypatch, first=always(now), frozen=always(before))
    await place.brokers.refresh()
    place.brokers.addresses = {}
    await place.brokers.refresh()
    assert place.asked == ["first", "first closed", "frozen", "frozen closed", "first", "first closed"]
    assert place.brokers.leaders == {0: (2, 4), 1: (1, 3)}


async def test_a_broker_of_the_past_that_is_queried_first_is_not_believed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(monkeypatch, frozen=always(metadata({0: (1, 3)})), other=always(metadata({0: (2, 4)})))
    known = []
    for _ in range(4):
        await place.brokers.refresh()
        place.brokers.addresses = {}
        known.append(place.brokers.leaders[0])
    assert known == [(1, 3), (2, 4), (2, 4), (2, 4)]


async def test_where_every_broker_names_a_leader_of_the_past_the_last_known_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(monkeypatch, frozen=in_turn(metadata({0: (2, 4)}), metadata({0: (1, 3)})))
    await place.brokers.refresh()
    place.brokers.addresses = {}
    with pytest.raises(ConnectionFailed, match=r"^frozen:1 has not learned yet who leads now$"):
        await place.brokers.refresh()
    assert place.brokers.leaders == {0: (2, 4)}


async def test_a_leader_of_the_past_is_known_as_such_when_there_was_none_since(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = metadata({0: (1, 3)}), metadata({0: (-1, 4)}), metadata({0: (1, 3)})
    place = Place(monkeypatch, frozen=in_turn(*answers))
    for _ in range(2):
        await place.brokers.refresh()
        place.brokers.addresses = {}
    with pytest.raises(ConnectionFailed):
        await place.brokers.refresh()
    assert place.brokers.leaders == {}


async def test_a_topic_that_was_recreated_begins_with_low_leader_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = metadata({}, UUID(int=0), (1,), ErrorCode.unknown_topic_or_partition)
    answers = metadata({0: (1, 3)}), gone, metadata({0: (1, 0)}, UUID(int=2))
    Place(monkeypatch, **{"host-1": in_turn(*answers)})
    brokers = Brokers(ConnectionOptions(bootstrap=(("host-1", 9092),)), "topic", 10_000)
    for known in ({0: (1, 3)}, {}, {0: (1, 0)}):
        await brokers.refresh()
        assert (brokers.leaders, brokers.is_missing, brokers.has_topic) == (known, not known, True)


async def test_one_broker_suffices_for_a_missing_topic_while_another_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = metadata({}, UUID(int=0), (1, 2), ErrorCode.unknown_topic_or_partition)
    Place(monkeypatch, **{"host-1": in_turn(metadata({0: (2, 3)}, broker_ids=(1, 2)), gone), "host-2": silence})
    brokers = Brokers(ConnectionOptions(bootstrap=(("host-1", 9092),)), "topic", 10_000)
    async with asyncio.timeout(PATIENCE_S):
        for is_missing, known in ((False, {0: (2, 3)}), (True, {})):
            await brokers.refresh()
            assert (brokers.is_missing, brokers.leaders) == (is_missing, known)
            brokers.addresses = {}


async def test_topic_is_hidden_after_rights_are_taken_and_its_leaders_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden = metadata({}, UUID(int=0), (1,), ErrorCode.topic_authorization_failed)
    answers = hidden, metadata({0: (1, 3)}), hidden, metadata({0: (1, 2)}), metadata({0: (1, 3)})
    place = Place(monkeypatch, one=in_turn(*answers))
    for is_hidden, known in ((True, {}), (False, {0: (1, 3)}), (True, {})):
        await place.brokers.refresh()
        assert (place.brokers.is_hidden, place.brokers.leaders) == (is_hidden, known)
        place.brokers.addresses = {}
    with pytest.raises(ConnectionFailed, match="has not learned yet"):
        await place.brokers.refresh()
    await place.brokers.refresh()
    assert (place.brokers.is_hidden, place.brokers.leaders) == (False, {0: (1, 3)})


def one_of_two(leader: int, topic: int = 1) -> bytes:
    """Return an answer that names the brokers 1 and 2, and one of them as the leader in a topic of this id."""
    return metadata({0: (leader, 0)}, UUID(int=topic), (1, 2))


def wanting_brokers(*bootstrap: int) -> Brokers:
    """Return the brokers of the topic 1, of which these are known at first."""
    addresses = tuple((f"host-{number}", 9092) for number in bootstrap)
    return Brokers(ConnectionOptions(bootstrap=addresses), "topic", 10_000, TOPIC_ID.bytes)


@pytest.mark.parametrize("bootstrap", [(1, 2), (2, 1), (2,)], ids=str)
async def test_a_broker_that_knows_a_deleted_topic_of_the_name_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, bootstrap: tuple[int, ...]
) -> None:
    Place(monkeypatch, **{"host-1": always(one_of_two(1)), "host-2": always(one_of_two(2, topic=9))})
    brokers = wanting_brokers(*bootstrap)
    for _ in range(3):
        await brokers.refresh()
        assert brokers.leaders == {0: (1, 0)}


async def test_a_topic_that_every_broker_knows_has_taken_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = one_of_two(1), one_of_two(2, topic=9)
    Place(monkeypatch, **{"host-1": in_turn(before, before, now), "host-2": in_turn(now, now)})
    brokers = wanting_brokers(1, 2)
    for known in ({0: (1, 0)}, {0: (1, 0)}, {0: (2, 0)}):
        await brokers.refresh()
        assert brokers.leaders == known


@pytest.mark.parametrize("other", [nonsense, always(one_of_two(1, topic=8))], ids=["no answer", "another one"])
async def test_without_a_word_of_each_broker_no_other_topic_has_taken_the_name(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], Awaitable[bytes]]
) -> None:
    Place(monkeypatch, **{"host-1": other, "host-2": always(one_of_two(2, topic=9))})
    brokers = wanting_brokers(1, 2)
    with pytest.raises(ConnectionFailed, match=r"host-2:9092 means another topic by the name topic"):
        await brokers.refresh()
    assert brokers.leaders == {}


async def test_a_broker_that_knows_no_brokers_speaks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    Place(monkeypatch, **{"host-1": always(metadata({0: (1, 0)}, UUID(int=9), ()))})
    with pytest.raises(ConnectionFailed, match="means another topic"):
        await wanting_brokers(1).refresh()


async def test_the_brokers_that_were_known_stay_where_an_answer_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = metadata({0: (-1, 2)}, broker_ids=())
    place = Place(monkeypatch, **{"bootstrap": in_turn(metadata({0: (1, 1)}), stopping)})
    await place.brokers.refresh()
    await place.brokers.refresh()
    assert (place.brokers.leaders, dict(place.brokers.addresses)) == ({}, {1: ("host-1", 9092)})


async def test_of_a_topic_that_has_taken_the_name_no_leader_of_the_past_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, before = metadata({0: (1, 4)}, UUID(int=9), (1, 2)), metadata({0: (2, 3)}, UUID(int=9), (1, 2))
    Place(monkeypatch, **{"host-1": always(now), "host-2": in_turn(now, before, before)})
    brokers = wanting_brokers(1, 2)
    for _ in range(3):
        await brokers.refresh()
        assert brokers.leaders == {0: (1, 4)}


async def test_the_topic_that_is_wanted_from_now_on_needs_no_other_word(monkeypatch: pytest.MonkeyPatch) -> None:
    Place(monkeypatch, **{"host-1": always(one_of_two(1)), "host-2": always(one_of_two(2, topic=9))})
    brokers = wanting_brokers(1, 2)
    brokers.want("topic", UUID(int=9).bytes)
    await brokers.refresh()
    assert brokers.leaders == {0: (2, 0)}


def three_brokers(leader: int = 1) -> bytes:
    """Return an answer that names the brokers 1, 2 and 3."""
    return metadata({0: (leader, 3), 1: (2, 3), 2: (3, 3)})


async def test_a_broker_is_confirmed_by_another_one_and_never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"host-{number}": always(three_brokers()) for number in (1, 2)}
    place = Place(monkeypatch, **names)
    # Where the brokers are reached under the names that they give each other.
    brokers = Brokers(ConnectionOptions(bootstrap=(("host-1", 9092), ("host-2", 9092))), "topic", 10_000)
    loop = asyncio.get_running_loop()
    assert [brokers.confirmed_s(number) for number in (1, 2, 3)] == [-inf] * 3
    began_s = loop.time()
    await brokers.refresh()
    assert place.asked[0] == "host-1"
    assert brokers.confirmed_s(1) == -inf
    assert began_s <= brokers.confirmed_s(2) == brokers.confirmed_s(3) <= loop.time()
    brokers.addresses = {}
    await brokers.refresh()
    assert place.asked[2] == "host-2"
    assert brokers.confirmed_s(1) > brokers.confirmed_s(2)
    assert brokers.confirmed_s(3) == brokers.confirmed_s(1)


async def test_whoever_answers_under_a_name_that_no_broker_has_confirms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be any of them: a bootstrap address often is another name of a broker."""
    place = Place(monkeypatch, alias=always(three_brokers()))
    await place.brokers.refresh()
    assert [place.brokers.confirmed_s(number) for number in (1, 2, 3)] == [-inf] * 3


async def test_the_only_broker_of_a_cluster_confirms_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, alias=always(metadata({0: (1, 3)})))
    await place.brokers.refresh()
    assert place.brokers.confirmed_s(1) > -inf
