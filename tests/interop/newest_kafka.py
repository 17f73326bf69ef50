"""The newest release of Apache Kafka beside the one that the embedded broker starts by default.

Maven has its broker, coordinators and clients, and none of its tools, so Kafka's command line tools are of the other one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from holdfast.broker import cache_dir
from holdfast.jars.cache import LOG4J_VERSION
from holdfast.jars.fetching import JarSet, fetch
from holdfast.jars.locks import file_lock

NEWEST_VERSION: Final = "4.4.0"
_FETCH_TIMEOUT_S: Final = 900.0

_JARS: Final = JarSet(
    title=f"Apache Kafka {NEWEST_VERSION}",
    # An absolute path, which stays what it is beside the files of the package.
    ivy_file=str(Path(__file__).with_name("ivy-newest-kafka.xml")),
    properties={"kafka.version": NEWEST_VERSION, "log4j.version": LOG4J_VERSION},
    jars_expected=45,
    megabytes=50,
    main_jar=f"kafka_2.13-{NEWEST_VERSION}.jar",
    alternative="do without this ring",
)


def newest_kafka() -> Path:
    """Return a directory like that of an unpacked release, with the jars of the newest Kafka in its `libs`, fetched once."""
    home = cache_dir() / f"newest-kafka-{NEWEST_VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(home.with_name(f"{home.name}.lock"), timeout_s=_FETCH_TIMEOUT_S):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetching-") as scratch:
                filled = Path(scratch) / home.name
                fetch(_JARS, filled / "libs", _FETCH_TIMEOUT_S)
                filled.rename(home)
    return home
