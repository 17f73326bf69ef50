"""What the doctor says of the compaction job's needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.compaction.machine import Obstacle
from holdfast.console.doctor import job
from holdfast.console.doctor.findings import Finding, Level, Subject
from holdfast.console.doctor.job import check_job, judge_job
from holdfast.node_settings import load_settings


def test_settings_without_a_job_are_right() -> None:
    [found] = judge_job(None, ())
    assert found.level is Level.RIGHT


def test_obstacles_are_wrong_and_little_room_is_a_warning() -> None:
    assert judge_job([Obstacle("no name", "name it")], ["d (/d) has 1.0 MiB left"]) == [
        Finding(Level.WRONG, "no name", "name it"),
        Finding(Level.WARNING, "d (/d) has 1.0 MiB left", "make room there, or name another directory"),
    ]
    assert judge_job([], ())[0].level is Level.RIGHT


async def test_the_directories_of_the_settings_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Path] = {}
    monkeypatch.setattr(job, "full_places", lambda places: seen.update(places) or [])
    monkeypatch.setattr(job, "find_obstacles", lambda properties, is_local: [])
    flags = {
        "kafka.bootstrap.servers": "a:1",
        "compaction.checkpoint.dir": "/c",
        "compaction.history.dir": "s3a://bucket/h",
        "spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/t",
    }
    [found] = await check_job(Subject(load_settings(flags=flags).settings, "127.0.0.1:1", 1_000))
    assert found.level is Level.RIGHT
    assert (seen["compaction.checkpoint.dir"], seen["java.io.tmpdir"]) == (Path("/c"), Path("/t"))
    assert "compaction.history.dir" not in seen, "it lies elsewhere"
