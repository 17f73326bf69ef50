"""Records of topics that a reader of a node's page may not READ, by name and by id, and the groups that it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.daemon.access.acl import Operation, PatternType
from holdfast.daemon.access.rules import Rules
from holdfast.daemon.http.readers import Reader
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import NO_SUCH_ID, Ends
from holdfast.page.book import Described
from holdfast.page.moment import End, Moment, Place, make_place
from holdfast.page.source import SPARK_MINUTES, PageRefused
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import replay
from holdfast.share.page.node_page import NodePage
from holdfast.share.page.purse import Purse
from holdfast.share.page.rights import READER, Rights
from tests.pure.page.samples import NOW_MS, snapshot
from tests.world.identity.access import closed, cluster_acl, group_acl, topic_acl

SECRET_ID = bytes([9] * 16)
SECRET = format_topic_id(SECRET_ID)


def place_of(topic_id: bytes, partition: int, topic: str | None, problem: str = "", group: str = "workers") -> Place:
    key = SharePartitionKey(group, topic_id, partition)
    state = replay(None, snapshot(), 0)
    assert state is not None
    described = Described(state, "1", describe_state(key, state, 0, "1"), 0)
    return make_place(key, described, End(topic, Ends(0, 10, problem)))


GROUPS = [place_of(bytes(16), 0, "orders", group=f"group-{number}") for number in range(1_000)]


class Page(NodePage):
    """The page of a node that has these share partitions, to a reader with READ on some topics; it gives the topic that was read."""

    def __init__(self, places: list[Place], *may_read: str) -> None:
        topic = SimpleNamespace(name="states", topic_id=bytes(16))
        place = SimpleNamespace(connection=connection_options({"bootstrap.servers": "127.0.0.1:1"}), topic=topic)
        cluster = SimpleNamespace(record_times=None)
        log = cast(
            "Any",
            SimpleNamespace(
                place=place, partitions=(), cluster=cluster, describe_elsewhere=list, leader_unheard_since_s=None
            ),
        )
        none = cast("Any", None)
        authorizer = closed(*(topic_acl(Operation.READ, each) for each in may_read))
        super().__init__(log, authorizer, none, none, Purse(), lambda: NOW_MS)
        self._of = Moment(NOW_MS, places, {}, lambda *_: (0,) * SPARK_MINUTES, (), "run", {})
        self._looks = cast("Any", SimpleNamespace(record=self._read))

    async def moment(self) -> Moment:
        return self._of

    async def _read(self, name: str, *_: object) -> Any:
        return name


@pytest.fixture(autouse=True)
def reader() -> None:
    READER.set(Reader("User:ANONYMOUS", "127.0.0.1:9"))


async def test_a_topic_named_as_the_id_of_another_gives_no_right_to_it() -> None:
    page = Page([place_of(bytes(16), 0, SECRET), place_of(SECRET_ID, 1, "secret")], SECRET)
    with pytest.raises(PageRefused, match="may not READ the TOPIC 'secret'") as refused:
        await page.record(SECRET, 1, 5)
    assert refused.value.status == 403


async def test_a_topic_whose_name_is_not_known_is_read_by_nobody_with_rules() -> None:
    page = Page([place_of(SECRET_ID, 0, None)], "*")
    with pytest.raises(PageRefused, match="not known who may READ it") as refused:
        await page.record(SECRET, 0, 5)
    assert refused.value.status == 503


async def test_a_reader_with_rights_learns_that_a_topic_was_deleted() -> None:
    page = Page([place_of(SECRET_ID, 0, None, NO_SUCH_ID)], "orders")
    with pytest.raises(PageRefused, match="was deleted, and its records with it") as refused:
        await page.record(SECRET, 0, 5)
    assert refused.value.status == 410


async def test_the_right_to_a_topic_is_enough_by_its_name_and_by_its_id() -> None:
    page = Page([place_of(SECRET_ID, 0, "secret")], "secret")
    read: list[object] = [await page.record(text, 0, 5) for text in ("secret", SECRET)]
    assert read == ["secret", "secret"]


async def test_a_topic_of_no_group_is_refused_as_one_that_may_not_be_read() -> None:
    page = Page([])
    with pytest.raises(PageRefused) as refused:
        await page.record("nothing", 0, 5)
    assert refused.value.status == 403


def moment_of(*places: Place) -> Moment:
    return Moment(NOW_MS, places, {}, lambda *_: (0,) * SPARK_MINUTES, (), "run", {})


async def test_a_reader_sees_its_groups_alone_and_the_loop_turns_meanwhile() -> None:
    rights, moment = Rights(closed(group_acl(Operation.DESCRIBE, "group-7"))), moment_of(*GROUPS)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    seen = await rights.see(moment)
    counting.cancel()
    assert list(seen.group_names()) == ["group-7"]
    assert seen.groups(None).rows_in_all == 1
    assert turns >= 4
    assert await rights.see(moment) is seen
    READER.set(Reader("User:other", "127.0.0.1:9"))
    assert list((await rights.see(moment)).group_names()) == []


async def test_a_reader_learns_of_changes_of_groups_alone_that_it_sees() -> None:
    page, shown = Page([]), list[int]()
    page._authorizer.reconfigure(Rules([group_acl(Operation.DESCRIBE, "group-1")]))
    groups = [place_of(bytes(16), 0, "orders", group=f"group-{number}") for number in range(2)]
    now = moment_of(*groups)

    async def changed() -> AsyncIterator[bool]:
        nonlocal now
        yield False
        for number in (0, 1, 0):
            groups[number] = place_of(bytes(16), 0, f"orders-{len(shown)}", group=f"group-{number}")
            now = moment_of(*groups)
            yield False
        yield True

    async def moment() -> Moment:
        return now

    page._moments = cast("Any", SimpleNamespace(moment=moment, changed=changed))
    async for _ in page.changed():
        shown.append(len(shown))
    assert len(shown) == 3, "at first, of its own group, and when all look again"
    assert page.audience() == "127.0.0.1 User:ANONYMOUS"


async def test_rules_that_change_while_a_moment_is_looked_through_hold() -> None:
    authorizer = closed(group_acl(Operation.DESCRIBE, "group", pattern=PatternType.PREFIXED))
    rights, moment = Rights(authorizer), moment_of(*GROUPS)
    looking = asyncio.ensure_future(rights.see(moment))
    await asyncio.sleep(0)
    authorizer.reconfigure(Rules([group_acl(Operation.DESCRIBE, "group-7")]))
    assert list((await looking).group_names()) == ["group-7"]


@pytest.mark.parametrize("sees_cluster", [True, False])
async def test_addresses_are_for_readers_who_may_describe_the_cluster(sees_cluster: bool) -> None:
    page = Page([place_of(bytes(16), 0, "orders", "kafka-1.example:9092 or node-2.example is silent")])
    log = cast("Any", page._log)
    log.cluster.client = SimpleNamespace(addresses={1: ("kafka-1.example", 9092)})
    log.describe_elsewhere = lambda: [{"owner_address": "node-2.example:9492"}, {"owner_address": None}]
    cluster = [cluster_acl(Operation.DESCRIBE)] if sees_cluster else []
    page._rights = Rights(closed(group_acl(Operation.DESCRIBE, "workers"), *cluster))
    [row] = (await page.veiled().groups()).rows
    [why] = row.lag_unknown
    assert why == (
        "kafka-1.example:9092 or node-2.example is silent" if sees_cluster else "(hidden) or (hidden) is silent"
    )
