"""The numbers of the page are explained by one list of names, on the page and in docs/page.md, and cover what its tables show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "holdfast" / "page" / "web" / "templates"
#: Columns that count, and say in their own words what they count.
PLAIN = {"Deliveries", "Delivery", "Log partition", "Partition", "Partitions", "Records", "Share partitions", "Topics"}
PLAIN |= {
    "Leader",
    "Log",
    "Start",
    "End",
    "State in log partition",
    "Brokers",
    "Its partitions",
    "Reached by",
    "State topic",
}


def test_the_help_of_the_page_and_the_docs_have_the_same_numbers() -> None:
    text = (ROOT / "docs" / "page.md").read_text()
    table = text.partition("| Number | Meaning |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| ([A-Z][^|]*) \|", table, re.MULTILINE)
    explained = re.findall(r"<dt>([^<]*)</dt>", (TEMPLATES / "help.html").read_text())
    assert documented == explained
    assert len(explained) > 20


def test_every_number_that_a_table_shows_is_explained() -> None:
    explained = set(re.findall(r"<dt>([^<]*)</dt>", (TEMPLATES / "help.html").read_text()))
    for template in sorted(TEMPLATES.glob("*.html")):
        text = template.read_text().replace("&nbsp;", " ")
        numbers = re.findall(r'<th role="columnheader" scope="col" class="n">([^<{]*)</th>', text)
        numbers += re.findall(r"<div><dt>([^<{]*)</dt>", text)
        assert set(numbers) <= explained | PLAIN, template.name
