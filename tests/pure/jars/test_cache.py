"""Fetching Kafka's jars: once, whole, and with a plain word when it cannot be done."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from holdfast.broker import KAFKA_VERSION, JarsUnavailable, cache_dir, find_java, kafka_classpath, kafka_jars
from holdfast.distribution import how_to_install
from holdfast.jars.cache import LOG4J_VERSION, SPARK_KAFKA_VERSION, kafka_home, spark_kafka_jars
from holdfast.jars.java import find_spark_java
from tests.waiting import PATIENCE_S

#: Stands in for Java: says a version, plays Ivy (writes a jar, notes that it ran) and Kafka's storage tool.
FAKE_JAVA = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
    -version) echo 'openjdk version "{version}"' >&2 ;;
    *StorageTool*)
        for settings; do :; done
        data=$(sed -n 's/^log.dirs=//p' "$settings")
        mkdir -p "$(dirname "$data/{checkpoint}")" && echo formatted > "$data/{checkpoint}" ;;
    *)
        echo "$*" >> "$here/ivy-runs"
        if [ "$(wc -l < "$here/ivy-runs")" -le {failures} ]; then
            echo '  [FAILED     ] the network is down'
            exit 1
        fi
        for target; do :; done
        target=$(dirname "$target")
        mkdir -p "$target" && echo jar > "$target/kafka_2.13-{kafka_version}.jar"
        echo '  [SUCCESSFUL ] one jar' ;;
esac
"""


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty Java home that the code under test uses, and an empty cache."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return home


def install_java(
    java_home: Path, version: str = "17.0.1", failures: int = 0, checkpoint: str = "bootstrap.checkpoint"
) -> None:
    executable = java_home / "bin" / "java"
    known = {"version": version, "failures": failures, "kafka_version": KAFKA_VERSION, "checkpoint": checkpoint}
    executable.write_text(FAKE_JAVA.format(**known))
    executable.chmod(0o755)


def ivy_runs(java_home: Path) -> int:
    return len((java_home / "bin" / "ivy-runs").read_text().splitlines())


def test_cache_is_the_first_place_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", "/chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_dir() == Path("/chosen")
    monkeypatch.delenv("HOLDFAST_CACHE")
    assert cache_dir() == Path("/shared/holdfast")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "holdfast"


def test_jars_are_fetched_once(java_home: Path) -> None:
    install_java(java_home)
    assert [jar.name for jar in kafka_jars()] == [f"kafka_2.13-{KAFKA_VERSION}.jar"]
    assert kafka_classpath() == str(cache_dir() / f"kafka-{KAFKA_VERSION}" / "*")
    assert ivy_runs(java_home) == 1
    assert f" -cache {cache_dir()}/" in (java_home / "bin" / "ivy-runs").read_text(), "whoever runs it may have no home"


def test_fetching_is_tried_again(java_home: Path) -> None:
    install_java(java_home, failures=1)
    assert len(kafka_jars(fetch_attempts=2)) == 1
    assert ivy_runs(java_home) == 2


def test_failed_fetch_says_why_and_leaves_nothing(java_home: Path) -> None:
    install_java(java_home, failures=9)
    with pytest.raises(JarsUnavailable, match=r"the network is down.*try again"):
        kafka_jars(fetch_attempts=1)
    assert [path.name for path in cache_dir().iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_a_cache_that_cannot_be_made_is_named_with_the_fix(
    java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(java_home)
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(JarsUnavailable) as refused:
        kafka_jars()
    assert str(refused.value) == (
        f"{tmp_path}/file/cache cannot be made, read or written (Not a directory); "
        "make room there, or name a directory that this user may write by HOLDFAST_CACHE."
    )


def test_who_has_no_home_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLDFAST_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(JarsUnavailable, match=r"This user has no home directory .* by HOLDFAST_CACHE\."):
        cache_dir()


def test_two_processes_fetch_once(java_home: Path) -> None:
    install_java(java_home)
    script = "from holdfast.broker import kafka_jars; print(len(kafka_jars()))"
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=PATIENCE_S)[0] for process in both] == ["1\n", "1\n"]
    assert ivy_runs(java_home) == 1


def test_missing_java_is_named_with_the_fix(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JarsUnavailable, match=r"JAVA_HOME .* has no bin/java; install one, .*openjdk-17"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(java_home))
    with pytest.raises(JarsUnavailable, match=r"no java is on the path; install one, .*openjdk-17"):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_302", 8), ("11.0.2", 11), ("16-ea", 16)])
def test_old_java_is_refused(java_home: Path, version: str, major: int) -> None:
    install_java(java_home, version)
    with pytest.raises(JarsUnavailable, match=f"needs Java 17 or newer and .* is {major}; install one"):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21-ea", "25", "26.0.1"])
def test_new_java_is_taken(java_home: Path, version: str) -> None:
    install_java(java_home, version)
    assert find_java() == str(java_home / "bin" / "java")


@pytest.mark.parametrize("version", ["17.0.15", "21-ea", "25.0.2"])
def test_spark_takes_each_java_on_which_it_was_tried(java_home: Path, version: str) -> None:
    install_java(java_home, version)
    assert find_spark_java() == str(java_home / "bin" / "java")


@pytest.mark.parametrize(("version", "major"), [("16.0.2", 16), ("26-ea", 26), ("30.0.1", 30)])
def test_spark_refuses_a_java_on_which_it_was_not_tried(java_home: Path, version: str, major: int) -> None:
    install_java(java_home, version)
    with pytest.raises(JarsUnavailable, match=f"job needs Java 17 to 25 and .* is {major}; install one.* JAVA_HOME"):
        find_spark_java()


@pytest.mark.parametrize(
    ("locale", "of_java"),
    [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("xx_NOT_HERE.UTF-8", "C.UTF-8"), ("C.UTF-8", "C.UTF-8")],
)
def test_java_names_files_in_utf_8_also_in_the_locale_c_and_in_one_that_is_not_here(locale: str, of_java: str) -> None:
    script = "from holdfast.jars.java import java_environment; print(java_environment()['LC_ALL'])"
    environment = {"LC_ALL": locale, "PATH": os.environ["PATH"]}
    said = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == f"{of_java}\n"


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_pyspark")
def test_one_line_names_all_ways_where_nothing_can_fetch(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(java_home)
    monkeypatch.setenv("PATH", str(java_home / "bin"))
    with pytest.raises(JarsUnavailable) as refused:
        kafka_jars()
    assert str(refused.value) == (
        f"The jars of Apache Kafka {KAFKA_VERSION} are fetched by the Ivy that PySpark carries or by mvn, and neither is here: "
        f"{how_to_install('broker')}; or name an unpacked Kafka by --kafka-home DIR; or do without, any cluster's address will do."
    )


#: Stands in for mvn: notes what it is to fetch, and writes a jar.
FAKE_MVN = """#!/bin/sh
for argument; do
    case "$argument" in
        *pom.xml) cp "$argument" "$(dirname "$0")/pom.xml" ;;
        -DoutputDirectory=*) target=${argument#*=} ;;
    esac
done
mkdir -p "$target"
for name in %s; do echo jar > "$target/$name"; done
"""


@pytest.mark.usefixtures("no_pyspark")
def test_without_pyspark_mvn_fetches(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(java_home)
    mvn = java_home / "bin" / "mvn"
    main_jars = (f"kafka_2.13-{KAFKA_VERSION}.jar", f"spark-sql-kafka-0-10_2.13-{SPARK_KAFKA_VERSION}.jar")
    mvn.write_text(FAKE_MVN % " ".join(main_jars))
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", str(mvn.parent), prepend=os.pathsep)
    assert main_jars[0] in [jar.name for jar in kafka_jars()]
    asked = ElementTree.parse(mvn.parent / "pom.xml").getroot()
    assert [[part.text for part in dependency][:3] for dependency in asked.iter("dependency")] == [
        ["org.apache.kafka", "kafka_2.13", KAFKA_VERSION],
        ["org.apache.kafka", "kafka-tools", KAFKA_VERSION],
        ["org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION],
    ]
    assert not list(asked.iter("exclusion"))
    assert main_jars[1] in [jar.name for jar in spark_kafka_jars()]
    asked = ElementTree.parse(mvn.parent / "pom.xml").getroot()
    assert len(list(asked.iter("exclusion"))) == len(list(asked.iter("dependency"))) > 0, "Spark has all else itself"


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize(
    "checkpoint", ["bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"]
)
def test_the_jars_of_an_unpacked_kafka_are_used_as_they_are(java_home: Path, tmp_path: Path, checkpoint: str) -> None:
    """Its storage tool writes the feature levels to another place from 4.4 on."""
    install_java(java_home, checkpoint=checkpoint)
    unpacked = tmp_path / "kafka_2.13-4.9.0"
    (unpacked / "libs").mkdir(parents=True)
    with pytest.raises(
        JarsUnavailable, match=r"kafka_2.13-4.9.0 holds no Kafka, for it has no libs/kafka_….jar; name the"
    ):
        kafka_home(unpacked)
    (unpacked / "libs" / "kafka_2.13-4.9.0.jar").write_text("jar")
    home = kafka_home(unpacked)
    assert {path.name for path in home.iterdir()} == {"kafka_2.13-4.9.0.jar", "bootstrap.checkpoint"}
    assert (home / "kafka_2.13-4.9.0.jar").read_text() == "jar"
    assert (home / "bootstrap.checkpoint").read_text() == "formatted\n"
    assert kafka_home(unpacked) == home
    assert not (java_home / "bin" / "ivy-runs").exists()
    (unpacked / "libs" / "another.jar").write_text("jar")
    assert kafka_home(unpacked) != home, "another release in the same place has other jars"
