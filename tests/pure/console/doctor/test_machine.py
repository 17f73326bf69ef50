"""What the doctor says of the machine."""

from __future__ import annotations

import pytest

from holdfast.console.doctor.findings import Finding, Level, Subject
from holdfast.console.doctor.machine import (
    check_files,
    check_java,
    check_memory,
    check_versions,
    judge_files,
    judge_java,
    judge_memory,
    judge_versions,
)
from holdfast.daemon.settings.declarations import MIB
from holdfast.daemon.settings.models import Settings
from holdfast.node_settings import load_settings

GIB = 1024 * MIB


def settings(**flags: object) -> Settings:
    return load_settings(flags={"kafka.bootstrap.servers": "a:1", **flags}).settings


async def test_this_machine_has_what_the_tests_need() -> None:
    subject = Subject(settings(), "127.0.0.1:1", 1_000)
    for check in (check_versions, check_java, check_memory, check_files):
        found = await check(subject)
        assert len(found) == 1, check
        assert found[0].text


def test_a_library_that_is_missing_is_named() -> None:
    [found] = judge_versions("3.12.1", {"kio": "0.6", "uvloop": None})
    assert (found.level, found.text) == (Level.WRONG, "not installed: uvloop")
    assert "pip install" in found.remedy
    assert judge_versions("3.12.1", {"kio": "0.6"})[0].text.endswith("Python 3.12.1, kio 0.6")


def test_java_is_needed_where_the_job_runs_and_nowhere_else() -> None:
    assert judge_java("/usr/bin/java", "", is_needed=True) == [Finding(Level.RIGHT, "/usr/bin/java")]
    problem = "The compaction job needs Java 17 to 25 and no java is on the path; install one."
    [needed] = judge_java("", problem, is_needed=True)
    assert needed == Finding(
        Level.WRONG, "The compaction job needs Java 17 to 25 and no java is on the path", "install one"
    )
    [idle] = judge_java("", problem, is_needed=False)
    assert idle.level is Level.RIGHT


def test_a_java_that_is_too_new_for_the_job_is_wrong_where_the_job_runs() -> None:
    problem = "The compaction job needs Java 17 to 25 and /usr/bin/java is 26; install one."
    [needed] = judge_java("/usr/bin/java", problem, is_needed=True)
    assert (needed.level, needed.remedy) == (Level.WRONG, "install one")
    [idle] = judge_java("/usr/bin/java", problem, is_needed=False)
    assert idle == Finding(
        Level.RIGHT,
        "/usr/bin/java, for `holdfast dev` alone: the compaction job needs Java 17 to 25 and /usr/bin/java is 26",
    )


def test_memory_is_compared_with_the_bounds_and_the_remedy_fits() -> None:
    small = settings(state_bytes_max=100 * MIB, **{"snapshots.topic": ""})
    [found] = judge_memory(small, 4 * GIB)
    assert found.level is Level.RIGHT
    [found] = judge_memory(settings(), 8 * GIB)
    assert found.level is Level.WARNING
    fitting = int(found.remedy.partition("state_bytes_max to ")[2].partition(",")[0])
    assert judge_memory(settings(state_bytes_max=fitting), 8 * GIB)[0].level is Level.RIGHT
    [found] = judge_memory(settings(), GIB)
    assert found.remedy.startswith("lower buffered_bytes_max")


def test_workers_take_memory_each() -> None:
    one, four = settings(), settings(workers=4, membership="group")
    assert "for 4 workers" in judge_memory(four, 1_000 * GIB)[0].text
    assert judge_memory(one, 20 * GIB)[0].level is Level.RIGHT
    assert judge_memory(four, 20 * GIB)[0].level is Level.WARNING


@pytest.mark.parametrize(("files", "level"), [(-1, Level.RIGHT), (1_200, Level.RIGHT), (1_199, Level.WRONG)])
def test_open_files_are_compared_with_the_connections(files: int, level: Level) -> None:
    [found] = judge_files(settings(), files)
    assert found.level is level
    if level is Level.WRONG:
        assert "ulimit -n 1200, or LimitNOFILE=1200" in found.remedy
        assert "max.connections to 999" in found.remedy
