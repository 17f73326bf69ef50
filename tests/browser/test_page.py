"""The page in a real browser: each page in three states, the way to a stuck record, live numbers, keys, and no script."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from holdfast.page.source import PageRefused
from tests.browser.conftest import CHROMIUM, Desk, nameless, overhang, picture
from tests.world.page_source import LONG, RIGHT_TO_LEFT, SCRIPT, Held, MemorySource, quiet, stuck

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"),
]


def gone() -> MemorySource:
    """Return a source whose brokers are silent."""
    source = stuck()
    source.refused = PageRefused(
        502, "No broker answers at 127.0.0.1:9092 since 21:04:10 UTC; look whether Kafka runs."
    )
    return source


STATES = {"quiet": quiet, "stuck": stuck, "gone": gone}
SIZES: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (320, "dark"))
PAGES = {
    "groups": "/",
    "group": "/group?group=orders",
    "window": "/window?group=orders&topic=orders.created&partition=1",
    "offset": "/offset?group=orders&topic=orders.created&partition=1&offset={offset}",
    "record": "/record?group=orders&topic=orders.created&partition=1&offset={offset}",
    "cluster": "/cluster",
    "help": "/help",
}


def expected_status(page: str, state: str) -> int:
    if page == "help" or (page, state) == ("cluster", "gone"):
        return 200
    if state == "gone":
        return 502
    return 410 if (page, state) == ("record", "quiet") else 200


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", PAGES)
async def test_each_page_in_each_state_is_whole(desk: Desk, name: str, state: str) -> None:
    await desk.serve(STATES[state]())
    address = desk.address + PAGES[name].format(offset=40_118 if state != "quiet" else 1_005)
    page = await desk.window()
    for width, scheme in SIZES:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)
        answer = await page.goto(address)
        assert answer is not None
        assert answer.status == expected_status(name, state)
        await expect(page.locator("h1")).to_have_count(1)
        await picture(page, f"{name}-{state}-{width}-{scheme}")
        assert await nameless(page) == []
        assert await overhang(page) <= 0


@pytest.mark.parametrize("has_script", [True, False])
async def test_three_clicks_lead_from_the_first_page_to_a_stuck_record(desk: Desk, has_script: bool) -> None:
    await desk.serve(stuck())
    page = await desk.window(java_script_enabled=has_script)
    await page.goto(f"{desk.address}/")
    await page.locator("tr.stuck").first.get_by_role("link").first.click()
    await page.locator("tr.stuck").first.get_by_role("link").first.click()
    await page.get_by_role("link", name="Timeline of offset 40118").click()
    await expect(page.locator("h1")).to_have_text("Offset 40118")
    await expect(page.locator("table.timeline tbody tr")).to_have_count(4)
    await expect(page.get_by_text("by the history", exact=True)).to_have_count(2)
    await expect(page.locator(".now")).to_contain_text("available, 4 deliveries")
    await page.get_by_role("link", name="Show the record").click()
    await expect(page.locator("pre").nth(1)).to_contain_text('"customer": "Ada <b>Lovelace</b>"')


async def test_the_pinned_mark_of_the_strip_leads_to_the_stuck_record(desk: Desk) -> None:
    await desk.serve(stuck())
    page = await desk.window()
    await page.goto(desk.address + PAGES["window"])
    mark = page.locator("svg.strip a.mark", has=page.locator(".bar.level-4"))
    await mark.hover()
    await expect(page.locator("#strip-told")).to_have_text("offset 40118: to be given out again, 4 deliveries")
    await mark.click()
    await expect(page.locator("h1")).to_have_text("Offset 40118")


async def test_the_strip_is_one_stop_of_the_tab_key_and_arrows_go_on(desk: Desk) -> None:
    await desk.serve(stuck())
    page = await desk.window()
    await page.goto(desk.address + PAGES["window"])
    await page.get_by_role("button", name="Show").focus()
    await page.keyboard.press("Tab")
    told = page.locator("#strip-told")
    await expect(told).to_contain_text("offsets 40112 – 40117: acknowledged")
    await page.keyboard.press("ArrowRight")
    await expect(told).to_contain_text("offset 40118: ")
    await page.keyboard.press("End")
    await expect(told).to_contain_text("after the window")
    await page.keyboard.press("Home")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Offset 40118")


async def tab_to(page: Page, selector: str) -> None:
    """Press the Tab key until what has the focus is wanted; each stop until then can be seen."""
    for _ in range(100):
        await page.keyboard.press("Tab")
        is_wanted, is_seen = await page.evaluate(
            "selector => { const at = document.activeElement, style = getComputedStyle(at);"
            " return [at.matches(selector), at.matches('.mark') || style.outlineStyle !== 'none']; }",
            selector,
        )
        assert is_seen, await page.evaluate("document.activeElement.outerHTML")
        if is_wanted:
            return
    raise AssertionError(f"no stop is {selector}")


async def test_the_stuck_record_is_found_by_keys_alone(desk: Desk) -> None:
    await desk.serve(stuck())
    page = await desk.window()
    await page.goto(f"{desk.address}/")
    for selector in ("tr.stuck th a", "tr.stuck th a", "[aria-label='Timeline of offset 40118']"):
        await tab_to(page, selector)
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Offset 40118")


@pytest.mark.parametrize("width", [1280, 320])
async def test_ten_thousand_groups_are_pages_of_bounded_size(desk: Desk, width: int) -> None:
    source = quiet()
    row = (await source.groups()).rows[0]
    source._rows = lambda: [row._replace(group=f"group-{place:05}") for place in range(10_000)]  # type: ignore[method-assign]
    await desk.serve(source)
    page = await desk.window(width)
    await page.goto(f"{desk.address}/")
    await expect(page.get_by_role("table")).to_contain_text("10,000 groups and topics, of which this page has 200")
    assert await page.evaluate("document.querySelectorAll('*').length") < 20_000
    await picture(page, f"groups-10000-{width}", is_whole=False)
    assert await overhang(page) <= 0
    await page.get_by_role("link", name="Next groups").click()
    await expect(page.get_by_role("link", name="group-00200", exact=True)).to_be_visible()


@pytest.mark.parametrize("has_script", [True, False])
async def test_a_group_of_many_is_found_by_keys_and_a_part_of_its_name(desk: Desk, has_script: bool) -> None:
    source = quiet()
    row = (await source.groups()).rows[0]
    source._rows = lambda: [row._replace(group=f"group-{place:05}") for place in range(10_000)]  # type: ignore[method-assign]
    await desk.serve(source)
    page = await desk.window(320, java_script_enabled=has_script)
    await page.goto(f"{desk.address}/")
    await page.get_by_label("Name has").focus()
    await page.keyboard.type("-0412")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("table")).to_contain_text("10 groups and topics")
    await expect(page.get_by_label("Name has")).to_have_value("-0412")
    await expect(page.get_by_role("rowheader")).to_have_text([f"group-0412{digit}" for digit in range(10)])
    await picture(page, f"groups-found-{has_script}")
    assert await nameless(page) == []
    assert await overhang(page) <= 0
    await page.get_by_label("Name has").fill("none of these")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No group and no topic here has")).to_be_visible()
    await page.get_by_role("link", name="All groups").click()
    await expect(page.get_by_role("table")).to_contain_text("10,000 groups and topics, of which this page has 200")


@pytest.mark.parametrize("has_script", [True, False])
async def test_each_log_partition_of_a_large_cluster_is_reached_by_keys(desk: Desk, has_script: bool) -> None:
    source = quiet()
    source.log_partitions = 401
    await desk.serve(source)
    page = await desk.window(320, java_script_enabled=has_script)
    await page.goto(f"{desk.address}/cluster")
    shown = page.get_by_role("region", name="Partitions of the state topic").get_by_role("rowheader")
    for first, count in ((0, 200), (200, 200), (400, 1)):
        await expect(shown).to_have_count(count)
        await expect(shown.first).to_have_text(str(first))
        await picture(page, f"cluster-401-{first}-{has_script}", is_whole=False)
        assert await nameless(page) == []
        assert await overhang(page) <= 0
        more = page.get_by_role("link", name="Next rows of the cluster")
        if count == 200:
            await more.focus()
            async with page.expect_navigation():
                await page.keyboard.press("Enter")
    await expect(more).to_have_count(0)


async def test_the_first_stop_of_the_tab_key_leads_past_the_links_of_each_page(desk: Desk) -> None:
    await desk.serve(quiet())
    page = await desk.window()
    await page.goto(f"{desk.address}/")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("#content")).to_be_focused()


async def test_numbers_change_while_the_page_is_open_and_the_focus_stays(desk: Desk) -> None:
    source = quiet()
    await desk.serve(source)
    page = await desk.window()
    await page.goto(f"{desk.address}/")
    await expect(page.locator("#live-state")).to_have_text("Live")
    await page.locator("#groups tbody a").first.focus()
    before = await focused(page)
    source.held.append(Held("orders", "orders.created", 9, 0, ((0, 0, 0, 5),), 9))
    source.as_of_ms += 60_000
    source.turn()
    await expect(page.locator(".tries-5")).to_have_text("5")
    await expect(page.locator("#as-of")).to_contain_text("14:14:20")
    assert "group=" in before
    assert "group=" in await focused(page)


async def test_a_paused_page_stays_as_it_is_until_it_goes_on(desk: Desk) -> None:
    source = quiet()
    await desk.serve(source)
    page = await desk.window()
    await page.goto(f"{desk.address}/")
    await expect(page.locator("#live-state")).to_have_text("Live")
    await page.get_by_role("button", name="Pause").click()
    source.held.append(Held("late", "mail.out", 9, 0, ((0, 0, 0, 5),), 9))
    source.turn()
    await expect(page.locator("#live-state")).to_have_text("Paused")
    await expect(page.get_by_role("link", name="late", exact=True)).to_have_count(0)
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("link", name="late", exact=True)).to_have_count(1)


async def test_a_page_that_loses_its_source_says_so_and_keeps_its_numbers(desk: Desk) -> None:
    source = stuck()
    await desk.serve(source)
    page = await desk.window()
    await page.goto(f"{desk.address}/")
    await expect(page.locator("#live-state")).to_have_text("Live")
    source.refused = PageRefused(502, "No broker answers.")
    source.turn()
    await expect(page.locator("#live-state")).to_have_text("No newer numbers (502)")
    await expect(page.locator("tr.stuck")).not_to_have_count(0)


async def test_a_request_by_another_name_is_refused_by_a_page(desk: Desk) -> None:
    await desk.serve(quiet())
    desk.address = desk.address.replace("127.0.0.1", "other.localhost")
    page = await desk.window(320)
    answer = await page.goto(f"{desk.address}/")
    assert answer is not None
    assert answer.status == 421
    await expect(page.locator("h1")).to_have_text("421 There is no answer")
    await expect(page.get_by_role("alert")).to_contain_text("open it by the address that the command printed")
    await picture(page, "refused-by-name")
    assert await nameless(page) == []
    assert await overhang(page) <= 0


@pytest.mark.parametrize("status", [404, 502, 503])
@pytest.mark.parametrize("has_script", [True, False])
async def test_a_page_with_nothing_to_show_is_looked_at_again(desk: Desk, has_script: bool, status: int) -> None:
    source = stuck()
    await desk.serve(source)
    page = await desk.window(java_script_enabled=has_script)
    source.refused = PageRefused(status, "There is nothing to show yet.")
    await page.goto(f"{desk.address}/")
    await expect(page.get_by_role("alert")).to_have_text("There is nothing to show yet.")
    assert await nameless(page) == []
    source.refused = None
    if not has_script:
        await page.get_by_role("link", name="Look again").click()
    await expect(page.locator("h1")).to_have_text("Share groups")
    if has_script:
        await expect(page.locator("#live-state")).to_have_text("Live")


@pytest.mark.parametrize("name", [SCRIPT, RIGHT_TO_LEFT, LONG])
async def test_a_name_that_others_chose_is_shown_as_it_is(desk: Desk, name: str) -> None:
    await desk.serve(stuck())
    for width in (1280, 320):
        page = await desk.window(width)
        await page.goto(f"{desk.address}/")
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.locator("h1")).to_have_text(re.compile(re.escape(name)))
        assert await page.locator("script, img, b").count() == 1
        assert await overhang(page) <= 0
        await page.locator("#partitions tbody a").first.click()
        assert await overhang(page) <= 0
        await picture(page, f"name-{[SCRIPT, RIGHT_TO_LEFT, LONG].index(name)}-{width}")


async def test_a_window_of_fifty_thousand_ranges_is_a_page_of_bounded_size(desk: Desk) -> None:
    batches = tuple((place, place, 2 if place % 2 else 0, 4 if place == 31_338 else 1) for place in range(50_000))
    await desk.serve(MemorySource([Held("orders", "orders.created", 1, 0, batches, 60_000)]))
    page = await desk.window()
    await page.goto(desk.address + PAGES["window"])
    assert await page.evaluate("document.querySelectorAll('*').length") < 12_000
    await picture(page, "window-50000-ranges", is_whole=False)
    narrow = await desk.window(320, color_scheme="dark")
    await narrow.goto(desk.address + PAGES["window"])
    await picture(narrow, "window-50000-ranges-320-dark", is_whole=False)
    assert await overhang(narrow) <= 0
    # An edge in the colour of the ground would leave nothing of a mark that is a point wide.
    assert await narrow.evaluate("getComputedStyle(document.querySelector('.bar.level-4')).stroke") == "none"
    await page.get_by_role("link", name="Timeline of offset 31338").click()
    await expect(page.locator("h1")).to_have_text("Offset 31338")


async def focused(page: Page) -> str:
    found: str = await page.evaluate("document.activeElement.getAttribute('href') || ''")
    return found
