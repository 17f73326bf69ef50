"""The page beside the demonstration: its address is printed, it answers while an act goes on, and it ends with it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from rich.console import Console

from demo.page import PageBeside
from tests.waiting import PATIENCE_S, block_until


def status(page: PageBeside) -> int:
    """Return the status of the first page; 0: nobody listens."""
    try:
        urlopen(f"http://{page.address}/", timeout=PATIENCE_S).close()
    except HTTPError as answer:
        answer.close()
        return answer.code
    except URLError:
        return 0
    return 200


def test_the_page_of_an_act_is_where_it_says_and_ends_with_it(tmp_path: Path) -> None:
    said = StringIO()
    page = PageBeside(Console(file=said, highlight=False))
    for _ in range(2):
        with page.showing("127.0.0.1:1", "holdfast-demo", tmp_path):
            printed = said.getvalue().split()[-1]
            assert printed == f"http://{page.address}/"
            # No Kafka is there, which the page says.
            block_until(lambda: status(page) == 502, "an answer of the page", PATIENCE_S)
        assert status(page) == 0
