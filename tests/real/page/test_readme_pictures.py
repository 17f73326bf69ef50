"""The pictures at the top of README.md, taken again of the run that the first block of README.md shows.

`make pictures` writes them. Without it, what a fresh picture shows is compared with what the one in the clone says that it shows: all
text but times, places in the log and the epoch, and the colours of the strip. Pixels depend on fonts, and are not compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page, async_playwright, expect

from holdfast.broker import EmbeddedKafka
from holdfast.page.web.app import make_app
from tests.browser.conftest import CHROMIUM, launch
from tests.real.page.opened import page_of, until_shown
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS
from tests.world.page_server import PageServer
from tests.world.pictures import shown_in, size_of, with_shown
from tools.microscope import play

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]

PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
_WIDTH: Final = 1_000
_MARGIN: Final = 12
#: Another machine's fonts make a picture a little higher or lower.
_OTHER_HEIGHT: Final = 0.15
#: These differ from run to run: times and how long ago they were, places in the log, and the group's epoch.
_VARIES: Final = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "‹time›"),
    (r"‹time› [\d a-z]+ ago", "‹time›"),
    (r"after [\d.]+ (ms|s|min)( [\d.]+ s)?", "after ‹time›"),
    (r"\d+\t\d+ @ \d+", "‹epoch›\t‹place›"),
    (r"partition \d+ of (\S+), which reaches back to its offset \d+", r"partition ‹number› of \1, from ‹offset›"),
)


async def take(page: Page, section: str) -> bytes:
    """Return a picture of the title of a page and a section of it, which says what it shows."""
    title, part = page.locator("div.title"), page.locator(section)
    top, bottom = await page.locator("nav.path").bounding_box(), await part.bounding_box()
    assert top is not None
    assert bottom is not None
    begin, end = top["y"] - _MARGIN, bottom["y"] + bottom["height"] + _MARGIN
    clip: Any = {"x": 0, "y": begin, "width": _WIDTH, "height": end - begin}
    text = f"{await title.inner_text()}\n{await part.inner_text()}"
    for pattern, instead in _VARIES:
        text = re.sub(pattern, instead, text)
    marks = await page.evaluate(
        "[...document.querySelectorAll('svg.strip .bar')].map(bar => [bar.getAttribute('class'), getComputedStyle(bar).fill])"
    )
    png = await page.screenshot(clip=clip, full_page=True)
    return with_shown(png, {"text": [line.strip() for line in text.split("\n") if line.strip()], "marks": marks})


async def test_the_pictures_of_the_readme_show_what_a_fresh_run_does(tmp_path: Path) -> None:
    taken: dict[str, bytes] = {}
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        play(kafka.bootstrap_servers)
        async with page_of(kafka.bootstrap_servers) as source, async_playwright() as playwright:
            for group in ("packers", "billing"):
                await until_shown(source, group)
            server = PageServer(make_app(source))
            await server.start("127.0.0.1", 0)
            browser = await launch(playwright)
            page = await browser.new_page(viewport={"width": _WIDTH, "height": 800}, locale="en-GB")
            page.set_default_timeout(PATIENCE_MS)
            place = f"http://127.0.0.1:{server.port}/{{}}?group=packers&topic=orders&partition=0"
            await page.goto(place.format("window"))
            await expect(page.locator("svg.pins line")).to_have_count(1)
            taken["strip"] = await take(page, "#strip")
            await page.goto(f"{place.format('offset')}&offset=12")
            await expect(page.locator(".now")).to_contain_text("3 deliveries")
            taken["timeline"] = await take(page, "#timeline")
            await browser.close()
            await server.stop()
    if "WRITE_PICTURES" in os.environ:
        PICTURES.mkdir(exist_ok=True)
        for name, png in taken.items():
            (PICTURES / f"{name}.png").write_bytes(png)
    for name, png in taken.items():
        kept = (PICTURES / f"{name}.png").read_bytes()
        assert shown_in(png) == shown_in(kept), f"the page looks otherwise now; `make pictures` writes {name}.png"
        size, size_kept = size_of(png), size_of(kept)
        assert size.width == size_kept.width
        assert abs(size.height / size_kept.height - 1) < _OTHER_HEIGHT
