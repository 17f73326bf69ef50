"""The pages of the documentation, taken apart: links, headings, tables, code and commands."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]


def _pages() -> Iterator[Path]:
    """Yield every page that people read; environments, caches and builds, which tools keep beside the code, are not entered."""
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [
            name for name in inner if not name.startswith(".") and name not in ("node_modules", "build", "dist")
        ]
        yield from (Path(folder, name) for name in files if name.endswith(".md"))


PAGES = sorted(_pages())
#: The pages that are written by hand for users.
GUIDES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("install", "run", "secure", "watch", "alarms", "protocol", "log-format", "spark")
    ),
]
#: Columns that the names of the history's directories hold, outermost first.
DIRECTORIES = ("state_topic_id", "day")

_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
#: What may stand before a tool on its line: nothing, a variable that takes its output, or the way into a container.
_BEFORE_TOOL = r"^(?:export \w+=\$\(|docker compose exec \w+ )?"
_CONTINUED_LINE = re.compile(r"\\\n\s*")


def name_of(page: Path) -> str:
    """Return what a page is called in the name of a test."""
    return str(page.relative_to(ROOT))


def links(text: str) -> list[str]:
    """Return the targets of all links but those to other sites."""
    return [target for target in _LINK.findall(_CODE_BLOCK.sub("", text)) if "://" not in target]


def anchors(text: str) -> set[str]:
    """Return the names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.*)$", _CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_blocks(text: str, language: str) -> list[str]:
    return [code for name, code in _CODE_BLOCK.findall(text) if name == language]


def code_spans(text: str) -> list[str]:
    return _CODE_SPAN.findall(_CODE_BLOCK.sub("", text))


def commands(text: str, tool: str) -> Iterator[list[str]]:
    """Yield the arguments of every command of a tool: in consoles behind a prompt, and in text between backticks."""
    lines = [line[2:] for block in code_blocks(text, "console") for line in _joined(block) if line.startswith("$ ")]
    for line in [*lines, *code_spans(text)]:
        found = re.search(_BEFORE_TOOL + re.escape(tool) + r"(?= |$)(.*)", line)
        if found is not None:
            yield shlex.split(found[1].rstrip(")"), comments=True)


def table(text: str, mark: str) -> list[list[str]]:
    """Return the cells of the table behind `<!-- tested: mark -->`, without its head."""
    rest = text.split(f"<!-- tested: {mark} -->\n")[1]
    rows = []
    for line in rest.splitlines():
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert len(rows) > 2, f"there is no table behind the mark {mark!r}"
    return rows[2:]


def code_behind(text: str, mark: str) -> str:
    """Return the code block behind `<!-- tested: mark -->`."""
    found = _CODE_BLOCK.match(text.split(f"<!-- tested: {mark} -->\n")[1])
    assert found is not None, f"there is no code behind the mark {mark!r}"
    return found[2]


def as_pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a line given with ‹places› for what varies, and … for what is left out."""
    parts = re.split(r"(‹[^›]*›|…)", template)
    return re.compile("".join(".+" if part[:1] in ("‹", "…") else re.escape(part) for part in parts), re.DOTALL)


def _joined(block: str) -> list[str]:
    return _CONTINUED_LINE.sub("", block).splitlines()
