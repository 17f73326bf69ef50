"""The page of a node in Chromium whose only broker goes and comes back: it says what is not known, and keeps what it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.async_api import Page, async_playwright, expect

from holdfast.broker import EmbeddedKafka
from tests.browser.conftest import CHROMIUM, Desk, launch, nameless, overhang, picture
from tests.real.nodes import topic_id_of
from tests.real.page.stuck import produce
from tests.real.page.test_node_page import GROUP, write_states
from tests.real.quick_java import QUICK_KAFKA
from tests.real.running_node import make_settings, running
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]
SIZES: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (320, "dark"))


async def look_at(page: Page, name: str) -> None:
    """Keep pictures, and look whether all has a name and nothing hangs over."""
    for width, scheme in SIZES:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)
        await picture(page, f"{name}-{width}-{scheme}")
        assert await nameless(page) == []
        assert await overhang(page) <= 0


async def test_a_node_without_its_broker_says_what_is_unknown(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(PATIENCE_S)
        produce(bootstrap, "orders")
        settings = make_settings(bootstrap, "states", broker_silence_max_ms=1_000)
        async with running(settings) as node, async_playwright() as browsers:
            await write_states(node, topic_id_of(bootstrap, "orders"))
            browser = await launch(browsers)
            desk = Desk(browser)
            desk.address = f"http://127.0.0.1:{node.node.http_port}"
            groups, cluster = await desk.window(), await desk.window()
            for page, path in ((groups, "/"), (cluster, "/cluster")):
                await page.goto(f"{desk.address}{path}")
                await expect(page.locator("#live-state")).to_have_text("Live")
            row = groups.get_by_role("row").filter(has=groups.get_by_role("link", name=GROUP, exact=True))
            lag = row.locator("td[data-label=Lag]")
            await expect(lag).to_have_text("7")

            kafka.kill()
            await expect(cluster.locator("#warnings")).to_contain_text("The node is not ready: ")
            await expect(cluster.get_by_role("region", name="Brokers")).to_contain_text("s ago")
            await expect(groups.locator("#warnings")).to_contain_text("The node is not ready: ")
            await expect(groups.locator("#warnings")).to_contain_text(" led by no broker that answers now. ")
            await expect(groups.locator("#live-state")).to_have_text("Old numbers")
            as_of = await groups.locator("#as-of time").inner_text()
            await expect(groups.locator("#warnings")).to_contain_text(f"Everything is shown as it was at {as_of} UTC.")
            # Its state is in memory; the ends of topics are the broker's to tell, and no number stands for them.
            await expect(lag).to_have_text("unknown")
            assert await lag.locator(".unknown").get_attribute("title")
            await expect(row.locator("td[data-label='Most deliveries']")).to_have_text("4")
            await look_at(groups, "node-groups-gone")
            await look_at(cluster, "node-cluster-gone")
            await groups.set_viewport_size({"width": 1280, "height": 800})
            await row.get_by_role("link").first.click()
            await groups.locator("#partitions").get_by_role("link").first.click()
            await expect(groups.locator("#warnings")).to_contain_text("The ends of the log are not known")
            await expect(groups.locator("#warnings")).to_contain_text("Its numbers may be old.")
            await expect(groups.locator("#live-state")).to_have_text("Old numbers")
            await look_at(groups, "node-window-gone")
            timeline = await groups.goto(f"{desk.address}/offset?group=none&topic=orders&partition=0&offset=2")
            assert timeline is not None
            assert timeline.status == 503, "another node may have it by now"

            kafka.restart()
            await expect(cluster.locator("#warnings")).to_have_text("")
            await groups.goto(f"{desk.address}/")
            await expect(lag).to_have_text("7")
            assert desk.errors == []
            await desk.close()
            await browser.close()
