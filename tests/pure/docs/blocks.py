"""The code blocks of a page, each with the remark before it, and what a console block tells to type and shows.

A block is tried by a test, unless one of these stands right before it, as an HTML comment that readers do not see:

- `not run: REASON`: it cannot be run here; its commands are then only looked up.
- `tested: MARK`: a test of its own reads it by that mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.pure.docs.pages import ROOT, name_of

#: The pages whose blocks are tried, in the order in which a newcomer would.
TYPED_PAGES: Final = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks" / "README.md",
)

_REMARK = re.compile(r"<!-- (not run|tested): (.*) -->")
_OUTSIDE = re.compile(
    r"(?:^|[\s=<>'\"(])/(?!tmp/|dev/null)|(?:^|\s)~|\.\./|\b(?:apt(?:-get)?|docker|journalctl|kubectl|make|mvn|pip|sudo|systemctl)\b"
)
_EXAMPLE = re.compile(r"^Example(?:, not run: (.*))?:\s+((?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block of a page: `line` is that of its fence, counted from 1."""

    page: str
    line: int
    language: str
    code: str
    #: What the comments before it say, by their kind.
    remarks: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Return why it is not run, None if it is."""
        return self.remarks.get("not run")


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block, and the lines that the page shows behind it."""

    command: str
    shown: str


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page; for a program, the command of each example in its docstring."""
    if page.suffix == ".py":
        return list(_examples(page))
    return list(blocks_in(page.read_text(), name_of(page)))


def blocks_in(text: str, page: str) -> Iterator[Block]:
    """Yield the blocks between fences, with the remarks on the lines right before."""
    lines = text.splitlines()
    begin, language = 0, None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if language is None:
            begin, language = number, line[3:].strip()
        else:
            code = "\n".join(lines[begin : number - 1])
            yield Block(page=page, line=begin, language=language, code=code, remarks=_remarks(lines[: begin - 1]))
            language = None
    assert language is None, f"{page}:{begin} opens a block that nothing ends"


def steps_of(code: str) -> list[Step]:
    """Return what a console block tells to type, line by line, and what it shows after each.

    A backslash continues a command, and an indented `#` a comment behind one.
    """
    steps: list[Step] = []
    is_continued = False
    for line in code.splitlines():
        if line.startswith("$ ") and not is_continued:
            steps.append(Step(line[2:], ""))
        elif is_continued:
            steps[-1] = Step(f"{steps[-1].command}\n{line}", "")
        elif not re.match(r" +#", line):
            assert steps, f"a console block begins with a line that is no command: {line}"
            steps[-1] = Step(steps[-1].command, f"{steps[-1].shown}{line}\n")
        is_continued = line.endswith("\\") and (is_continued or line.startswith("$ "))
    return steps


def reaches_outside(command: str) -> bool:
    """Tell whether a command would change the machine outside of the directory that it is typed in and of /tmp."""
    return _OUTSIDE.search(command) is not None


#: What may differ between a page and a run; all else, words and small numbers, is to be as shown.
_PLACES: Final = (
    (r"\s*(?:…|\.\.\.|‹[^›]*›)\s*", r".*?"),  # left out, if there is anything
    (r"(?<![\w-])[\w-]{22}(?![\w-])", r"[\w-]{22}"),  # the id of a topic
    (r"\d{4}-\d\d-\d\d", r"\d{4}-\d\d-\d\d"),
    (r"\d\d:\d\d:\d\d(?:\.\d+)?", r"\d\d:\d\d:\d\d(?:\.\d+)?"),
    (r"\d[\d,]*\.\d+", r"\d[\d,]*(?:\.\d+)?"),  # measured
    (r"\d[\d,]*(?= ?(?:ms|s|B|KB|KiB|MB|MiB)\b)", r"\d[\d,]*"),  # with a unit
    (r"\d{5,}", r"\d{4,}"),  # a port, a time in milliseconds
    (r"[─━]+", r"[─━]+"),
    (r"\s+", r"\s+"),
)
_PLACE = re.compile("|".join(f"(?P<p{index}>{shown})" for index, (shown, _) in enumerate(_PLACES)))


def is_like(shown: str, said: str) -> bool:
    """Tell whether what a command said is what the page shows, but for ids, dates, times, measures and `…`."""
    pattern, end = "", 0
    for found in _PLACE.finditer(shown.strip()):
        place = int((found.lastgroup or "p0")[1:])
        pattern += re.escape(shown.strip()[end : found.start()]) + _PLACES[place][1]
        end = found.end()
    pattern += re.escape(shown.strip()[end:])
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def _remarks(before: list[str]) -> dict[str, str]:
    remarks = {}
    while before and (found := _REMARK.fullmatch(before[-1])):
        remarks[found[1]] = found[2]
        before = before[:-1]
    return remarks


def _examples(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _EXAMPLE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        remarks = {"not run": found[1]} if found[1] else {}
        yield Block(page=name_of(page), line=line, language="console", code=f"$ {found[2]}", remarks=remarks)
