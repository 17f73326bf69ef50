"""Sets of jars, fetched once into a cache: Apache Kafka itself, and Spark's connector to it.

The cache holds one directory per version, which appears by a rename, so it is whole or absent. That of Kafka holds also
`bootstrap.checkpoint`, the part of a formatted storage directory that is the same for every cluster (its feature levels).
Of a Kafka that an admin has unpacked it holds links to the jars, and that file.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from holdfast.jars.errors import JarsUnavailable, LockHeld, refusing
from holdfast.jars.fetching import FetchFailed, JarSet, fetch
from holdfast.jars.java import find_java, java_environment
from holdfast.jars.locks import file_lock

#: Of the embedded broker: the newest release whose tools are on Maven, so that pages can name them beside it.
KAFKA_VERSION = "4.3.1"
#: The newest release that has no share groups, for what is shown and tested in front of one.
KAFKA_VERSION_WITHOUT_SHARE_GROUPS = "3.9.2"
LOG4J_VERSION = "2.25.4"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"

_REMEDY = "make room there, or name a directory that this user may write by HOLDFAST_CACHE"

#: The connector, and the jars of its that Spark 4.2 does not bring.
SPARK_KAFKA_VERSION = "4.2.0"
SPARK_KAFKA_CLIENTS_VERSION = "3.9.2"


def _kafka(version: str) -> JarSet:
    return JarSet(
        title=f"Apache Kafka {version}",
        ivy_file="ivy.xml",
        properties={"kafka.version": version, "log4j.version": LOG4J_VERSION},
        jars_expected=92,
        megabytes=55,
        main_jar=f"kafka_2.13-{version}.jar",
        alternative="name an unpacked Kafka by --kafka-home DIR; or do without, any cluster's address will do",
    )


_SPARK_KAFKA = JarSet(
    title=f"Spark's connector to Kafka {SPARK_KAFKA_VERSION}",
    ivy_file="ivy-spark-kafka.xml",
    properties={"spark.version": SPARK_KAFKA_VERSION, "kafka.version": SPARK_KAFKA_CLIENTS_VERSION},
    jars_expected=4,
    megabytes=11,
    main_jar=f"spark-sql-kafka-0-10_2.13-{SPARK_KAFKA_VERSION}.jar",
    alternative="copy the cache directory of a machine that has them",
)


def cache_dir() -> Path:
    """Return the cache's directory: `$HOLDFAST_CACHE`, else `$XDG_CACHE_HOME/holdfast`, else `~/.cache/holdfast`.

    Raises:
        JarsUnavailable: none is named, and this user has no home.
    """
    if chosen := os.environ.get("HOLDFAST_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "holdfast"
    try:
        return Path.home() / ".cache" / "holdfast"
    except RuntimeError:
        raise JarsUnavailable(
            "This user has no home directory to keep jars in; name a directory that it may write by HOLDFAST_CACHE."
        ) from None


def kafka_jars(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> list[Path]:
    """Return the paths of Kafka's jars, sorted by name, fetching them first if the cache has none.

    Raises:
        JarsUnavailable: see `kafka_home`.
    """
    return sorted(kafka_home(fetch_timeout_s=fetch_timeout_s, fetch_attempts=fetch_attempts).glob("*.jar"))


def kafka_classpath(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> str:
    """Return a Java class path that holds all of Kafka's jars, fetching them first if the cache has none.

    Raises:
        JarsUnavailable: see `kafka_home`.
    """
    return str(kafka_home(fetch_timeout_s=fetch_timeout_s, fetch_attempts=fetch_attempts) / "*")


def kafka_home(
    unpacked: Path | None = None,
    *,
    version: str = KAFKA_VERSION,
    fetch_timeout_s: float = 900.0,
    fetch_attempts: int = 3,
) -> Path:
    """Return the cached directory of Kafka's jars and `bootstrap.checkpoint`, making it first if it is missing.

    Args:
        unpacked: where a release of Kafka was unpacked, whose jars are used and none fetched.
        version: of the release that is fetched.
        fetch_timeout_s: bound of one attempt, and of waiting for another process that makes the same directory.
        fetch_attempts: how often to try, with growing pauses, before giving up.

    Raises:
        JarsUnavailable: there is no Java, nothing to fetch with, or no Kafka in `unpacked`, or every attempt failed, or
            another process makes the same directory and does not end, or the cache cannot be written.
    """
    if unpacked is not None:
        found = _jars_in(unpacked)
        # The jars of another release are other jars, also in the same place.
        name = f"kafka-at-{sha256(b'|'.join(map(os.fsencode, found))).hexdigest()[:16]}"
    else:
        found = []
        name = f"kafka-{version}"

    def fill(home: Path, timeout_s: float) -> None:
        if found:
            home.mkdir()
            for jar in found:
                (home / jar.name).symlink_to(jar)
        else:
            fetch(_kafka(version), home, timeout_s)
        _make_bootstrap_checkpoint(home, home.with_name("formatted"))

    return _cached_directory(name, fill, fetch_timeout_s, fetch_attempts)


def spark_kafka_jars(*, fetch_timeout_s: float = 900.0, fetch_attempts: int = 3) -> list[Path]:
    """Return the jars with which Spark reads and writes Kafka, fetching them first if the cache has none.

    Raises:
        JarsUnavailable: as `kafka_home`.
    """

    def fill(home: Path, timeout_s: float) -> None:
        fetch(_SPARK_KAFKA, home, timeout_s)

    home = _cached_directory(f"spark-kafka-{SPARK_KAFKA_VERSION}", fill, fetch_timeout_s, fetch_attempts)
    return sorted(home.glob("*.jar"))


def _jars_in(unpacked: Path) -> list[Path]:
    found = sorted((unpacked.absolute() / "libs").glob("*.jar"))
    if not any(jar.name.startswith("kafka_") for jar in found):
        raise JarsUnavailable(
            f"{unpacked} holds no Kafka, for it has no libs/kafka_….jar; name the directory that a release was unpacked to, "
            f"as in kafka_2.13-{KAFKA_VERSION}."
        )
    return found


def _cached_directory(name: str, fill: Callable[[Path, float], None], timeout_s: float, attempts: int) -> Path:
    """Return a directory of the cache; `fill` creates it if it is missing."""
    cache = cache_dir()
    home = cache / name
    with refusing(cache, _REMEDY, JarsUnavailable):
        if home.is_dir():
            return home
        cache.mkdir(parents=True, exist_ok=True)
        try:
            with file_lock(cache / f"{name}.lock", timeout_s=timeout_s):
                if not home.is_dir():
                    _create(home, fill, timeout_s, attempts)
        except LockHeld as held:
            raise JarsUnavailable(str(held)) from None
        return home


def _create(home: Path, fill: Callable[[Path, float], None], timeout_s: float, attempts: int) -> None:
    for attempt in Retrying(
        stop=stop_after_attempt(attempts),
        wait=wait_exponential_jitter(initial=1, max=10),
        retry=retry_if_exception_type(FetchFailed),
        reraise=True,
    ):
        with attempt, tempfile.TemporaryDirectory(dir=home.parent, prefix="fetching-") as scratch:
            filled = Path(scratch) / home.name
            fill(filled, timeout_s)
            filled.rename(home)


def _make_bootstrap_checkpoint(home: Path, scratch: Path) -> None:
    """Format a storage directory once with Kafka's own tool and keep the part that all clusters share."""
    settings = scratch.with_suffix(".properties")
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={scratch}\n"
    )
    tool = [find_java(), "-cp", f"{home}/*", "kafka.tools.StorageTool", "format", "-t", "holdfast-any-cluster00", "-c"]
    try:
        subprocess.run(  # noqa: S603
            [*tool, str(settings)], capture_output=True, text=True, timeout=120, check=True, env=java_environment()
        )
        # From 4.4 on it is the first snapshot of the metadata log; the broker takes it in the former place, too.
        (written,) = scratch.rglob("*.checkpoint")
        written.rename(home / BOOTSTRAP_CHECKPOINT)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = f": {error.stderr.strip()}" if isinstance(error, subprocess.CalledProcessError) else ""
        raise FetchFailed(f"Kafka's storage tool failed on the jars of {home.name} ({error}{why}).") from error
