"""Spark's home without zips: what is in it, and when Spark's own is used."""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast.compaction.spark import home as home_module
from holdfast.compaction.spark.home import use_home_without_zips


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have no home named, and an empty cache; gives PySpark's directory."""
    monkeypatch.setenv("SPARK_HOME", "/restored/after/the/test")
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def test_the_home_has_sparks_scripts_and_jars_and_no_python(package: Path, tmp_path: Path) -> None:
    use_home_without_zips()
    home = Path(os.environ["SPARK_HOME"])
    assert home.is_relative_to(tmp_path / "cache")
    assert {found.name: found.resolve() for found in home.iterdir()} == {
        name: (package / name).resolve() for name in ("bin", "jars", "sbin")
    }


def test_a_link_to_a_former_place_is_replaced(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to(tmp_path / "former")
    use_home_without_zips(home)
    assert (home / "jars").resolve() == (package / "jars").resolve()


def test_what_somebody_configured_is_in_the_home_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/restored/after/the/test")
    monkeypatch.delenv("SPARK_HOME")
    package = tmp_path / "pyspark"
    (package / "conf").mkdir(parents=True)
    spec = ModuleSpec("pyspark", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(home_module, "find_spec", lambda name: spec)
    use_home_without_zips(tmp_path / "home")
    assert (tmp_path / "home" / "conf").resolve() == (package / "conf").resolve()
    (package / "conf").rmdir()
    os.environ.pop("SPARK_HOME")
    use_home_without_zips(tmp_path / "home")
    assert not (tmp_path / "home" / "conf").is_symlink()


def test_a_link_that_a_killed_process_left_unfinished_is_in_nobodys_way(package: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / f"bin-{os.getpid()}").symlink_to(tmp_path / "former")
    use_home_without_zips(home)
    assert (home / "bin").resolve() == (package / "bin").resolve()
    assert os.environ["SPARK_HOME"] == str(home)


@pytest.mark.usefixtures("package")
def test_a_home_that_is_named_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    use_home_without_zips(tmp_path / "home")
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.usefixtures("package")
def test_where_no_links_can_be_made_spark_starts_from_its_own_home(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    use_home_without_zips()
    assert "SPARK_HOME" not in os.environ


@pytest.mark.usefixtures("package")
def test_who_has_no_home_directory_has_sparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLDFAST_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    use_home_without_zips()
    assert "SPARK_HOME" not in os.environ
