"""`holdfast page` on a stock Kafka with a real share group, looked at in Chromium.

Three clicks lead to the stuck record; and while the broker is frozen, gone and back, open pages say so, and go on by themselves.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.async_api import Page, async_playwright, expect

from holdfast.broker import EmbeddedKafka
from tests.browser.conftest import CHROMIUM, Desk, launch, nameless, overhang, picture
from tests.real.page.stuck import DELIVERIES, PARTITIONS, PRODUCED, Stuck, make_stuck, produce
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, in_patience

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]


@asynccontextmanager
async def command(kafka: str) -> AsyncIterator[str]:
    """Give the address that the command prints, and end it with Ctrl-C."""
    arguments = ("-m", "holdfast", "page", "--bootstrap-server", kafka)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await in_patience(process.stdout.readline())).decode().strip()
        process.send_signal(signal.SIGINT)
        assert await in_patience(process.wait()) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def at_desk(address: str) -> AsyncIterator[Desk]:
    """Give browser windows on the page at an address, in which nothing may go wrong."""
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        desk = Desk(browser)
        desk.address = address.rstrip("/")
        yield desk
        await desk.close()
        await browser.close()
    assert desk.errors == []


async def test_three_clicks_lead_to_the_stuck_record_of_a_stock_kafka(kafka: str, stuck: Stuck) -> None:
    async with command(kafka) as address, at_desk(address) as desk:
        page = await desk.window()
        await page.goto(address)
        # Other tests have groups on this cluster; the script gives the page the time to read the log.
        await page.get_by_role("link", name=stuck.group, exact=True).click()
        await page.locator("tr.stuck").get_by_role("link").first.click()
        await expect(page.locator("svg.pins line")).to_have_count(1)
        await picture(page, "stock-window")
        await page.get_by_role("link", name=f"Timeline of offset {stuck.record.offset}").click()
        await expect(page.locator("h1")).to_have_text(f"Offset {stuck.record.offset}")
        await expect(page.locator(".now")).to_contain_text(f"available, {DELIVERIES} deliveries")
        await expect(page.locator("table.timeline tbody tr")).to_have_count(DELIVERIES)
        await picture(page, "stock-offset")
        await page.get_by_role("link", name="Show the record").click()
        await expect(page.locator("pre").nth(1)).to_have_text(re.compile(r"order \d"))
        await expect(page.locator("pre").nth(2)).to_have_text("<script>alert(1)</script>")
        await picture(page, "stock-record")
        for path in ("/", "/cluster"):
            await page.goto(desk.address + path)
            await picture(page, f"stock-{path[1:] or 'groups'}")
            assert await nameless(page) == []
            assert await overhang(page) <= 0


async def open_pages(desk: Desk, stuck: Stuck) -> dict[str, Page]:
    """Open each page that shows numbers, as soon as it does, and mark it: a page that is loaded again has no mark."""
    place = f"group={stuck.group}&topic={stuck.topic}&partition={stuck.record.partition}"
    paths = {
        "groups": "/",
        "group": f"/group?group={stuck.group}",
        "window": f"/window?{place}",
        "offset": f"/offset?{place}&offset={stuck.record.offset}",
        "cluster": "/cluster",
    }
    pages = {}
    for name, path in paths.items():
        pages[name] = page = await desk.window()
        await page.goto(desk.address + path)
        # Until the log is read, a page has nothing to show, and its script looks again.
        await expect(page.locator("#live-state")).to_have_text("Live")
        await page.evaluate("window.mark = 'first'")
    return pages


async def test_open_pages_say_what_is_old_and_since_when_until_brokers_are_back(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as broker:
        kafka = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(PATIENCE_S)
        stuck = await asyncio.to_thread(make_stuck, kafka, "orders")
        async with command(kafka) as address, at_desk(address) as desk:
            pages = await open_pages(desk, stuck)

            async def expect_old(state: str, why: str) -> None:
                """See on each page why its numbers are old, since when, and those numbers."""
                for name, page in pages.items():
                    box = page.get_by_role("note", name="Not known")
                    await expect(box).to_contain_text(why)
                    await expect(box).to_contain_text(re.compile(r"was at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
                    if name != "cluster":
                        told, as_of = await box.inner_text(), await page.locator("#as-of time").inner_text()
                        assert f"was at {as_of} UTC" in told
                        await expect(page.locator("#live-state")).to_have_text("Old numbers")
                        await expect(page.locator("main")).to_contain_text(str(DELIVERIES))
                    if name in ("groups", "group"):
                        await expect(page.locator(".old").first).to_be_visible()
                        await expect(page.get_by_role("list", name="Why a lag is unknown")).to_be_visible()
                    await picture(page, f"broker-{state}-{name}")
                    assert await nameless(page) == []

            async def expect_new() -> None:
                for name, page in pages.items():
                    await expect(page.get_by_role("note", name="Not known")).to_have_count(0)
                    await expect(page.locator("#live-state")).to_have_text("Live")
                    await expect(page.locator(".old")).to_have_count(0)
                    assert await page.evaluate("window.mark") == "first", f"{name} was loaded again"

            broker.freeze()
            await expect_old("frozen", "no answer")
            broker.thaw()
            await expect_new()
            broker.kill()
            await expect_old("killed", "Kafka cannot be reached")
            async with command(kafka) as other:
                # A page that is opened meanwhile has nothing to show, and says so until it has.
                late = await (await desk.window()).context.new_page()
                ends_s = time.monotonic() + PATIENCE_S
                while (answer := await late.goto(other)) is not None and answer.status == 503:
                    assert time.monotonic() < ends_s, "it has not looked yet"
                assert answer is not None
                assert answer.status == 502
                await expect(late.get_by_role("alert")).to_contain_text("Kafka cannot be reached")
                broker.restart()
                await expect_new()
                await expect(late.get_by_role("link", name=stuck.group, exact=True)).to_be_visible()
            before = await pages["group"].locator("#totals dd").first.inner_text()
            produce(kafka, stuck.topic)
            await expect(pages["group"].locator("#totals dd").first).to_have_text(str(int(before) + PRODUCED))
            assert desk.refused == []
