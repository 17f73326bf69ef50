"""Spark's home without zips: what is in it, and when Spark's own is used."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

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
