"""A fresh virtual environment that has the wheel and its declared dependencies, and a shell in it outside of the source tree.

What the lock names is installed once, by hash; each wheel's environment begins as a copy of that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from holdfast.broker.properties import HOST, choose_ports
from holdfast.jars.cache import cache_dir, kafka_home, spark_kafka_jars
from tests.waiting import PATIENCE_S, SPARK_PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python")


def wheel(build: str) -> Path:
    """Return the wheel of a build, pure or compiled, as `make wheel` leaves it in `dist`."""
    found = [
        path for path in sorted((ROOT / "dist").glob("holdfast_kafka-*.whl")) if is_pure(path) == (build == "pure")
    ]
    assert len(found) == 1, f"dist has {len(found)} {build} wheels; `make wheel` builds one"
    return found[0]


def is_pure(path: Path) -> bool:
    """Tell whether a wheel has no compiled part."""
    return path.stem.endswith("-none-any")


def names_in(path: Path) -> set[str]:
    """Return the files that a wheel holds."""
    with ZipFile(path) as files:
        return set(files.namelist())


def install_locked(directory: Path) -> Path:
    """Make a virtual environment of what an extra-less installation needs, by hash, and return where its packages are."""
    venv.create(directory, with_pip=False)
    locked = ("--require-hashes", "--requirement", str(ROOT / "deploy" / "requirements.lock"))
    _pip(directory / "bin" / "python", "install", "--quiet", *locked)
    return _packages(directory)


class Environment:
    """A virtual environment, and a directory in which its commands run."""

    def __init__(self, directory: Path, wheel: Path, locked: Path) -> None:
        """Make it, with the wheel, and the packages that `install_locked` has installed."""
        self._python = directory / "environment" / "bin" / "python"
        self.place = directory / "place"
        self.place.mkdir()
        venv.create(self._python.parents[1], with_pip=False)
        shutil.copytree(locked, _packages(self._python.parents[1]), copy_function=os.link, dirs_exist_ok=True)
        self._pip("install", "--quiet", "--no-deps", str(wheel))
        self._cache = directory / "cache"
        self._cache.mkdir()
        # What a first start fetches by PySpark's Ivy; a broker of these commands must not lie in the user's cache.
        for home in (kafka_home(), spark_kafka_jars()[0].parent):
            assert home.parent == cache_dir()
            (self._cache / home.name).symlink_to(home)
        ports = choose_ports(2)
        self.address, self._kafka_port = f"{HOST}:{ports[0].broker}", ports[1].broker

    def check(self) -> None:
        """Check that what is installed is what the wheel declares."""
        self._pip("check")

    def install(self, package: str, lock: str) -> None:
        """Install a package alone, as a lock has it."""
        (block,) = re.findall(rf"^{package}==.*(?:\n    .*)*", (ROOT / "deploy" / lock).read_text(), re.MULTILINE)
        pin = self.place / f"{package}.lock"
        pin.write_text(block)
        self._pip("install", "--quiet", "--no-deps", "--require-hashes", "--requirement", str(pin))

    def lend_spark(self) -> None:
        """Give it the extra `spark`, as this environment has it; our own code is not found that way."""
        (_packages(self._python.parents[1]) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a shell in it."""
        of_ours = ("PYTHON", "PYSPARK", "SPARK", "HOLDFAST", "VIRTUAL_ENV", "BUILD_UNDER_TEST")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(of_ours)}
        return kept | {
            "PATH": f"{self._python.parent}:{kept['PATH']}",
            "HOLDFAST_CACHE": str(self._cache),
            # Other nodes may have the usual port of this machine.
            "HOLDFAST_LISTEN": self.address,
            "HOLDFAST_ADDRESS": self.address,
            "HOLDFAST_DEV_KAFKA_PORT": str(self._kafka_port),
        }

    def run(self, script: str) -> str:
        """Run a script of bash that ends at its first failure, and return what it printed."""
        ended = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.place,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SPARK_PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, f"{script}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def _pip(self, *arguments: str) -> None:
        _pip(self._python, *arguments)


def _packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))


def _pip(python: Path, *arguments: str) -> None:
    ended = subprocess.run(
        [*_PIP, str(python), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
