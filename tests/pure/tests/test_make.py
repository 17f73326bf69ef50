"""The Makefile: the compiled build repeats the tests of what it compiles."""

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


def test_the_compiled_build_repeats_the_tests_of_the_rooms_that_it_compiles() -> None:
    (folders,) = re.findall(r"^OF_WHAT_IS_COMPILED := \$\(addprefix tests/pure/,([^)]*)\)", MAKEFILE, re.MULTILINE)
    repeated = set(folders.split())
    rooms = {room for rooms in setup_module_of_the_package().COMPILED.values() for room in rooms}
    within = {room for room in rooms if any(room == folder or room.startswith(f"{folder}/") for folder in repeated)}
    assert within == rooms
    assert {folder for folder in repeated if not any(room.startswith(folder) for room in rooms)} == set()
    assert {folder for folder in repeated if not (ROOT / "tests" / "pure" / folder).is_dir()} == set()
