"""The house rules that a test can tell; `tools.house` prints the long modules and the full rooms."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODULES = [
    path
    for name in ("holdfast", "tests", "benchmarks", "demo", "tools")
    for path in sorted((ROOT / name).rglob("*.py"))
]


def test_every_module_of_the_package_says_what_it_is() -> None:
    package = [path for path in MODULES if path.is_relative_to(ROOT / "holdfast")]
    assert [path.relative_to(ROOT) for path in package if not ast.get_docstring(ast.parse(path.read_text()))] == []
