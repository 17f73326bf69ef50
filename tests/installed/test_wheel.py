"""The wheel holds all of the package, and what the pages tell to type works with nothing but the wheel.

WHEELS="pure compiled" names the builds to try (the pure one by default); `make installed` builds them first.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.installed.desk import Desk
from tests.installed.environment import ROOT, Environment, names_in, wheel
from tests.pure.docs.blocks import TYPED_PAGES

pytestmark = pytest.mark.real

BUILDS = os.environ.get("WHEELS", "pure").split()


@pytest.fixture(scope="module", params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def environment(build: str, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp(build), wheel(build))


def test_the_wheel_holds_every_file_of_the_package(build: str) -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    assert files - names_in(wheel(build)) == set()
    assert {Path(name).suffix for name in files} > {".avsc", ".xml", ".properties", ".typed"}


def test_what_the_wheel_declares_is_what_the_lock_installs(environment: Environment) -> None:
    environment.check()


def test_the_commands_are_the_installed_ones(environment: Environment, build: str) -> None:
    told = environment.run(
        "command -v holdfast; holdfast --version; python -c 'import holdfast.runtime.build as b; print(b.BUILD, b.__file__)'"
    )
    assert str(ROOT) not in told
    assert f"\n{build} " in told
    assert "No module named" in environment.run("python -c 'import pyspark' 2>&1 || true")


@pytest.mark.parametrize("build", BUILDS[-1:], indirect=True, scope="module")
def test_every_block_of_the_pages_works_as_typed(environment: Environment, build: str, tmp_path: Path) -> None:
    """Each command ends with 0 and says what the page shows; the tally names what is not run, and why."""
    environment.lend_spark()
    with Desk(environment, tmp_path) as desk:
        for page in TYPED_PAGES:
            desk.type_page(page)
    print(desk.tally)
    assert not desk.tally.problems, "\n\n".join(desk.tally.problems)
