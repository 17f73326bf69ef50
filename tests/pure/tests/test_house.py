"""The house rules that can be counted: how long a module is, and how many stand in a folder."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
LINES_MAX = 450
MODULES_MAX = 14
MODULES = [
    path
    for name in ("holdfast", "tests", "benchmarks", "demo", "tools")
    for path in sorted((ROOT / name).rglob("*.py"))
]

IN_C = [path for path in sorted((ROOT / "holdfast").rglob("*")) if path.suffix in (".c", ".h")]


def test_no_module_is_longer_than_a_reader_holds() -> None:
    assert IN_C
    long = {path.relative_to(ROOT): path.read_text().count("\n") for path in (*MODULES, *IN_C)}
    assert {str(path): lines for path, lines in long.items() if lines > LINES_MAX} == {}


def test_no_folder_has_more_modules_than_a_reader_holds() -> None:
    folders = Counter(path.parent.relative_to(ROOT) for path in (*MODULES, *IN_C) if path.name != "__init__.py")
    assert {str(folder): count for folder, count in folders.items() if count > MODULES_MAX} == {}


def test_every_module_of_the_package_says_what_it_is() -> None:
    package = [path for path in MODULES if path.is_relative_to(ROOT / "holdfast")]
    assert [path.relative_to(ROOT) for path in package if not ast.get_docstring(ast.parse(path.read_text()))] == []
