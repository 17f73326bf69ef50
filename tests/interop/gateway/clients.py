"""Stock share consumers of several releases, each a process that does what it is told.

    with stock_consumer(JAVA, address, "workers", "orders") as consumer:
        given = consumer.poll_until(10)
        consumer.acknowledge("ACCEPT", given)
        assert consumer.commit() == {}

A step is a line of standard input, its answer a line of standard output, both with tabs between their parts:

    subscribe TOPIC…                             ok
    poll MILLISECONDS                            ok  PARTITION:OFFSET:DELIVERY_COUNT:VALUE…
    acknowledge TYPE PARTITION:OFFSET…           ok
    commit                                       ok  PARTITION:ERROR…
    close                                        ok

or `error`, the kind of the exception, and its text.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.broker import FAST_START, cache_dir, find_java
from holdfast.jars.cache import KAFKA_VERSION, kafka_home
from holdfast.jars.fetching import JarSet, fetch
from holdfast.jars.locks import file_lock
from tests.interop.newest_kafka import NEWEST_VERSION, newest_kafka
from tests.waiting import PATIENCE_S

HERE: Final = Path(__file__).parent
_FETCH_TIMEOUT_S: Final = 900.0
_POLL_MS: Final = 500
#: Other releases than those that this environment has.
OTHER_JAVA_RELEASES: Final = ("4.1.1", "4.2.2")
OTHER_PYTHON_RELEASE: Final = "2.15.0"


class Client(NamedTuple):
    """A release of a client."""

    language: str
    version: str

    def __str__(self) -> str:
        """Return its name in a report."""
        return f"{self.language} {self.version}".strip()

    @property
    def can_renew(self) -> bool:
        """Tell whether its users can renew a lock."""
        return self.language == "java" and self.version >= "4.2"

    def command(self, settings: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return what runs it, and its environment."""
        if self.language == "java":
            log4j = f"-Dlog4j2.configurationFile={HERE.parent / 'log4j2.properties'}"
            java = [find_java(), *FAST_START, log4j, "-cp", f"{self._jars()}/*"]
            return [*java, str(HERE / "StockConsumer.java"), *settings], dict(os.environ)
        paths = {} if not self.version else {"PYTHONPATH": str(self._packages())}
        return [sys.executable, str(HERE / "stock_consumer.py"), *settings], os.environ | paths

    def _jars(self) -> Path:
        if self.version == KAFKA_VERSION:
            return kafka_home()
        if self.version == NEWEST_VERSION:
            return newest_kafka() / "libs"
        jars = JarSet(
            title=f"Kafka's clients {self.version}",
            ivy_file=str(HERE / "ivy-kafka-clients.xml"),
            properties={"kafka.version": self.version},
            jars_expected=5,
            megabytes=19,
            main_jar=f"kafka-clients-{self.version}.jar",
            alternative="do without this release",
        )
        return _fetched_once(f"kafka-clients-{self.version}", partial(fetch, jars, timeout_s=_FETCH_TIMEOUT_S))

    def _packages(self) -> Path:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")

        def install(target: Path) -> None:
            subprocess.run([*pip, "--target", str(target), f"confluent-kafka=={self.version}"], check=True)

        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return _fetched_once(f"confluent-kafka-{self.version}-python-{python}", install)


#: Releases that are there anyway.
JAVA: Final = Client("java", KAFKA_VERSION)
NEWEST_JAVA: Final = Client("java", NEWEST_VERSION)
PYTHON: Final = Client("python", "")
#: All of which it is said that they work.
CLIENTS: Final = (
    PYTHON,
    Client("python", OTHER_PYTHON_RELEASE),
    *(Client("java", version) for version in OTHER_JAVA_RELEASES),
    JAVA,
    NEWEST_JAVA,
)


class Given(NamedTuple):
    """A record that a consumer was given."""

    partition: int
    offset: int
    delivery_count: int
    value: str


class ConsumerFailed(Exception):
    """A consumer raised an exception, or ended."""


class StockConsumer:
    """A running consumer."""

    def __init__(self, process: subprocess.Popen[str], complaints: Path) -> None:
        self._process = process
        self._complaints = complaints

    def poll(self, wait_ms: int = _POLL_MS) -> list[Given]:
        """Return what it is given within a time."""
        return [
            Given(int(partition), int(offset), int(count), value)
            for partition, offset, count, value in (part.split(":", 3) for part in self._ask("poll", str(wait_ms)))
        ]

    def poll_until(self, count: int) -> list[Given]:
        """Poll until it was given a number of records, and accept all but those of the last poll.

        Returns:
            `count` records or more, those of the last poll not acknowledged.
        """
        given: list[Given] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(given) < count:
            assert time.monotonic() < deadline, f"the consumer was given {len(given)} of {count} records"
            polled = self.poll()
            given += polled
            if polled and len(given) < count:
                self.acknowledge("ACCEPT", polled)
        return given

    def acknowledge(self, kind: str, records: Iterable[Given]) -> None:
        """Say what became of records: ACCEPT, RELEASE, REJECT or RENEW."""
        self._ask("acknowledge", kind, *(f"{record.partition}:{record.offset}" for record in records))

    def commit(self) -> dict[int, str]:
        """Wait until what was acknowledged is answered, and return the errors by partition."""
        outcomes = (part.split(":", 1) for part in self._ask("commit"))
        return {int(partition): error for partition, error in outcomes if error}

    def close(self) -> None:
        """Leave the group."""
        self._ask("close")

    def subscribe(self, *topics: str) -> None:
        """Name its topics."""
        self._ask("subscribe", *topics)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """Return what it wrote to standard error."""
        return self._complaints.read_text(errors="replace")

    def _ask(self, *step: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write("\t".join(step) + "\n")
            self._process.stdin.flush()
            outcome, *rest = self._process.stdout.readline().rstrip("\n").split("\t")
        finally:
            timer.cancel()
        if outcome != "ok":
            raise ConsumerFailed(f"{step}: {' '.join(rest) or 'it ended'}\n{self.said()[-4_000:]}")
        return rest


@contextmanager
def stock_consumer(client: Client, address: str, group: str, topic: str, **settings: str) -> Iterator[StockConsumer]:
    """Give a running consumer, which acknowledges explicitly; it is killed at the end.

    Args:
        client: of which release.
        address: where it finds the gateway, and nothing else.
        group: its share group.
        topic: that it subscribes to.
        settings: further ones, with underscores for dots.
    """
    own = {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
    own |= {name.replace("_", "."): value for name, value in settings.items()}
    command, environment = client.command(f"{name}={value}" for name, value in own.items())
    with tempfile.NamedTemporaryFile(prefix="holdfast-", suffix=".log") as complaints:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=complaints, text=True, encoding="utf-8", env=environment
        )
        try:
            consumer = StockConsumer(process, Path(complaints.name))
            consumer.subscribe(topic)
            yield consumer
        finally:
            process.kill()
            process.communicate()


def _fetched_once(name: str, fill: Callable[[Path], object]) -> Path:
    """Return a directory of the cache, which `fill` makes where it is missing."""
    home = cache_dir() / name
    home.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(home.with_name(f"{home.name}.lock"), timeout_s=_FETCH_TIMEOUT_S):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetching-") as scratch:
                filled = Path(scratch) / home.name
                fill(filled)
                filled.rename(home)
    return home
