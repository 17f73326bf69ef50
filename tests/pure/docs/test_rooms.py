"""The tree of the package in docs/architecture.md, and the rooms and files that pages name, are those on the disk."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.pure.docs.pages import PAGES, ROOT, code_behind, code_spans, name_of, table

PACKAGE = ROOT / "holdfast"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY_ROWS_MAX = 30

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def rooms_in(tree: str) -> dict[str, str]:
    """Return the paths of a tree that is drawn by indentation, folders with a slash, and what each line says of it."""
    rooms: dict[str, str] = {}
    above: list[str] = []
    for line in tree.splitlines():
        found = re.fullmatch(r"((?:  )*)([\w./]+)(?: +(.+))?", line)
        assert found is not None, f"a line of the tree is no folder and no file: {line}"
        above = [*above[: len(found[1]) // 2], found[2]]
        rooms["".join(above)] = found[3] or ""
    return rooms


def folders() -> set[str]:
    return {f"{path.parent.relative_to(ROOT)}/" for path in PACKAGE.rglob("__init__.py")}


def test_a_tree_is_read_by_its_indentation() -> None:
    assert rooms_in("a/\n  b.py  one\n  c/    two\n    d/  three\n  e/  four") == {
        "a/": "",
        "a/b.py": "one",
        "a/c/": "two",
        "a/c/d/": "three",
        "a/e/": "four",
    }


def test_the_tree_is_the_folders_of_the_package_with_a_line_for_each() -> None:
    rooms = rooms_in(code_behind(ARCHITECTURE, "rooms"))
    assert {room for room in rooms if room.endswith("/")} == folders()
    assert [room for room, line in rooms.items() if not line and room != "holdfast/"] == []
    assert [room for room in rooms if not (ROOT / room).exists()] == []


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: str(path.parent.relative_to(ROOT))
)
def test_a_room_that_says_what_is_in_it_says_all_and_nothing_else(path: Path) -> None:
    """One that names three of its modules or more lists them; what begins a line of a list is one of them."""
    described = ast.get_docstring(ast.parse(path.read_text())) or ""
    modules = {each.stem for each in path.parent.glob("*.py")} - {"__init__", "__main__"}
    held = modules | {each.parent.name for each in path.parent.glob("*/__init__.py")}
    named = {name.split(".")[0].rstrip("/") for name in re.findall(r"`([a-z_][a-z_0-9./]*)`", described)}
    if len(named & held) >= 3:
        assert held - named == set(), "left out"
        firsts = re.findall(r"^(?:- |\| )`([a-z_][a-z_0-9./]*)`", described, re.MULTILINE)
        assert {name.split(".")[0].rstrip("/") for name in firsts} - held == set(), "gone"


def test_the_glossary_is_short_and_its_rooms_exist() -> None:
    rows = table((ROOT / "docs" / "glossary.md").read_text(), "glossary")
    assert len(rows) <= GLOSSARY_ROWS_MAX
    words = [word for word, _, _ in rows]
    assert len(set(words)) == len(words)
    assert {room for *_, rooms in rows for room in code_spans(rooms) if not (PACKAGE / room).is_dir()} == set()


@every_page
def test_folders_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    for span in code_spans(page.read_text()):
        if re.fullmatch(r"(?:[a-z_]+/)+(?:[\w.-]+\.(?:py|txt|json|yml|toml|md|lock))?", span):
            places = (ROOT / span, PACKAGE / span, ROOT / "tests" / span, page.parent / span)
            assert any(place.exists() for place in places), f"{name_of(page)} names `{span}`, which does not exist"
        elif re.fullmatch(r"(?:holdfast|tests|benchmarks|tools)(?:\.\w+)+", span):
            assert module_of(span) is not None, f"{name_of(page)} names `{span}`, which does not exist"


def module_of(dotted: str) -> Path | None:
    """Return the file of a module, or of the module that the last part of the name is in."""
    parts = dotted.split(".")
    for length in (len(parts), len(parts) - 1):
        stem = ROOT.joinpath(*parts[:length])
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.exists():
                return path if length == len(parts) or parts[-1] in names_of(path) else None
    return None


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return the names of the functions, methods and classes of a module; methods also with their class before them."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {*methods, *(f"{node.name}.{method}" for method in methods)}
    return frozenset(names)


# ---- walks -----------------------------------------------------------------------------------------------------------


def steps(walk: str) -> list[tuple[str, str, str]]:
    """Return room, module and function of each step of a walk."""
    found = [re.fullmatch(r"`(.+)/(\w+)\.([\w.]+)`", step) for step, _ in table(ARCHITECTURE, f"walk of {walk}")]
    assert None not in found, f"a step of the walk of {walk} is not `room/module.function`"
    return [(step[1], step[2], step[3]) for step in found if step is not None]


@pytest.mark.parametrize("walk", ["one write", "one load", "one Spark batch"])
def test_every_step_of_a_walk_is_a_function_of_a_module(walk: str) -> None:
    for room, module, function in steps(walk):
        path = PACKAGE / room / f"{module}.py"
        assert path.exists(), f"the walk of {walk} goes through {room}/{module}.py, which does not exist"
        assert function in names_of(path), f"{room}/{module}.py has no {function}"


@pytest.mark.parametrize("walk", ["one write", "one load", "one Spark batch"])
def test_a_walk_enters_no_room_twice_without_saying_why(walk: str) -> None:
    entered: list[str] = []
    for (room, *_), (step, why) in zip(steps(walk), table(ARCHITECTURE, f"walk of {walk}"), strict=True):
        if entered[-1:] == [room]:
            continue
        assert room not in entered or "again: " in why, f"{step} enters {room} again, and the walk does not say why"
        entered.append(room)
