"""All links of the page, followed one after the other from its first address on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from tests.waiting import PATIENCE_S, poll_pause_s
from tests.world.http import Answer, get

#: The answers while a broker is late.
_PASSING: Final = (502, 503)


class Followed(NamedTuple):
    """A link that was followed."""

    path: str
    answer: Answer
    #: The page that has it.
    found_at: str
    #: Whether it is the offset before or after another one, which may not be there.
    is_neighbour: bool

    @property
    def is_good(self) -> bool:
        """Tell whether it was answered; a neighbour, and a record, may be refused in words because they are not there."""
        may_be_gone = self.is_neighbour or self.path.startswith("/record?")
        is_said = self.answer.status in (404, 410) and b'role="alert"' in self.answer.body
        return self.answer.status == 200 or (may_be_gone and is_said)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        #: Each with whether it leads to a neighbour.
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        target = given.get("href") or given.get("src")
        if target and not target.startswith("#"):
            self.found.append((target, given.get("rel") in ("prev", "next")))


async def follow_all(port: int, first: str = "/", follows: Callable[[str], bool] = lambda _: True) -> list[Followed]:
    """Return every link that is found from the first page on, unless `follows` says no; of a neighbour's neighbours none.

    A link that leads to another host is an error.
    """
    waiting, seen, followed = deque([(first, "", False)]), {first}, list[Followed]()
    while waiting:
        path, found_at, is_neighbour = waiting.popleft()
        answer, began_s = await get(port, path), time.monotonic()
        while answer.status in _PASSING and time.monotonic() < began_s + PATIENCE_S:
            await asyncio.sleep(poll_pause_s(began_s))
            answer = await get(port, path)
        followed.append(Followed(path, answer, found_at, is_neighbour))
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        links = _Links()
        links.feed(answer.body.decode())
        for target, leads_to_neighbour in links.found:
            there = urljoin(path, target)
            assert not urlsplit(target).netloc, f"{path} leads to another host: {target}"
            if there not in seen and follows(there) and not (is_neighbour and leads_to_neighbour):
                seen.add(there)
                waiting.append((there, path, leads_to_neighbour or is_neighbour))
    return followed
