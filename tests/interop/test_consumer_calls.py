"""Kafka's generated classes write the recorded calls of share consumers, and any others that our codecs read and write alike."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from holdfast.broker import find_java, kafka_classpath
from tests.interop.newest_kafka import newest_kafka
from tests.vectors.consumer_calls import run_consumer_call
from tests.vectors.runner import DATA, read_text, run_line
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("ConsumerCalls.java")
#: The arguments with which the recorded ones were written, as `tests/vectors/data/README.md` says.
SEED, COUNT = 20_261_128, 100
MESSAGES = 10


def record(classpath: str, seed: int, count: int) -> list[str]:
    """Return lines of JSON, `count` for each message and version."""
    command = [find_java(), "-cp", classpath, str(PROGRAM), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)
    return done.stdout.decode().split("\n")[:-1]


def classpaths() -> dict[str, str]:
    return {"default": kafka_classpath(), "newest": f"{newest_kafka()}/libs/*"}


@pytest.mark.parametrize("release", ["default", "newest"])
def test_the_recorded_calls_are_those_that_kafka_writes(release: str) -> None:
    recorded = read_text(DATA / "consumer_calls.jsonl.xz").split("\n")[:-1]
    written = record(classpaths()[release], SEED, COUNT)
    assert list(map(json.loads, written)) == list(map(json.loads, recorded))


def test_other_calls_that_kafka_writes_are_read_and_written_alike() -> None:
    seed = random.randrange(1 << 40)
    print("seed", seed)
    lines = record(kafka_classpath(), seed, 500)
    assert len(lines) == MESSAGES * 500
    for line in lines:
        run_line(run_consumer_call, line)
