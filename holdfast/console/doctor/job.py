"""The compaction job's needs of the machine that the doctor runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.compaction.machine import Obstacle, find_obstacles, full_places, local_places
from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong


async def check_job(subject: Subject) -> Sequence[Finding]:
    """Look for causes for which the compaction job would fail here, if these settings ask for one."""
    compaction, properties = subject.settings.compaction, dict(subject.settings.spark.properties)
    if not compaction.checkpoint_dir:
        return judge_job(None, ())
    directories = {
        "compaction.checkpoint.dir": compaction.checkpoint_dir,
        "compaction.history.dir": compaction.history_dir,
    }
    places: dict[str, Path] = local_places(directories, properties)
    obstacles = find_obstacles(properties, is_local=compaction.master.startswith("local"))
    return judge_job(obstacles, await asyncio.to_thread(full_places, places))


def judge_job(obstacles: Sequence[Obstacle] | None, full: Sequence[str]) -> Sequence[Finding]:
    """Judge what is in the way of a job: None where the settings are those of no job; and which directories are nearly full."""
    if obstacles is None:
        return [right("compaction.checkpoint.dir is not set, so no job runs with these settings")]
    found = [wrong(what, remedy) for what, remedy in obstacles]
    found += [warning(text, "make room there, or name another directory") for text in full]
    return found or [right("Python, the user, temporary files and room on disk are fit for it")]
