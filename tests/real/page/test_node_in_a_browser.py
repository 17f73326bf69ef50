"""The page of a node that is a share gateway, in Chromium: who holds which records, and the nodes."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from playwright.async_api import async_playwright, expect

from tests.browser.conftest import CHROMIUM, Desk, launch, nameless, overhang, picture
from tests.interop.gateway.clients import PYTHON, stock_consumer
from tests.real.page.test_node_page import take_some
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]
SIZES: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (320, "dark"))


#: They last while the pages are looked at.
LONG_LOCKS = {"gateway.groups.default.share.record.lock.duration.ms": 60_000}


async def test_two_clicks_lead_to_the_member_that_holds_a_record(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    users, group = new_topic(2), f"workers-{topic}"
    async with (
        running(make_settings(kafka, topic, **{"gateway.topics": users} | LONG_LOCKS)) as node,
        async_playwright() as browsers,
    ):
        browser = await launch(browsers)
        desk = Desk(browser)
        desk.address = f"http://127.0.0.1:{node.node.http_port}"
        with stock_consumer(PYTHON, node.address, group, users) as consumer:
            given = await asyncio.to_thread(take_some, node.address, kafka, users, consumer)
            page = await desk.window()
            await page.goto(f"{desk.address}/")
            await page.get_by_role("link", name=group, exact=True).click()
            held = page.get_by_role("region", name="Members and what they hold")
            await expect(held).to_contain_text("1 member")
            for name in ("group", "window", "cluster"):
                if name == "window":
                    await page.locator("#partitions").get_by_role("link").first.click()
                    await expect(held).to_contain_text("held under locks")
                if name == "cluster":
                    await page.get_by_role("link", name="Cluster").click()
                    await expect(page.get_by_role("region", name="Nodes")).to_contain_text("static")
                    await expect(page.get_by_role("region", name="Hand-overs")).to_contain_text("the node started")
                for width, scheme in SIZES:
                    await page.set_viewport_size({"width": width, "height": 800})
                    await page.emulate_media(color_scheme=scheme)
                    await picture(page, f"node-{name}-{width}-{scheme}")
                    assert await nameless(page) == []
                    assert await overhang(page) <= 0
            await expect(page.locator("#live-state")).to_have_text("Live")
        assert given
        assert desk.errors == []
        assert desk.refused == []
        await browser.close()
