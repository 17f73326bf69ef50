"""The compiled modules use only code that mypyc compiles faithfully."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUSPENDING = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)


def compiled_sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    spec = spec_from_file_location("holdfast_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = module_from_spec(spec)
    spec.loader.exec_module(setup)
    monkeypatch.chdir(ROOT)
    return [path for paths in setup.compiled_sources().values() for path in paths]


def within(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes that run with the statements, without the functions that are defined there."""
    waiting: list[ast.AST] = [*statements]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def test_modules_named_in_setup_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = compiled_sources(monkeypatch)
    assert len(sources) > 40
    assert [path for path in sources if not Path(path).is_file()] == []


def test_nothing_waits_while_it_handles_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    # mypyc leaves the exception in handling for the code that runs next, whose own exceptions would carry it as their context,
    # and those of the next round these, without an end.
    waiting = [
        f"{path}:{node.lineno}"
        for path in compiled_sources(monkeypatch)
        for found in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(found, ast.Try)
        for statements in (found.finalbody, *(handler.body for handler in found.handlers))
        for node in within(statements)
        if isinstance(node, SUSPENDING)
    ]
    assert waiting == []


def test_nothing_waits_while_it_leaves_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    # The end of `async with` is awaited in a handler, too; that of a timeout does not wait.
    blocks = {
        ast.unparse(item.context_expr).partition("(")[0]
        for path in compiled_sources(monkeypatch)
        for found in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(found, ast.AsyncWith)
        for item in found.items
    }
    assert blocks <= {"asyncio.timeout"}


def test_no_lambda_takes_any_number_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    # mypyc gives all of them the type of the first, and the C of it does not compile.
    lambdas = [
        f"{path}:{node.lineno}"
        for path in compiled_sources(monkeypatch)
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.Lambda) and (node.args.vararg or node.args.kwarg)
    ]
    assert lambdas == []


def test_no_text_holds_half_of_a_surrogate_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    # mypyc refuses such a literal.
    literals = [
        f"{path}:{node.lineno}"
        for path in compiled_sources(monkeypatch)
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if any(0xD800 <= ord(character) <= 0xDFFF for character in node.value)
    ]
    assert literals == []


def test_nothing_reads_the_cause_of_an_exception_of_ours() -> None:
    # `raise … from` sets none when it is compiled, so code that reads one would behave differently in that build.
    # Exceptions of aiokafka, which is not compiled by us, have one.
    house = ROOT / "holdfast"
    paths = set(house.rglob("*.py")) - {house / "kafka" / "aiokafka_parts.py"}
    assert [path for path in paths if "__cause__" in path.read_text()] == []
