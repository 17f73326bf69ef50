"""The Makefile: the compiled build has the tests of what it compiles, which the pure one leaves out only then."""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def setup_module_of_the_package() -> ModuleType:
    spec = util.spec_from_file_location("setup_of_holdfast", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_compiled_build_has_the_tests_of_the_rooms_that_it_compiles() -> None:
    (folders,) = re.findall(r"^OF_WHAT_IS_COMPILED := \$\(addprefix tests/pure/,([^)]*)\)", MAKEFILE, re.MULTILINE)
    assert {folder for folder in folders.split() if not (ROOT / "tests" / "pure" / folder).exists()} == set()
    # `test_clock.py` is of the module `clock.py`.
    repeated = {folder.removeprefix("test_") for folder in folders.split()}
    rooms = {room for rooms in setup_module_of_the_package().COMPILED.values() for room in rooms}
    within = {room for room in rooms if any(room == folder or room.startswith(f"{folder}/") for folder in repeated)}
    assert within == rooms
    assert {folder for folder in repeated if not any(room.startswith(folder) for room in rooms)} == set()


def test_what_the_pure_build_leaves_out_the_compiled_one_or_the_patches_run() -> None:
    recipes = {
        part: MAKEFILE.split(f"\n{part}: ")[1].split("\n\n")[0] for part in ("interpreted", "patched", "hotpath")
    }
    assert "-m pytest tests/pure tests/vectors $(addprefix --ignore=,$(OF_WHAT_IS_COMPILED))" in recipes["interpreted"]
    assert "$(PYTEST) $(OF_WHAT_IS_COMPILED) tests/fuzz tests/vectors" in recipes["hotpath"]
    assert "$(PYTEST) -m pure_build " in recipes["patched"]
    assert recipes["patched"].endswith(" $(OF_WHAT_IS_COMPILED) tests/simulated)")
    where_compiled = r"\$\(if \$\(filter compiled,\$\(SHIPPED\)\),"
    assert re.search(rf"{where_compiled}interpreted patched,pure sim\) model$", MAKEFILE, re.MULTILINE)
    assert re.search(rf"{where_compiled}\$\(MAKE\) BUILD=compiled NICE=nice hotpath sim\)$", MAKEFILE, re.MULTILINE)
