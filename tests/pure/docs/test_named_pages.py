"""Pages that commands name: by their titles and sections, because an installation has no folder of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / "holdfast/cli.py", *sorted((ROOT / "holdfast/console").rglob("*.py"))]
_NAMED = re.compile(r'[Tt]he page ([A-Z][a-z]+(?: [a-z]+)*?)(?:, "([^"]+)"| says| has| lists|$)')


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts of the command line tool with their files: constants, and the docstrings that are helps of commands."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        about = ast.get_docstring(tree, clean=False)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != about:
                yield path, node.value


def test_no_text_names_a_file_of_a_page() -> None:
    assert [(path.name, text) for path, text in texts() if re.search(r"docs/[\w-]+\.md", text)] == []


def test_each_page_and_section_that_a_text_names_is_there() -> None:
    pages = {}
    for page in (ROOT / "docs").glob("*.md"):
        headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        pages[headings[0]] = headings[1:]
    named = [found for _, text in texts() for found in _NAMED.findall(text)]
    assert {title for title, _ in named} == {"Alarms and alerts", "Compaction", "Configuration", "Log events"}
    for title, section in named:
        assert title in pages
        assert not section or section in pages[title]
