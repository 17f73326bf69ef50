"""Every mutant is caught, by the invariant and at the seed that `mutants_caught.json` holds."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.records.share import replay
from holdfast.runtime import coordinator
from holdfast.runtime.partition import serving
from tests.simulated.__main__ import KINDS
from tests.simulated.checks.coverage import lived
from tests.simulated.mutants import (
    MUTANTS,
    OPEN_MUTANTS,
    OPEN_PATCHES,
    PATCHES,
    Mutant,
    PatchFailed,
    catching_lives,
    find,
    mutated,
    parse,
    patched,
    recorded,
    run_test,
)

pytestmark = pytest.mark.pure_build("mutants are patches to the sources")

RECORDED = recorded()


def test_enough_mutants_are_recorded() -> None:
    assert list(RECORDED) == list(MUTANTS), "run `python -m tests.simulated.mutants --record`"
    assert len(MUTANTS) >= 160


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    caught = RECORDED[name]
    if caught.kind not in KINDS:
        assert run_test(name, caught.invariant), f"{caught.invariant} does not fail with the mutant"
        return
    assert find(MUTANTS[name], caught.kind, range(caught.seed, caught.seed + 1)) == caught, (
        "after a change of the core or the simulation: `python -m tests.simulated.mutants --record`"
    )


def test_a_test_that_passes_catches_nothing() -> None:
    assert not run_test("answer at append", "tests/pure/test_hidden_texts.py")
    assert not run_test("answer at append", "tests/pure/no_such_test.py")


@pytest.mark.parametrize(("kind", "seed"), sorted(catching_lives() - lived()))
def test_the_real_core_is_not_caught(kind: str, seed: int) -> None:
    """In the lives that caught a mutant, but for those that `test_simulation.py` lives anyway."""
    KINDS[kind](seed)


def test_open_mutants_fit_the_sources_and_are_recorded_nowhere() -> None:
    every = parse(PATCHES.read_text() + "\n" + OPEN_PATCHES.read_text())
    for name in OPEN_MUTANTS:
        origin = Path(find_spec(every[name].module).origin)  # type: ignore[arg-type,union-attr]  # a module of ours has a file
        assert patched(every[name], origin) != origin.read_text()
        assert name not in RECORDED


def test_a_patch_lives_in_memory_only() -> None:
    mutant = MUTANTS["answer at append"]
    before = Path(serving.__file__).read_text()
    with mutated(mutant):
        assert sys.modules["holdfast.runtime.coordinator"] is not coordinator  # which imports it by others
        assert sys.modules["holdfast.records.share.replay"] is replay  # which does not
        assert sys.modules["holdfast.runtime.partition.serving"] is not serving
        assert sys.modules["holdfast.runtime.partition"].serving is not serving
    assert sys.modules["holdfast.runtime.partition.serving"] is serving
    assert sys.modules["holdfast.runtime.coordinator"] is coordinator
    assert sys.modules["holdfast.runtime.partition"].serving is serving
    assert sys.modules["tests"].simulated is sys.modules["tests.simulated"]
    assert Path(serving.__file__).read_text() == before


def test_a_patch_that_does_not_fit_is_a_failure() -> None:
    path = Path(serving.__file__)
    with pytest.raises(PatchFailed, match="stand 0 times"):
        patched(Mutant("wrong", serving.__name__, [("no such line\n", "x\n")]), path)
    with pytest.raises(PatchFailed, match="not imported"), mutated(Mutant("lost", "holdfast.cli", [])):
        pass


def test_a_patch_is_short_and_has_a_name_of_its_own() -> None:
    entry = "= name\n@ a/b.py\n-old\n+new\n...\n+second\n stays\n"
    assert parse(entry) == {"name": Mutant("name", "a.b", [("old\n", "new\n"), ("stays\n", "second\nstays\n")])}
    with pytest.raises(PatchFailed, match="twice"):
        parse(entry + entry)
    with pytest.raises(PatchFailed, match="more than 10"):
        parse(entry + "+line\n" * 9)
