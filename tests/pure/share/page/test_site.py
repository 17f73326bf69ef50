"""The page of a node before anybody looks, and where what it needs is not installed."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from holdfast.daemon.access.rules import Rules
from holdfast.daemon.http.queries import PREFIX
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.requests import ANONYMOUS
from holdfast.kafka.connection_options import connection_options
from holdfast.metrics.instruments import Counter
from holdfast.page.source import PageRefused
from holdfast.page.web.guard import PageGuard
from holdfast.share.page.kept_answers import Version
from holdfast.share.page.rights import READER
from holdfast.share.page.site import PageSite
from holdfast.tenants import TABLES
from tests.waiting import PATIENCE_S
from tests.world.http import BROWSER
from tests.world.identity.access import OPEN

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


def make_site(partitions: tuple[object, ...] = ()) -> PageSite:
    """Return the site of a node with these log partitions, whose other parts nothing asks."""
    topic = SimpleNamespace(name="states", topic_id=bytes(16))
    place = SimpleNamespace(connection=connection_options({"bootstrap.servers": "127.0.0.1:1"}), topic=topic)
    log = cast(
        "Any",
        SimpleNamespace(
            place=place,
            partitions=partitions,
            cluster=SimpleNamespace(record_times=None),
            describe_elsewhere=list,
            leader_unheard_since_s=None,
        ),
    )
    none = cast("Any", None)
    return PageSite(log, OPEN, none, none, ("localhost",), 4, InternalErrors(Counter()))


async def get(site: PageSite, **scope: object) -> tuple[int, bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await site(SCOPE | scope, receive, send)
    await site.close()
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


async def test_without_the_extra_one_sentence_says_which_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.page.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    site = make_site()
    status, body = await get(site)
    assert status == 501
    assert "jinja2" in json.loads(body)["error"]
    status, page = await get(site, headers=[(b"accept", BROWSER.encode())])
    assert (status, page[:15], b"jinja2" in page) == (501, b"<!doctype html>", True)
    assert "[page]" in json.loads(body)["error"]
    assert site.describe() == {}


async def test_a_node_without_log_partitions_says_that_it_starts() -> None:
    status, body = await get(make_site())
    assert status == 503
    assert b"is starting" in body


async def test_a_refusal_keeps_nothing_of_those_before() -> None:
    source, refused = make_site()._source, list[PageRefused]()
    for _ in range(2):
        with pytest.raises(PageRefused) as caught:
            await source.moment()
        refused.append(caught.value)
    # Each time that an error is raised, it keeps the frames once more.
    assert refused[0] is not refused[1]


async def test_its_queries_are_described_and_take_no_path_of_the_node() -> None:
    paths = make_site().describe()["paths"].keys()
    assert "/api/v1/group-topics" in paths
    of_node = {f"{PREFIX}{name}" for name in (*TABLES.queries, *(page.query.command for page in TABLES.pages))}
    assert "/api/v1/groups" in of_node
    assert not paths & of_node


async def test_events_leave_connections_to_probes() -> None:
    site, refused = make_site(), list[tuple[int, bytes]]()
    site._app = endless
    streams = [asyncio.ensure_future(get(site, path="/events")) for _ in range(2)]
    await asyncio.sleep(0)
    refused.append(await get(site, path="/events"))
    assert refused[0][0] == 503
    assert b"2 pages have live numbers" in refused[0][1]
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    assert site._streams == 0


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(60)


async def test_a_request_whose_client_has_gone_does_not_wait_for_time() -> None:
    site, answered = make_site(), list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(scope["path"])

    async def leave() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    site._app = app
    site._purse.account(ANONYMOUS).pay(3_600)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(site(SCOPE, leave, send) for _ in range(100)))
    assert (answered, site._looks) == ([], 0)

    async def stay() -> Message:
        await asyncio.sleep(3_600)
        raise AssertionError

    waiting = asyncio.ensure_future(site(SCOPE, stay, send))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    site._purse.account(ANONYMOUS).pay(-3_600)
    await site(SCOPE, stay, send)
    assert answered == ["/"]
    await site.close()


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b"origin", b"http://evil.example", 403),
        (b"sec-fetch-site", b"cross-site", 403),
        (b"sec-fetch-site", b"same-site", 403),
        (b"sec-fetch-site", b"same-origin", 200),
    ],
)
async def test_an_answer_that_is_kept_is_given_to_no_other_site(
    monkeypatch: pytest.MonkeyPatch, name: bytes, value: bytes, status: int
) -> None:
    site = make_site()
    version = Version(cast("Any", object()), Rules())

    async def now() -> Version:
        return version

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"shown"})

    monkeypatch.setattr(site._source, "version", now)
    site._app = PageGuard(app, ("localhost",))
    assert await get(site) == (200, b"shown")
    assert (await get(site, headers=[*SCOPE["headers"], (name, value)]))[0] == status


async def test_a_reader_who_has_spent_its_time_lets_another_one_look() -> None:
    site, answered = make_site(), list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(READER.get().principal)

    async def stay() -> Message:
        await asyncio.sleep(3_600)
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    site._app = app
    site._purse.account("User:greedy").pay(3_600)
    greedy = [
        asyncio.ensure_future(site(SCOPE | {"state": {"principal": "User:greedy"}}, stay, send)) for _ in range(100)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await site(SCOPE | {"state": {"principal": "User:modest"}}, stay, send)
    assert answered == ["User:modest"]
    for waiting in greedy:
        waiting.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    await site.close()


async def test_without_time_a_request_is_refused_and_files_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.share.page.site._PATIENCE_S", 0.01)
    site, sent = make_site(), list[Message]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def stay() -> Message:
        await asyncio.sleep(3_600)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    site._app = app
    site._purse.account(ANONYMOUS).pay(3_600)
    await site(SCOPE, stay, send)
    assert sent[0]["status"] == 503
    assert b"look again in a minute" in sent[1]["body"]
    await site(SCOPE | {"path": "/static/style.css"}, stay, send)
    assert sent[2]["status"] == 200
    await site(SCOPE | {"headers": [(b"accept", BROWSER.encode())]}, stay, send)
    assert sent[3]["status"] == 503
    assert (b"refresh", b"60") in sent[3]["headers"]
    assert sent[4]["body"].startswith(b"<!doctype html>")
    await site.close()
