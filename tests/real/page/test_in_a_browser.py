"""`holdfast page` on a stock Kafka with a real share group, looked at in Chromium: three clicks lead to the stuck record."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import async_playwright, expect

from tests.browser.conftest import CHROMIUM, Desk, nameless, overhang, picture
from tests.real.page.stuck import DELIVERIES, Stuck
from tests.waiting import PATIENCE_MS, in_patience

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]
expect.set_options(timeout=PATIENCE_MS)


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


async def test_three_clicks_lead_to_the_stuck_record_of_a_stock_kafka(kafka: str, stuck: Stuck) -> None:
    async with command(kafka) as address, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        desk = Desk(browser)
        desk.address = address.rstrip("/")
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
        await desk.close()
        await browser.close()
    assert desk.errors == []
