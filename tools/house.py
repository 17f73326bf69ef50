"""How large the rooms of the package are: `python -m tools.house [COMMIT]` prints modules and lines by room, and the import contracts.

A module, a room or a function above the usual size is named at the end: it is a place to look, and no mistake in itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LINES_USUAL_MAX: Final = 450
MODULES_USUAL_MAX: Final = 14
PARAMETERS_USUAL_MAX: Final = 7


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout


def _wide_functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, line and number of parameters of each function that takes more of them than usual, without `self`."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            named = found.args
            names = [each.arg for each in (*named.posonlyargs, *named.args, *named.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > PARAMETERS_USUAL_MAX:
                yield found.name, found.lineno, count


def main() -> int:
    """Print the table of a commit, by default of the last one."""
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    names = _git("ls-tree", "-r", "--name-only", commit, "holdfast").splitlines()
    paths = [PurePosixPath(name) for name in names if name.endswith(".py")]
    sources = {path: _git("show", f"{commit}:{path}") for path in paths}
    lines = {path: source.count("\n") for path, source in sources.items()}
    modules, in_room = Counter[PurePosixPath](), Counter[PurePosixPath]()
    for path, count in lines.items():
        modules[path.parent] += path.name != "__init__.py"
        in_room[path.parent] += count
    contracts = tomllib.loads(_git("show", f"{commit}:pyproject.toml"))["tool"]["importlinter"]["contracts"]
    print("| Room | Modules | Lines |\n| --- | ---: | ---: |")
    for room in sorted(modules):
        print(f"| `{room}/` | {modules[room]} | {in_room[room]:,} |")
    print(f"| all, in {len(modules)} rooms | {sum(modules.values())} | {sum(in_room.values()):,} |")
    longest = max(lines, key=lambda path: lines[path])
    print(f"\nlongest module: `{longest}`, {lines[longest]} lines; fullest room: {max(modules.values())} modules")
    for path, count in lines.items():
        if count > LINES_USUAL_MAX:
            print(f"long module: `{path}`, {count} lines")
    for room, count in modules.items():
        if count > MODULES_USUAL_MAX:
            print(f"full room: `{room}/`, {count} modules")
    for path, source in sources.items():
        for name, line, count in _wide_functions(source):
            print(f"wide function: `{path}:{line}`, `{name}`, {count} parameters")
    print(f"{len(contracts)} import contracts:")
    for contract in contracts:
        ignored = len(contract.get("ignore_imports", ()))
        print(f"- {contract['name']}" + (f" ({ignored} exceptions)" if ignored else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
