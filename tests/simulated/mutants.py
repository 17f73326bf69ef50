"""Deliberate bugs (`mutants.txt`): each a patch of a few lines to the shipped core, and each caught by a named invariant.

    python -m tests.simulated.mutants                run every mutant from seed 0 on and print what caught it
    python -m tests.simulated.mutants --record       and write that into `mutants_caught.json`, which CI runs again
    python -m tests.simulated.mutants --open         run those that nothing has caught yet (`mutants_open.txt`)
    python -m tests.simulated.mutants --only NAME --trace
    python -m tests.simulated.mutants --only NAME --pytest tests/pure/...::test_...
        run a test with the mutant; with --record, for one that no life catches, take the test for what catches it

Lives in memory and on the cluster are tried, those on the cluster alone where the Kafka log's own code is mutated,
those of a group alone where the membership is, and those of a gateway alone where the gateway is.

A patch is applied to the source in memory while it is imported; the tree is never touched, and a patch that does not apply is a failure.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

MEMORY, CLUSTER, GROUP, LEADERS, GATEWAY = "memory", "cluster", "group", "leaders", "gateway"
#: By kind: the module and the function that lives one life.
LIVES = {
    MEMORY: ("tests.simulated.life", "run_life"),
    CLUSTER: ("tests.simulated.cluster.life", "run_cluster_life"),
    GROUP: ("tests.simulated.group.life", "run_group_life"),
    GATEWAY: ("tests.simulated.gateway.life", "run_gateway_life"),
    LEADERS: ("tests.simulated.life", "run_leader_life"),
}
#: Lives that are tried, in this order: kind, first seed, and seed behind the last.
TRIES = ((MEMORY, 0, 150), (CLUSTER, 0, 100), (MEMORY, 150, 800), (CLUSTER, 100, 300))
GROUP_TRIES = ((GROUP, 0, 150),)
GATEWAY_TRIES = ((GATEWAY, 0, 300),)
LEADER_TRIES = ((LEADERS, 0, 150),)
#: Modules that only lives on the cluster run.
KAFKA_LOG = ("holdfast.runtime.kafka_log", "holdfast.kafka")
#: The module that only lives with leaders run.
LEADER_CALLS = "holdfast.share.read_or_initialize"
#: Modules that only lives of a group run.
MEMBERSHIP = (
    "holdfast.backoff",
    "holdfast.membership",
    "holdfast.daemon.membership",
    "holdfast.daemon.config_topic",
    "holdfast.daemon.partitions",
)
#: Modules that only lives of a gateway run.
OF_THE_GATEWAY = ("holdfast.gateway", "holdfast.delivery")
#: Where a recorded catcher begins that is a test and no life.
TESTS = "tests/"
PATCHES = Path(__file__).with_name("mutants.txt")
CAUGHT = Path(__file__).with_name("mutants_caught.json")
#: Those that nothing has caught yet, and those that were not tried yet; none of them is a proof of anything.
OPEN_PATCHES = Path(__file__).with_name("mutants_open.txt")
#: Lines of a patch that may go or come.
LINES_MAX = 10

#: Packages that our tests import in any case, and that no mutant is in.
NO_CODE_OF_OURS = (
    "aiokafka",
    "confluent_kafka.admin",
    "fastavro",
    "hypothesis",
    "pydantic",
    "pytest_asyncio.plugin",
    "structlog",
)
#: The exit code of a process whose test failed; one that could not run a test ends with another.
FAILED = 77

#: What a patch raises that has no meaning; it proves nothing.
CRASHES = ("NameError", "AttributeError", "TypeError", "ImportError")


class Mutant(NamedTuple):
    """A bug: in one module, each old text, which stands there once, becomes a new one."""

    name: str
    module: str
    replacements: list[tuple[str, str]]


class Caught(NamedTuple):
    """What caught a mutant: the invariant's name, the first seed at which it did, and the kind of life; or a test."""

    invariant: str  #: or the test's id
    seed: int
    kind: str = MEMORY


class PatchFailed(Exception):
    """A patch is malformed, too long, or does not fit the source any more."""


def parse(text: str) -> dict[str, Mutant]:
    """Return the mutants of a text in the form that `mutants.txt` describes, by name.

    Raises:
        PatchFailed: two of one name, or a patch that is too long.
    """
    mutants: dict[str, Mutant] = {}
    for entry in ("\n" + text).split("\n= ")[1:]:
        name, file, *lines = entry.rstrip().split("\n")
        if name in mutants:
            raise PatchFailed(f"{name} stands there twice")
        if sum(line[:1] in ("-", "+") for line in lines) > LINES_MAX:
            raise PatchFailed(f"{name}: more than {LINES_MAX} lines go or come")
        hunks = [hunk.split("\n") for hunk in "\n".join(lines).split("\n...\n")]
        replacements = [(_side(hunk, "-"), _side(hunk, "+")) for hunk in hunks]
        mutants[name] = Mutant(name, file.removeprefix("@ ").removesuffix(".py").replace("/", "."), replacements)
    return mutants


def _side(hunk: list[str], sign: str) -> str:
    """Return the lines that stay and those of one sign."""
    return "".join(f"{line[1:]}\n" for line in hunk if line[:1] in (" ", sign))


MUTANTS = parse(PATCHES.read_text())
OPEN_MUTANTS = parse(OPEN_PATCHES.read_text())
_ALL = MUTANTS | OPEN_MUTANTS


def recorded() -> dict[str, Caught]:
    """Return what caught each mutant when it was recorded, by the mutant's name."""
    return {name: Caught(*caught) for name, caught in json.loads(CAUGHT.read_text()).items()}


def catching_lives() -> set[tuple[str, int]]:
    """Return kind and seed of the lives that caught a mutant; the real core lives each without a violation."""
    return {(caught.kind, caught.seed) for caught in recorded().values() if not caught.invariant.startswith(TESTS)}


def patched(mutant: Mutant, path: Path) -> str:
    """Return the source of a module with the mutant's patch.

    Raises:
        PatchFailed: the lines to be replaced do not stand there exactly once.
    """
    source = "\n" + path.read_text()
    for old, new in mutant.replacements:
        if source.count("\n" + old) != 1:
            count = source.count("\n" + old)
            raise PatchFailed(f"{mutant.name}: these lines stand {count} times in {path.name}, not once:\n{old}")
        source = source.replace("\n" + old, "\n" + new)
    return source[1:]


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the patched source, past any cache of bytecode."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Compile the patched source."""
        return compile(self._source, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module: the one with the patch."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self.is_used = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the patched module's spec, None for all others."""
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        self.is_used = True
        loader = _Loader(fullname, found.origin, patched(self._mutant, Path(found.origin)))
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


@cache
def _imports(name: str) -> frozenset[str]:
    """Return what a loaded module may import, also within functions, and as `from package import name` may mean."""
    origin = getattr(sys.modules[name], "__file__", None)
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(origin).read_text())) if origin else ():
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def _touched(module: str) -> dict[str, ModuleType]:
    """Return the loaded modules that a patch of one reaches, by name: itself, and those that import it by whatever way."""
    ours = {name for name in sys.modules if name.split(".")[0] in ("holdfast", "tests")}
    found, more = {module}, {module}
    while more:
        more = {name for name in ours - found if not _imports(name).isdisjoint(more)}
        found |= more
    return {name: sys.modules[name] for name in found & ours}


def _forget(modules: dict[str, ModuleType]) -> list[tuple[ModuleType, str, object]]:
    """Let modules be imported anew, also by `from package import name`; returns what packages had under their names."""
    had: list[tuple[ModuleType, str, object]] = []
    for name, module in modules.items():
        package, _, child = name.rpartition(".")
        if package in sys.modules and hasattr(sys.modules[package], child):
            had.append((sys.modules[package], child, getattr(sys.modules[package], child)))
            if had[-1][2] is module:
                delattr(sys.modules[package], child)
    for name in modules:
        del sys.modules[name]
    return had


@contextmanager
def mutated(mutant: Mutant, kind: str = MEMORY) -> Iterator[tuple[Callable[..., Any], type[BaseException]]]:
    """Import with the mutant what lives of a kind need of it; gives what runs a life, and its `Violation`, then puts the real ones back.

    Modules that do not import the mutated one by any way are the real ones.
    """
    finder = _Finder(mutant)
    module, function = LIVES[kind]
    importlib.import_module(module)
    real = _touched(mutant.module)
    had = _forget(real)
    sys.meta_path.insert(0, finder)
    try:
        run = getattr(importlib.import_module(module), function)
        if not finder.is_used:
            raise PatchFailed(f"{mutant.name}: {mutant.module} is not imported by lives of the kind {kind!r}")
        yield run, importlib.import_module("tests.simulated.checks.invariants").Violation
    finally:
        sys.meta_path.remove(finder)
        _forget(_touched(mutant.module))
        sys.modules.update(real)
        for package, child, value in had:
            setattr(package, child, value)


@contextmanager
def imported_again(mutant: Mutant | None, prefixes: tuple[str, ...]) -> Iterator[None]:
    """Let all loaded modules whose names begin so be imported again, with a mutant or without one; then the real ones come back."""
    real = {name: module for name, module in sys.modules.items() if name.startswith(prefixes)}
    finders = [] if mutant is None else [_Finder(mutant)]
    for name in real:
        del sys.modules[name]
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(prefixes)]:
            del sys.modules[name]
        sys.modules.update(real)
        for package in prefixes:
            parent, _, child = package.rpartition(".")
            if package in real:
                setattr(sys.modules[parent], child, real[package])
    assert all(finder.is_used for finder in finders), "nothing imports what is mutated"


def plant(names: Sequence[str]) -> None:
    """Let what is imported from now on have these mutants, which are of different modules."""
    sys.meta_path[:0] = [_Finder(_ALL[name]) for name in names]


def find(mutant: Mutant, kind: str, seeds: range) -> Caught | None:
    """Return what caught the mutant first in lives of one kind, or None."""
    with mutated(mutant, kind) as (run, violation):
        for seed in seeds:
            try:
                run(seed)
            except violation as caught:
                if any(f"{crash}(" in str(caught) for crash in CRASHES):
                    raise PatchFailed(f"{mutant.name} crashes where it should do something wrong: {caught}") from caught
                return Caught(caught.invariant.name, seed, kind)  # type: ignore[attr-defined]  # of the class imported anew
    return None


def _tries(module: str) -> tuple[tuple[str, int, int], ...]:
    """Return the lives in which a mutant of a module is looked for."""
    if module == LEADER_CALLS:
        return LEADER_TRIES
    if module.startswith(OF_THE_GATEWAY):
        return GATEWAY_TRIES
    return GROUP_TRIES if module.startswith(MEMBERSHIP) else TRIES


def find_anywhere(mutant: Mutant) -> Caught | None:
    """Return what caught the mutant first, or None."""
    is_of_the_kafka_log = mutant.module.startswith(KAFKA_LOG)
    for kind, start, stop in _tries(mutant.module):
        if kind == CLUSTER or not is_of_the_kafka_log:
            found = find(mutant, kind, range(start, stop))
            if found is not None:
                return found
    return None


def run_test(name: str, test: str) -> bool:
    """Run a test in a process of its own with a mutant; returns whether it failed."""
    # Each is forked from one process that has imported what no mutant is in, which takes longer than most of the tests.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", *NO_CODE_OF_OURS])
    process = context.Process(target=_run_with_mutant, args=(name, test))
    process.start()
    process.join()
    return process.exitcode == FAILED


def _run_with_mutant(name: str, test: str) -> None:
    """Run a test with a mutant, silently, and end the process so that it tells whether the test failed."""
    import pytest

    # A test that waits in vain for what the mutant has lost has failed after 15 s as after five minutes.
    os.environ |= {"HYPOTHESIS_PROFILE": "mutant", "PATIENCE": "0.05"}
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    plant([name])
    for module in [name for name in sys.modules if name.split(".")[0] == "holdfast"]:
        del sys.modules[module]
    plugins = (f"no:{plugin}" for plugin in ("cacheprovider", "randomly", "xdist"))
    code = pytest.main(["-q", "-x", "--assert=plain", *(f"-p{plugin}" for plugin in plugins), test])
    sys.exit(FAILED if code == pytest.ExitCode.TESTS_FAILED else code)


def _find_one(name: str) -> tuple[str, Caught | None, float]:
    began_s = time.process_time()
    caught = find_anywhere(_ALL[name])
    return name, caught, time.process_time() - began_s


def _trace(mutant: Mutant) -> int:
    caught = find_anywhere(mutant)
    if caught is None:
        print(f"{mutant.name} is not caught")
        return 1
    lines: list[str] = []
    with mutated(mutant, caught.kind) as (run, violation):
        try:
            run(caught.seed, lines.append)
        except violation as told:
            lines.append(str(told))
    print("\n".join(lines))
    return 0


def main() -> int:
    """Parse the command line and run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated.mutants", description="Run every mutant.")
    parser.add_argument("--only", metavar="NAME", action="append", help="run these mutants only")
    parser.add_argument("--open", action="store_true", help="run those of mutants_open.txt")
    parser.add_argument("--record", action="store_true", help="write what caught them into mutants_caught.json")
    parser.add_argument("--trace", action="store_true", help="with one --only: tell the life that caught it")
    parser.add_argument("--pytest", metavar="TEST", help="with one --only: run this test with the mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    names: list[str] = options.only or list(OPEN_MUTANTS if options.open else MUTANTS)
    if options.trace:
        return _trace(_ALL[names[0]])
    width = max(map(len, names))
    recorded: dict[str, list[str | int]] = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
    if options.pytest:
        is_caught = run_test(names[0], options.pytest)
        print(f"{names[0]}  {'caught by' if is_caught else 'NOT CAUGHT by'} {options.pytest}")
        if is_caught and options.record:
            recorded[names[0]] = [options.pytest, -1, "test"]
            _record(recorded)
        return not is_caught
    escaped = 0
    with Pool(options.jobs) as pool:
        for name, caught, took_s in pool.imap(_find_one, names):
            by_test = recorded.get(name, [""])[0]
            if caught is not None:
                recorded[name] = list(caught)
                caught_by = f"{caught.invariant:<28} {caught.kind} {caught.seed + 1:>5} seeds"
            elif str(by_test).startswith(TESTS) and run_test(name, str(by_test)):
                caught_by = f"by no life, but by {by_test}"
            else:
                escaped += 1
                caught_by = "NOT CAUGHT"
            print(f"{name:<{width}}  {caught_by}  {took_s:.1f} s", flush=True)
    print(f"{len(names)} mutants, {len(names) - escaped} caught")
    if options.record:
        _record(recorded)
    return 1 if escaped else 0


def _record(recorded: dict[str, list[str | int]]) -> None:
    kept = {name: recorded[name] for name in MUTANTS if name in recorded}
    CAUGHT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
