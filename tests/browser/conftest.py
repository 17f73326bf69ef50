"""A page in Debian's Chromium: what it said on its console, whom it asked, and pictures of it in `build/screenshots`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import which
from typing import Any, Final

import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    async_playwright,
    expect,
)

from holdfast.page.source import PageSource
from holdfast.page.web.app import make_app
from tests.waiting import PATIENCE_MS
from tests.world.page_server import PageServer

CHROMIUM: Final = which("chromium") or which("chromium-browser")
SCREENSHOTS: Final = Path(__file__).parents[2] / "build" / "screenshots"
# For all who import this: by default it waits for 5 seconds.
expect.set_options(timeout=PATIENCE_MS)
#: Roles of what a person operates, or is led to by a screen reader.
_NAMED: Final = frozenset(
    (
        "button",
        "checkbox",
        "combobox",
        "group",
        "image",
        "img",
        "link",
        "menuitem",
        "navigation",
        "region",
        "searchbox",
        "slider",
        "spinbutton",
        "switch",
        "tab",
        "table",
        "textbox",
    )
)


async def launch(playwright: Playwright) -> Browser:
    """Start the browser, which may take its time."""
    options = ["--no-sandbox", "--disable-gpu"]
    return await playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=PATIENCE_MS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        yield browser
        await browser.close()


class Desk:
    """Browser windows on a page, and all that went wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._servers: list[PageServer] = []
        self.address = ""
        self.errors: list[str] = []
        self.refused: list[int] = []

    async def serve(self, source: PageSource) -> None:
        server = PageServer(make_app(source))
        await server.start("127.0.0.1", 0)
        self._servers.append(server)
        self.address = f"http://127.0.0.1:{server.port}"

    async def window(self, width: int = 1280, **options: Any) -> Page:
        size = {"width": width, "height": 800}
        context = await self._browser.new_context(viewport=size, locale="en-GB", **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = await context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))
        page.on("request", self._check_host)
        page.on("response", lambda answer: self.refused.append(answer.status) if answer.status >= 400 else None)
        return page

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()
        for server in self._servers:
            await server.stop()

    def _note(self, message: ConsoleMessage) -> None:
        # Chromium says of each answer with such a status that it is one; the tests ask for the status.
        is_status = message.text.startswith("Failed to load resource: the server responded with a status of")
        if message.type in ("error", "warning") and not is_status:
            self.errors.append(message.text)

    def _check_host(self, request: Request) -> None:
        if not request.url.startswith(f"{self.address}/"):
            self.errors.append(f"a request to another host: {request.url}")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(browser: Browser) -> AsyncIterator[Desk]:
    desk = Desk(browser)
    yield desk
    await desk.close()
    assert desk.errors == []


async def picture(page: Page, name: str, *, is_whole: bool = True) -> None:
    """Keep a picture of the whole page, or of what its window shows."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=is_whole)


async def nameless(page: Page) -> list[str]:
    """Return the roles of controls and parts that a screen reader would have no name for."""
    session = await page.context.new_cdp_session(page)
    nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
    await session.detach()
    return [
        str(node["role"]["value"])
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in _NAMED
        and not str(node.get("name", {}).get("value", "")).strip()
    ]


async def overhang(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    wide: int = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
