"""Count the marks of a private dialect in prose: `python -m tools.words` prints them by mark and by room.

Prose is docstrings, comments and Markdown pages everywhere, and in the package also every string with a space in it: sooner or later
a person reads it as a log line, an error or a help text. Code in backticks or fenced blocks is not prose.
`--check` fails if a file that is not listed in `words_left.txt` has a mark, `--lines` prints each mark with its place, and `--shorten`
drops the files from the list that have become clean. A phrase in `words_allowed.txt` is no mark.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LEFT: Final = ROOT / "tools" / "words_left.txt"
ALLOWED: Final = ROOT / "tools" / "words_allowed.txt"
#: Files and folders with prose; everything else of a checkout is made by a tool, or is data.
PLACES: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "demo",
    "deploy",
    "docs",
    "examples",
    "holdfast",
    "setup.py",
    "tests",
    "tools",
)
TEST_NAME_MAX: Final = 70

#: Mark to the pattern that finds it in one sentence.
_IN_A_SENTENCE: Final = {
    "opening": re.compile(r"^(?:What|Who|Whose|Whom|Whoever|Whatever|Where|Wherever|Of)\b(?!.*\?\W*$)"),
    "behind": re.compile(r"\bbehind\b", re.IGNORECASE),
    # An article or a number after it names a place or an amount: "the distance is to the left".
    "is to": re.compile(
        r"\b(?:is|are|was|were)(?: not)? to (?!the\b|an?\b|this\b|that\b|its?\b|them\b|\W|\d)\w", re.IGNORECASE
    ),
    "take in": re.compile(r"\btak(?:e|es|en|ing) in that\b|^Take in\b", re.IGNORECASE),
    "take note": re.compile(r"\btak(?:e|es|en|ing) note\b", re.IGNORECASE),
    # "So many that it fails" is plain English.
    "so many": re.compile(r"\bso many\b(?! (?:\w+ ){0,3}that\b)", re.IGNORECASE),
    "by the way of": re.compile(r"\bby the way of\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "whatever": re.compile(r"\bwhatever\b", re.IGNORECASE),
    "whoever": re.compile(r"\bwhoever\b", re.IGNORECASE),
    "nobody": re.compile(r"\bnobody\b", re.IGNORECASE),
}
#: Finds all that one of them finds, and more: most texts have none, and are done with it.
_ANY: Final = re.compile(
    r"\b(?:what|who|where|of\b|behind|(?:is|are|was|were)\s+(?:not\s+)?to\b|tak(?:e|es|en|ing)\s+(?:in|note)\b|so\s+many|by\s+the\s+way|anew"
    r"|nobody)",
    re.IGNORECASE,
)
#: Only counted: whether it is odd depends on the sentence.
REPORTED_ONLY: Final = frozenset({"nobody"})
#: A docstring of a function that begins with one of these does not begin with a verb.
_NO_VERBS: Final = (
    " a all also an and any anything are as at before both but by each either else every everything exactly false for from had has he her"
    " his how i if in into is it its just like many more most my neither never new no nobody none not nothing now of on once one only or"
    " other our same she should so some such than that the their them then there these they this those to true two under until upon was"
    " we were what whatever when where whether which while who whoever whom whose why with without yes you your "
)
#: Verbs that look like other forms of verbs.
_VERBS: Final = (
    " bring embed exceed feed focus heed need ping proceed process ring seed shed speed spring string swing "
)
#: The first sentence of a constructor that says only that the object is new.
_NEW: Final = re.compile(r"^(?:Begin|Start|Prepare)\b|^\w+ (?:nothing|none|nobody)\b|^\w+\.$")
_SENTENCE_ENDS: Final = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')*_]))\s+(?=[\"'(*_`]*[A-Z`])")
_CODE: Final = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_TOOLS_COMMENT: Final = re.compile(r"^(?:!|noqa|type:|pragma|fmt:|ruff:|mypy:|pyright:)")
_MARKDOWN_HEAD: Final = re.compile(r"^(?:\s*(?:[-*+]|\d+\.|#+|>)\s+)+")


class Mark(NamedTuple):
    """A mark, and where its prose begins."""

    path: str
    line: int
    mark: str
    text: str


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph, with its code blanked."""
    return _SENTENCE_ENDS.split(" ".join(_CODE.sub("`x`", text).split()))


def marks_of_text(text: str, allowed: re.Pattern[str] | None = None) -> list[tuple[str, str]]:
    """Return (mark, sentence) for each mark in some paragraphs."""
    found: list[tuple[str, str]] = []
    if not _ANY.search(text):
        return found
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in sentences(paragraph):
            plain = sentence if allowed is None else allowed.sub("…", sentence)
            bare = plain.lstrip("\"'(*_ ")
            for mark, pattern in _IN_A_SENTENCE.items():
                found += [(mark, sentence) for _ in pattern.finditer(bare)]
    return found


def marks_of_python(
    source: str, allowed: re.Pattern[str] | None = None, *, has_messages: bool
) -> list[tuple[int, str, str]]:
    """Return (line, mark, text) for each mark in a module; `has_messages` says that people read its strings."""
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    for line, text in (*_strings(nodes, has_messages=has_messages), *_comments(source)):
        found += [(line, mark, sentence) for mark, sentence in marks_of_text(text, allowed)]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [(node.lineno, mark, text) for mark, text in _marks_of_function(node)]
    return found


def marks_of_markdown(source: str, allowed: re.Pattern[str] | None = None) -> list[tuple[int, str, str]]:
    """Return (line, mark, text) for each mark in a page, of which fenced code is left out."""
    found, is_code = [], False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            for cell in re.split(r"(?<!\\)\|", line) if line.lstrip().startswith("|") else [line]:
                found += [(number, *mark) for mark in marks_of_text(_MARKDOWN_HEAD.sub("", cell), allowed)]
    return found


def marks(root: Path = ROOT, left_out: Collection[str] = ()) -> list[Mark]:
    """Return every mark of a checkout, by path and line, but for some files."""
    allowed = _phrases(root / ALLOWED.relative_to(ROOT))
    found = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if name in left_out:
            continue
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            in_file = marks_of_markdown(source, allowed)
        else:
            in_file = marks_of_python(source, allowed, has_messages=name.startswith("holdfast/"))
        found += [Mark(name, *mark) for mark in sorted(in_file)]
    return found


def files(root: Path = ROOT) -> Iterator[Path]:
    """Give the files with prose, in order."""
    for place in PLACES:
        path = root / place
        if path.is_file():
            yield path
        else:
            yield from sorted(each for each in path.rglob("*") if each.suffix in {".md", ".py"} and each.is_file())


def left(root: Path = ROOT) -> list[str]:
    """Return the files that may have marks for now."""
    return (root / LEFT.relative_to(ROOT)).read_text(encoding="utf-8").splitlines()


def beyond(found: Iterable[Mark]) -> list[Mark]:
    """Return the marks that fail the check."""
    return [mark for mark in found if mark.mark not in REPORTED_ONLY]


def room(path: str) -> str:
    """Return the room that a path is counted in: its first two folders."""
    return "/".join(path.split("/")[:-1][:2]) or "."


def allowed_phrases(path: Path = ALLOWED) -> dict[str, str]:
    """Return the phrases that are no marks, with the reason of each."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {phrase.strip(): reason.strip() for phrase, _, reason in (line.partition("|") for line in lines)}


@cache
def _phrases(path: Path) -> re.Pattern[str]:
    phrases = "|".join(map(re.escape, allowed_phrases(path)))
    return re.compile(rf"\b(?:{phrases})\b", re.IGNORECASE)


def _strings(nodes: list[ast.AST], *, has_messages: bool) -> Iterator[tuple[int, str]]:
    """Give (line, text) of docstrings and, if people read them, of other strings."""
    done = set[int]()  # docstrings, and parts of other strings; a walk gives the whole before its parts
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                done.add(id(first.value))
                yield first.lineno, ast.get_docstring(node) or ""
        elif isinstance(node, ast.JoinedStr):
            done |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if has_messages and " " in text.strip():
                yield node.lineno, text
        elif has_messages and id(node) not in done and isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else ""
            if " " in text.strip():
                yield node.lineno, text


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Give (line, text) of each comment; lines of their own that follow each other are one."""
    begins, next_line, column, lines = 0, 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#:").strip()
        if _TOOLS_COMMENT.match(text):
            continue
        (line, at), is_alone = token.start, not token.line[: token.start[1]].strip()
        if is_alone and lines and line == next_line and at == column and not token.string.startswith("#:"):
            lines.append(text)
        else:
            if lines:
                yield begins, "\n".join(lines)
            begins, column, lines = line, at if is_alone else -1, [text]
        next_line = line + 1
    if lines:
        yield begins, "\n".join(lines)


def _marks_of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node) or ""
    if node.name.startswith("test_"):  # a docstring of a test is a claim
        if len(node.name) > TEST_NAME_MAX or node.name.startswith("test_what_"):
            yield "test name", node.name
        return
    if not text:
        return
    if node.name == "__init__" and _NEW.match(text.split("\n\n")[0]):
        yield "new object", text.partition("\n")[0]
    elif not _begins_with_verb(text):
        yield "no verb", f"{node.name}: {text.partition(chr(10))[0]}"


def _begins_with_verb(text: str) -> bool:
    first = re.match(r"[A-Za-z]+", text)
    if first is None:
        return False
    word = f" {first[0].lower()} "
    if word in _VERBS:
        return True
    is_another_form = word.endswith(("ing ", "ed ")) or (word.endswith("s ") and not word.endswith("ss "))
    return word not in _NO_VERBS and not is_another_form


def main(arguments: list[str] | None = None) -> int:
    """Print the counts, or check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a file that is not on the list has a mark")
    parser.add_argument("--lines", action="store_true", help="print each mark with its place")
    parser.add_argument("--shorten", action="store_true", help="drop files without a mark from the list")
    parser.add_argument("under", nargs="*", help="only files whose path begins so")
    options = parser.parse_args(arguments)
    if options.check:
        wrong = beyond(marks(left_out=frozenset(left())))
        _print_lines(wrong)
        return 1 if wrong else 0
    found = marks()
    if options.shorten:
        marked = {mark.path for mark in beyond(found)}
        LEFT.write_text("".join(f"{name}\n" for name in left() if name in marked), encoding="utf-8")
        return 0
    found = [mark for mark in found if mark.path.startswith(tuple(options.under) or "")]
    if options.lines:
        _print_lines(found)
    else:
        _print_counts(found)
    return 0


def _print_lines(found: list[Mark]) -> None:
    for mark in found:
        print(f"{mark.path}:{mark.line}: {mark.mark}: {mark.text}")


def _print_counts(found: list[Mark]) -> None:
    print("| Mark | Count |\n| --- | ---: |")
    for name, count in Counter(each.mark for each in found).most_common():
        print(f"| {name}{' (only counted)' if name in REPORTED_ONLY else ''} | {count:,} |")
    print(f"| all | {len(found):,} |\n\n| Room | Files | Marks |\n| --- | ---: | ---: |")
    paths: dict[str, list[str]] = {}
    for each in found:
        paths.setdefault(room(each.path), []).append(each.path)
    for name, inside in sorted(paths.items()):
        print(f"| `{name}/` | {len(set(inside))} | {len(inside):,} |")
    print(f"\n{len({each.path for each in found})} files have marks; {len(left())} are on the list")


if __name__ == "__main__":
    sys.exit(main())
