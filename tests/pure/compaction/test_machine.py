"""What the job needs of its machine: each obstacle is found before Spark starts, and named with what mends it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from holdfast.compaction import machine
from holdfast.compaction.machine import (
    find_obstacles,
    full_places,
    judge_python,
    judge_temporary,
    judge_user,
    local_places,
    name_user,
    temporary_directory,
)

NAMELESS = 54_321


@pytest.fixture(autouse=True)
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_LOCAL_DIRS", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no user of this id."""

    def find(user_id: int) -> object:
        raise KeyError(user_id)

    monkeypatch.setattr(pwd, "getpwuid", find)


def test_this_machine_is_fit_for_the_job() -> None:
    assert find_obstacles({}, is_local=True) == []


@pytest.mark.parametrize(("version", "is_fit"), [((3, 10), False), ((3, 11), True), ((3, 14), True), ((3, 15), False)])
def test_a_python_beyond_the_bounds_of_pyspark_is_refused(version: tuple[int, int], is_fit: bool) -> None:
    found = judge_python(version)
    assert (found is None) is is_fit
    if found is not None:
        assert f"Python 3.11 to 3.14, for which PySpark and pandas were made, and this is 3.{version[1]}" in found.what


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_an_obstacle_where_nothing_gives_it_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "_find_wrapper", lambda: None)
    found = judge_user(NAMELESS)
    assert found is not None
    assert found.what.endswith("user id 54321 has no entry in /etc/passwd")
    assert "libnss-wrapper" in found.remedy
    assert name_user(NAMELESS, tmp_path) == {}


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_given_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_find_wrapper", lambda: "/usr/lib/libnss_wrapper.so")
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert judge_user(NAMELESS) is None
    variables = name_user(NAMELESS, tmp_path)
    assert variables["LD_PRELOAD"] == "/usr/lib/libnss_wrapper.so:libother.so"
    [line] = Path(variables["NSS_WRAPPER_PASSWD"]).read_text().splitlines()
    assert line.split(":")[:4] == ["holdfast", "x", "54321", str(os.getgid())]
    assert Path(variables["NSS_WRAPPER_GROUP"]).read_text().startswith("holdfast:x:")
    again = name_user(NAMELESS, tmp_path)
    assert again["NSS_WRAPPER_PASSWD"] != variables["NSS_WRAPPER_PASSWD"], (
        "no process writes what the Java of another reads"
    )


def test_the_files_of_a_name_are_gone_with_the_process(tmp_path: Path) -> None:
    program = """
import pwd, sys
from pathlib import Path
from holdfast.compaction import machine

def find(user_id):
    raise KeyError(user_id)

machine._find_wrapper, pwd.getpwuid = lambda: "/usr/lib/libnss_wrapper.so", find
machine.name_user(54_321, Path(sys.argv[1]))
print(*(path.name for path in Path(sys.argv[1]).glob("*/*")))
"""
    ended = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert sorted(ended.stdout.split()) == ["group", "passwd"]
    assert not list(tmp_path.iterdir())


def test_a_user_with_a_name_keeps_it(tmp_path: Path) -> None:
    assert name_user(os.getuid(), tmp_path) == {}
    assert not list(tmp_path.iterdir())


Room = namedtuple("Room", "f_flag f_bavail f_frsize f_files f_favail")


def test_a_directory_where_nothing_may_be_executed_is_named_with_the_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert judge_temporary(str(tmp_path)) is None
    gone = judge_temporary(str(tmp_path / "gone"))
    assert gone is not None
    assert "cannot be used (No such file or directory)" in gone.what
    monkeypatch.setattr(os, "statvfs", lambda _: Room(os.ST_NOEXEC, 1, 1, 1, 1))
    found = judge_temporary("/t")
    assert found is not None
    assert "/t, where nothing may be executed (noexec)" in found.what
    assert found.remedy.endswith("spark.driver.extraJavaOptions=-Djava.io.tmpdir=DIRECTORY")


def test_the_directory_for_temporary_files_is_the_one_that_java_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert temporary_directory({}) == "/tmp"
    monkeypatch.setenv("TMPDIR", "/not/looked/at/by/java")
    assert temporary_directory({}) == "/tmp"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xss1m -Djava.io.tmpdir=/of/the/environment")
    assert temporary_directory({}) == "/of/the/environment"
    options = {"spark.driver.extraJavaOptions": '-Djava.io.tmpdir=/a -XX:+UseZGC "-Dx=y" -Djava.io.tmpdir="/b c"'}
    assert temporary_directory(options) == "/b c"
    monkeypatch.setenv("_JAVA_OPTIONS", "-Djava.io.tmpdir=/last")
    assert temporary_directory(options) == "/last"


def test_places_are_those_on_this_machine() -> None:
    directories = {"c": "/c", "f": "file:///f", "g": "file:/g", "s": "s3a://b/s", "h": "hdfs://n/h", "none": ""}
    found = local_places(directories, {"spark.local.dir": "/l,/m"})
    assert found == {
        **{"c": Path("/c"), "f": Path("/f"), "g": Path("/g")},
        **{"spark.local.dir": Path("/l"), "java.io.tmpdir": Path("/tmp")},
    }


def test_full_directories_are_named_the_fullest_first_and_each_file_system_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = {"a": tmp_path / "not" / "there", "b": tmp_path}
    assert full_places(places, free_bytes_min=0) == []
    monkeypatch.setattr(os, "statvfs", lambda _: Room(0, 3, 1 << 20, 100, 5))
    assert full_places(places) == [f"a ({tmp_path}/not/there) has 3.0 MiB left"]
    monkeypatch.setattr(os, "statvfs", lambda _: Room(0, 1 << 20, 1 << 20, 100, 0))
    assert full_places(places) == [f"a ({tmp_path}/not/there) can take no more files"]
    monkeypatch.setattr(os, "statvfs", lambda _: Room(0, 1 << 20, 1 << 20, 0, 0))
    assert full_places(places) == [], "a file system without a bound of files"
