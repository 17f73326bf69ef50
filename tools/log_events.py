"""The events of all log lines, found in the code: `python -m tools.log_events` lists them.

With `--missing` it prints the rows that docs/log-events.md lacks, and what else is wrong with page or code.

An event is the first argument of a method of a logger (`_log.info("…")`), or what takes its place in a call that carries it there
(`CARRIERS`): the pure core has no logger, and hands level, event and fields to its host.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "holdfast"
PAGE: Final = ROOT / "docs" / "log-events.md"

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
#: Method of a logger to the level of its lines.
_METHODS: Final = {level: level for level in LEVELS} | {"exception": "error"}
_LOGGERS: Final = frozenset({"_log", "log", "logger"})

#: Functions, methods and classes that take an event to where it is logged, and which of their arguments it is; one before it that is a
#: level is the level, otherwise it is the one given here.
#: Not named are calls that begin with a level and an event, and private functions that hand one of their own parameters on.
CARRIERS: Final = {
    "note": (1, ""),
    "_note": (1, ""),
    "Note": (1, ""),
    "Violation": (0, "warning"),
    "note_bug": (0, "error"),
    "protocol.report": (0, "warning"),
}
#: Functions that pass on events of other places, except private ones that get them as a parameter: `module.function`, the module by its
#: last name.
FORWARDERS: Final = frozenset(
    {
        "store.note",
        "topic.note",
        "child_lines.__call__",
        "internal_errors.note_bug",
        "partition_lines.note",
        "partitions.note",
        "logging.warn_of_client",
        "coordinator._carry_out",
        "lifecycle._follow",
        "member._carry_out",
        "protocol.close",
        "protocol.close_answered",
    }
)
#: Dictionaries of a module whose values are events.
TABLES: Final = {"partition_lines._SUMMED": "info"}


class Site(NamedTuple):
    """A place that logs: `event` is empty where it is not known from the code."""

    path: Path
    line: int
    function: str
    level: str
    event: str

    @property
    def place(self) -> str:
        """Return its file and line, as people read it."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


@cache
def sites(package: Path = PACKAGE) -> tuple[Site, ...]:
    """Return every place that logs an event, in the order of files and lines; a package is read once."""
    return tuple(site for path in sorted(package.rglob("*.py")) for site in _Module(path).sites())


def events(found: Iterable[Site]) -> dict[str, set[str]]:
    """Return each event with its levels."""
    levels: defaultdict[str, set[str]] = defaultdict(set)
    for site in found:
        if site.event:
            levels[site.event].add(site.level)
    return dict(levels)


def is_well_formed(event: str) -> bool:
    """Tell whether an event is words in snake case, at least a noun and what befell it."""
    return re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", event) is not None


def unknown(found: Iterable[Site]) -> list[Site]:
    """Return the places whose event is neither known from the code nor handed on by one of `FORWARDERS`."""
    return [site for site in found if not site.event and f"{site.path.stem}.{site.function}" not in FORWARDERS]


def rows(page: str) -> dict[str, list[str]]:
    """Return the rows of the catalogue by event: level, meaning, what to do."""
    cells = (
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("| `")
    )
    return {event.strip("`"): rest for event, *rest in cells}


class _Module:
    """A module's syntax tree, walked with the function that each call is in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        self._constants = dict(_assigned(self._tree.body))
        #: Private functions that hand one of their own parameters on as an event: its place in a call, and the level.
        self._handing: dict[str, tuple[int, str]] = {}
        #: Names that callers of the private function being walked give; what these are is seen at the calls.
        self._given: set[str] = set()
        functions = [node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        before = -1
        while before != len(self._handing):  # one may hand it on to another
            before = len(self._handing)
            self._handing |= {each.name: found for each in functions if (found := self._handed_on(each)) is not None}

    def sites(self) -> Iterator[Site]:
        yield from self._tables()
        yield from self._walk(self._tree, "", {})

    def _handed_on(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, str] | None:
        """Return which parameter of a private function is an event, counted without `self`, and its level; None if none is."""
        parameters = _parameters(function)
        if _is_private(function.name):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                place = self._place_of_event(call)
                if place is not None and place[0] < len(call.args):
                    event = call.args[place[0]]
                    if isinstance(event, ast.Name) and event.id in parameters:
                        before = call.args[place[0] - 1] if place[0] else None
                        levels = self._strings(before, {}) if before is not None else None
                        return parameters.index(event.id), min(levels) if levels else place[1]
        return None

    def _tables(self) -> Iterator[Site]:
        for name, level in TABLES.items():
            module, _, constant = name.partition(".")
            table = self._constants.get(constant) if self._path.stem == module else None
            if isinstance(table, ast.Dict):
                for value in table.values:
                    for event in self._strings(value, {}) or ("",):
                        yield Site(self._path, value.lineno, "", level, event)

    def _walk(self, node: ast.AST, function: str, local: dict[str, ast.expr]) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = dict(_assigned(each for each in ast.walk(child) if isinstance(each, ast.stmt)))
                outer, self._given = self._given, _given(child)
                yield from self._walk(child, child.name, inner)
                self._given = outer
                continue
            if isinstance(child, ast.Call):
                yield from self._of_call(child, function, local)
            yield from self._walk(child, function, local)

    def _of_call(self, call: ast.Call, function: str, local: dict[str, ast.expr]) -> Iterator[Site]:
        place = self._place_of_event(call)
        if place is None:
            return
        index, level = place
        if index >= len(call.args) or _name(call.args[index]) in self._given:
            return
        before = self._strings(call.args[index - 1], local) if index else None
        for event in self._strings(call.args[index], local) or ("",):
            for found in before if before and before <= set(LEVELS) else (level or "varies",):
                yield Site(self._path, call.lineno, function, found, event)

    def _place_of_event(self, call: ast.Call) -> tuple[int, str] | None:
        """Return which argument of a call is an event, and at which level, None if it carries none."""
        called = call.func
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "getattr":
            return (0, "") if _last_name(called.args[0]) in _LOGGERS else None
        name = _last_name(called)
        owner = _last_name(called.value) if isinstance(called, ast.Attribute) else ""
        if owner in _LOGGERS and name in _METHODS:
            return 0, _METHODS[name]
        if owner in ("", "self") and name in self._handing:
            return self._handing[name]
        begins_with_level = len(call.args) > 1 and (self._strings(call.args[0], {}) or {""}) <= set(LEVELS)
        if isinstance(called, ast.Attribute) and begins_with_level and self._strings(call.args[1], {}):
            return 1, ""
        return CARRIERS.get(f"{self._path.stem}.{name}") or CARRIERS.get(f"{owner}.{name}") or CARRIERS.get(name)

    def _strings(self, node: ast.expr, local: dict[str, ast.expr]) -> set[str] | None:
        """Return the texts that an expression can be, None where that is not known."""
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else None
        if isinstance(node, ast.IfExp):
            both = self._strings(node.body, local), self._strings(node.orelse, local)
            return None if None in both else set().union(*(each for each in both if each))
        if isinstance(node, ast.Name):
            found = local.get(node.id) or self._constants.get(node.id)
            return None if found is None or isinstance(found, ast.Name) else self._strings(found, local)
        return None


def _assigned(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and what is assigned to them, those of a tuple one by one."""
    for statement in statements:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        for target in targets:
            value = statement.value  # type: ignore[attr-defined]  # it is one of the two above
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=False)
                yield from ((each.id, found) for each, found in pairs if isinstance(each, ast.Name))
            elif isinstance(target, ast.Name):
                yield target.id, value


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's positional parameters, without `self`."""
    return [each.arg for each in function.args.args if each.arg != "self"]


def _given(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names in a private function whose values its callers give: parameters, and what a tuple among them is unpacked to."""
    if not _is_private(function.name):
        return set()
    given = set(_parameters(function))
    for each in ast.walk(function):
        if isinstance(each, ast.Assign) and _name(each.value) in given and isinstance(each.targets[0], ast.Tuple):
            given |= {_name(target) for target in each.targets[0].elts}
    return given - {""}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _row(event: str, levels: set[str]) -> str:
    return f"| `{event}` | {' or '.join(sorted(levels, key=(*LEVELS, 'varies').index))} |  |  |"


def main() -> int:
    """Print what was asked for; with `--missing`, the exit code is 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tools.log_events", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--missing", action="store_true", help="rows that the page lacks, and those that no code logs")
    options = parser.parse_args()
    found = sites()
    named = events(found)
    if not options.missing:
        for site in found:
            print(f"{site.event or '?':60} {site.level:8} {site.place} {site.function}")
        return 0
    described = rows(PAGE.read_text(encoding="utf-8"))
    lacking = [_row(event, named[event]) for event in sorted(named.keys() - described.keys())]
    gone = [f"no code logs `{event}`, which the page has" for event in sorted(described.keys() - named.keys())]
    unnamed = [f"{site.place} logs an event that is not in the code ({site.function})" for site in unknown(found)]
    ugly = [f"`{event}` is not in snake case" for event in sorted(named) if not is_well_formed(event)]
    print("\n".join([*lacking, *gone, *unnamed, *ugly]))
    return 1 if lacking or gone or unnamed or ugly else 0


if __name__ == "__main__":
    sys.exit(main())
