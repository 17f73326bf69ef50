"""docs/decisions: each decision has its four parts, and the tests and deliberate bugs that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pure.docs.pages import ROOT, code_spans, links, name_of, table
from tests.pure.docs.test_pages import names_of_tests

PAGES = sorted((ROOT / "docs" / "decisions").glob("*.md"))
MUTANTS = set(re.findall(r"^= (.+)$", (ROOT / "tests" / "simulated" / "mutants.txt").read_text(), re.MULTILINE))
PARTS = ["Context", "Decision", "Reason", "Test"]

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def decisions(page: Path) -> dict[str, str]:
    """Return the text of each decision of a page by its heading."""
    parts = re.split(r"^### (.+)\n", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@every_page
def test_each_decision_has_its_four_parts(page: Path) -> None:
    parts = {heading: re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) for heading, text in decisions(page).items()}
    assert parts == dict.fromkeys(parts, PARTS)


@every_page
def test_each_decision_is_held_by_tests_and_mutants_that_exist(page: Path) -> None:
    for heading, text in decisions(page).items():
        spans = code_spans(text.split("**Test.**")[1])
        named = [span for span in spans if "::" in span]
        assert named, f"{name_of(page)}: no test holds “{heading}”"
        for span in named:
            file, _, name = span.partition("::")
            found = {test for path in (ROOT / "tests").rglob(file) for test in names_of_tests(path)}
            assert name in found, f"{name_of(page)} names `{span}`, which does not exist"
        others = {span for span in spans if "::" not in span and "/" not in span}
        assert others <= MUTANTS, f"{name_of(page)}: {sorted(others - MUTANTS)} are no deliberate bugs"


def test_the_index_has_every_page_and_the_number_of_its_decisions() -> None:
    rows = table((ROOT / "docs" / "architecture.md").read_text(), "decisions")
    indexed = {ROOT / "docs" / links(page)[0]: int(count) for page, _, count in rows}
    assert indexed == {page: len(decisions(page)) for page in PAGES}
