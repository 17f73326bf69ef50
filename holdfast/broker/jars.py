"""Jars, fetched once into a cache by the Ivy that PySpark ships: Apache Kafka itself, and Spark's connector to it.

The cache holds one directory per version, which appears by a rename, so it is whole or absent. That of Kafka holds also
`bootstrap.checkpoint`, the part of a formatted storage directory that is the same for every cluster (its feature levels).
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from holdfast.broker.errors import BrokerError
from holdfast.broker.locks import file_lock
from holdfast.distribution import how_to_install

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
JAVA_VERSION_MIN = 17
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"

#: Of the connector; those that Spark 4.0 has not itself.
SPARK_KAFKA_VERSION = "4.0.0"
SPARK_KAFKA_CLIENTS_VERSION = "3.9.0"

_PLAIN_PROGRESS_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """What Ivy is to fetch."""

    title: str
    #: Beside this module.
    ivy_file: str
    properties: Mapping[str, str]
    #: How many jars come; only the progress bar rests on it.
    jars_expected: int
    megabytes: int
    #: Without it, something went wrong.
    main_jar: str


_KAFKA = _Fetch(
    title=f"Apache Kafka {KAFKA_VERSION}",
    ivy_file="ivy.xml",
    properties={"kafka.version": KAFKA_VERSION, "log4j.version": LOG4J_VERSION},
    jars_expected=92,
    megabytes=55,
    main_jar=f"kafka_2.13-{KAFKA_VERSION}.jar",
)
_SPARK_KAFKA = _Fetch(
    title=f"Spark's connector to Kafka {SPARK_KAFKA_VERSION}",
    ivy_file="ivy-spark-kafka.xml",
    properties={"spark.version": SPARK_KAFKA_VERSION, "kafka.version": SPARK_KAFKA_CLIENTS_VERSION},
    jars_expected=4,
    megabytes=11,
    main_jar=f"spark-sql-kafka-0-10_2.13-{SPARK_KAFKA_VERSION}.jar",
)


class _FetchFailedError(BrokerError):
    """One attempt at fetching failed; another may succeed."""


def cache_dir() -> Path:
    """Return the caches' directory: `$HOLDFAST_CACHE`, else `$XDG_CACHE_HOME/holdfast`, else `~/.cache/holdfast`."""
    if chosen := os.environ.get("HOLDFAST_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "holdfast"
    return Path.home() / ".cache" / "holdfast"


def java(needed_by: str = "The embedded Kafka") -> str:
    """Return the path of a Java that Kafka and Spark run on: `$JAVA_HOME/bin/java`, else the first `java` on the path.

    Raises:
        BrokerError: Java is missing, does not run, or is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "no java is on the path"
        raise BrokerError(f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer and {where}; {_java_fix()}.")
    version = _java_version(found)
    if version < JAVA_VERSION_MIN:
        raise BrokerError(
            f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer and {found} is {version}; {_java_fix()}."
        )
    return found


def jars(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> list[Path]:
    """Return the paths of Kafka's jars, sorted by name, fetching them first if the cache has none.

    Raises:
        BrokerError: see `kafka_home`.
    """
    return sorted(kafka_home(fetch_timeout_s=fetch_timeout_s, fetch_attempts=fetch_attempts).glob("*.jar"))


def classpath(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> str:
    """Return a Java class path that holds all of Kafka's jars, fetching them first if the cache has none.

    Raises:
        BrokerError: see `kafka_home`.
    """
    return str(kafka_home(fetch_timeout_s=fetch_timeout_s, fetch_attempts=fetch_attempts) / "*")


def kafka_home(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> Path:
    """Return the cached directory of jars and `bootstrap.checkpoint`, fetching it first if it is missing.

    Args:
        fetch_timeout_s: bound of one attempt, and of waiting for another process that fetches the same.
        fetch_attempts: how often to try, with growing pauses, before giving up.

    Raises:
        BrokerError: Java or PySpark is missing, or every attempt failed.
    """

    def make(home: Path, timeout_s: float) -> None:
        _fetch(_KAFKA, home, timeout_s)
        _make_bootstrap_checkpoint(home, home.with_name("formatted"))

    return _cached(f"kafka-{KAFKA_VERSION}", make, fetch_timeout_s, fetch_attempts)


def spark_kafka_jars(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> list[Path]:
    """Return the jars with which Spark reads and writes Kafka, fetching them first if the cache has none.

    Raises:
        BrokerError: as `kafka_home`.
    """

    def make(home: Path, timeout_s: float) -> None:
        _fetch(_SPARK_KAFKA, home, timeout_s)

    home = _cached(f"spark-kafka-{SPARK_KAFKA_VERSION}", make, fetch_timeout_s, fetch_attempts)
    return sorted(home.glob("*.jar"))


def _cached(name: str, make: Callable[[Path, float], None], timeout_s: float, attempts: int) -> Path:
    """Return a directory of the cache; `make` makes it if it is missing."""
    cache = cache_dir()
    home = cache / name
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with file_lock(cache / f"{name}.lock", timeout_s=timeout_s):
        if home.is_dir():
            return home
        for attempt in Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_exponential_jitter(initial=1, max=10),
            retry=retry_if_exception_type(_FetchFailedError),
            reraise=True,
        ):
            with attempt, tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
                fetched = Path(scratch) / name
                make(fetched, timeout_s)
                fetched.rename(home)
    return home


def _java_fix() -> str:
    return "install one, for example with: apt-get install openjdk-17-jre-headless"


@lru_cache(maxsize=8)
def _java_version(executable: str) -> int:
    """Return the major version; releases before 9 call themselves 1.8 and the like."""
    try:
        told = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{executable} does not run ({error}); {_java_fix()}.") from error
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None:
        raise BrokerError(f"{executable} does not say its version; {_java_fix()}.")
    return int(found[1])


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(jar for place in places or () for jar in Path(place, "jars").glob("ivy-*.jar"))
    if not found:
        raise BrokerError(
            f"Fetching jars needs the Ivy that PySpark carries, not installed here; {how_to_install('broker')}."
        )
    return found[-1]


def _fetch(what: _Fetch, target: Path, timeout_s: float) -> None:
    """Let Ivy put all jars into `target`, showing progress on standard error."""
    with resources.as_file(resources.files("holdfast.broker") / what.ivy_file) as ivy_file:
        # The classifier is part of the pattern because some artifacts differ in nothing else.
        command = [
            java(),
            *(f"-D{name}={value}" for name, value in what.properties.items()),
            # Who runs this may have no home to keep a cache in.
            *("-jar", str(_ivy_jar()), "-ivy", str(ivy_file), "-cache", str(target.with_name("ivy"))),
            *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:  # noqa: S603
            timer = threading.Timer(timeout_s, ivy.kill)
            timer.start()
            try:
                assert ivy.stdout is not None
                problems = _follow(what, ivy.stdout)
            except BaseException:
                ivy.kill()
                raise
            finally:
                timer.cancel()
    if ivy.returncode != 0 or not (target / what.main_jar).is_file():
        why = problems[0] if problems else f"Ivy ended with status {ivy.returncode}"
        raise _FetchFailedError(
            f"The jars of {what.title} could not be fetched ({why}); check the network, then try again."
        )


def _follow(what: _Fetch, lines: Iterator[str]) -> list[str]:
    """Show how many jars have come; return what Ivy complained about, in order."""
    console = Console(stderr=True)
    problems: list[str] = []
    fetched = 0
    title = f"Fetching {what.title}"
    if not console.is_terminal:
        console.print(f"{title}: about {what.jars_expected} jars, {what.megabytes} MB, once")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=what.jars_expected)
        for line in lines:
            if "[SUCCESSFUL ]" in line:
                fetched += 1
                progress.update(task, completed=fetched)
                if not console.is_terminal and fetched % _PLAIN_PROGRESS_EVERY == 0:
                    console.print(f"{title}: {fetched} of about {what.jars_expected} jars")
            elif "UNRESOLVED" in line or "[FAILED" in line or "ERROR" in line:
                problems.append(line.strip(" \t\n:"))
    return problems


def _make_bootstrap_checkpoint(home: Path, scratch: Path) -> None:
    """Format a storage directory once with Kafka's own tool and keep the part that all clusters share."""
    settings = scratch.with_suffix(".properties")
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={scratch}\n"
    )
    command = [java(), "-cp", f"{home}/*", "kafka.tools.StorageTool", "format", "-t", "holdfast-any-cluster00", "-c"]
    try:
        subprocess.run([*command, str(settings)], capture_output=True, text=True, timeout=120, check=True)  # noqa: S603
        (scratch / BOOTSTRAP_CHECKPOINT).rename(home / BOOTSTRAP_CHECKPOINT)
    except (OSError, subprocess.SubprocessError) as error:
        why = f": {error.stderr.strip()}" if isinstance(error, subprocess.CalledProcessError) else ""
        raise _FetchFailedError(f"Kafka's storage tool failed on the jars just fetched ({error}{why}).") from error
