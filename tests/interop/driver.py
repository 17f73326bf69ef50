"""Apache Kafka's own persister as a client of a share coordinator: steps in, answers out.

    with PersisterDriver("127.0.0.1:9492") as persister:
        persister.ask(step("initialize", "group", topic_id, {"partition": 0, "stateEpoch": 1, "startOffset": 0}))
        answer = persister.ask(step("read", "group", topic_id, {"partition": 0, "leaderEpoch": 1}))

Requests are spelled as in Kafka's message definitions; README.md lists the answers.
"""

import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.broker import FAST_START, find_java, kafka_classpath
from tests.interop.newest_kafka import NEWEST_VERSION
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

HERE = Path(__file__).parent
SOURCE = "PersisterDriver.java"
#: A line of the source, and the one that stands for it with the newest Kafka.
_VARIANT = re.compile(rf"^( *).*// {re.escape(NEWEST_VERSION)}: (.*)$", re.MULTILINE)

#: A call and its request, as one JSON object.
Step = dict[str, Any]
#: What the persister said to one step.
Answer = dict[str, Any]


def step(call: str, group_id: str, topic_id: str, *partitions: Mapping[str, Any]) -> Step:
    """Describe one call about partitions of one topic.

    Args:
        call: initialize, write, read, summary or delete.
        group_id: the share group.
        topic_id: in Kafka's text form, 22 characters of URL-safe base64.
        partitions: each as its request's message definition has it.
    """
    return {
        "call": call,
        "request": {"groupId": group_id, "topics": [{"topicId": topic_id, "partitions": list(partitions)}]},
    }


def batches(*rows: tuple[int, int, int, int]) -> list[dict[str, int]]:
    """Spell state batches, each given as first offset, last offset, delivery state, delivery count."""
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return [dict(zip(names, row, strict=True)) for row in rows]


def without_messages(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers without the texts of errors, which no protocol fixes."""
    return [
        {
            name: [
                {key: answered for key, answered in partition.items() if key != "error_message"} for partition in value
            ]
            if name == "partitions"
            else value
            for name, value in answer.items()
        }
        for answer in answers
    ]


class PersisterDriver:
    """A running persister; a context manager."""

    def __init__(
        self,
        address: str,
        *,
        client_properties: Path | None = None,
        newest: Path | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        """Describe it.

        Args:
            address: where to ask for coordinators, as host:port.
            newest: where the newest Kafka is, whose classes are run; without it, those of the embedded broker's default.
            client_properties: a file of Kafka client settings, for TLS and SASL.
            timeout_s: bound of one step; it must be above the 60 s that the persister itself waits.
        """
        if shutil.which("javac") is None:
            raise RuntimeError("These tests compile Java; install a JDK: apt-get install openjdk-17-jdk-headless.")
        host, _, port = address.rpartition(":")
        self._source = (HERE / SOURCE).read_text()
        if newest is None:
            java = find_java(), "-cp", kafka_classpath(), *QUICK_KAFKA
        else:
            java = find_java(), "-cp", f"{newest}/libs/*", *FAST_START
            self._source = _VARIANT.sub(r"\1\2", self._source)
        self._java = [*java, f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
        self._arguments = [host, port, *([str(client_properties)] if client_properties else [])]
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self._complaints = tempfile.TemporaryFile()
        self._directory = tempfile.TemporaryDirectory(prefix="holdfast-")
        source = Path(self._directory.name) / SOURCE
        source.write_text(self._source)
        self._process = subprocess.Popen(
            [*self._java, str(source), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()
        self._directory.cleanup()

    def ask(self, step: Step) -> Answer:
        """Let the persister make one call and return what it says.

        Raises:
            RuntimeError: it ended or did not answer in time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout_s, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(step) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._complaints.seek(0)
            raise RuntimeError(f"The persister ended: {self._complaints.read().decode(errors='replace')[-4000:]}")
        answer: Answer = json.loads(line)
        return answer
