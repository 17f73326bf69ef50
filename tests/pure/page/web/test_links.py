"""Every link of every page is answered."""

from __future__ import annotations

from holdfast.page.web.app import QUERIES, make_app
from tests.world.links import follow_all
from tests.world.page_server import PageServer
from tests.world.page_source import stuck


async def test_every_link_is_answered_and_leads_to_no_other_host() -> None:
    server = PageServer(make_app(stuck()))
    await server.start("127.0.0.1", 0)
    try:
        followed = await follow_all(server.port)
    finally:
        await server.stop()
    assert [each for each in followed if not each.is_good] == []
    paths = {each.path.partition("?")[0] for each in followed}
    simple = {f"/api/v1/{name}" for name, query in QUERIES.items() if not query.parameters}
    assert paths >= {"/", "/group", "/window", "/offset", "/record", "/cluster", "/help", "/openapi.json", *simple}
    assert {path for path in paths if path.startswith("/api/")} == simple
    [described] = [each.answer.json() for each in followed if each.path == "/openapi.json"]
    assert simple <= described["paths"].keys()
