"""Jobs that write to one directory find each other, and a dead one is forgotten."""

from __future__ import annotations

import os

from holdfast.compaction.presence import _SAME_LOOKS_MAX, Presence


class Files:
    """A directory in memory."""

    def __init__(self, path: str = "/checkpoint") -> None:
        self.path = path
        self.texts: dict[str, str] = {}

    def files(self, name: str = "") -> list[str]:
        return sorted(self.texts)

    def read_text(self, name: str) -> str | None:
        return self.texts.get(name)

    def write_text(self, name: str, text: str) -> None:
        assert name not in self.texts
        self.texts[name] = text

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)


def test_two_jobs_on_one_directory_see_each_other_once() -> None:
    directory = Files()
    first, second = Presence([directory]), Presence([directory])
    assert first.beat() == second.beat() == []
    assert first.beat() == []
    [found] = second.beat()
    assert (found.directory, found.pid) == ("/checkpoint", os.getpid())
    [found] = first.beat()
    assert found.host
    assert first.beat() == second.beat() == []
    assert len(directory.texts) == 2
    first.end()
    second.end()
    assert directory.texts == {}


def test_jobs_with_a_checkpoint_each_and_one_history_see_each_other() -> None:
    history = Files("/history")
    first, second = Presence([Files("/a"), history]), Presence([Files("/b"), history])
    first.beat()
    second.beat()
    first.beat()
    assert [other.directory for other in second.beat()] == ["/history"]


def test_the_mark_of_a_killed_job_is_no_job_and_is_removed() -> None:
    directory = Files()
    killed, job = Presence([directory]), Presence([directory])
    killed.beat()
    for _ in range(_SAME_LOOKS_MAX + 2):
        assert job.beat() == []
    assert len(directory.texts) == 1
    killed.beat()
    assert len(job.beat()) == 1, "it had only stalled"


def test_a_mark_that_cannot_be_read_is_a_job_all_the_same() -> None:
    directory = Files()
    job = Presence([directory])
    directory.texts["_running-0123.7"] = "{"
    assert job.beat() == []
    del directory.texts["_running-0123.7"]
    directory.texts["_running-0123.8"] = "{"
    assert [other.host for other in job.beat()] == ["unknown"]
    directory.texts["day=1"] = directory.texts["_running-x"] = ""
    assert job.beat() == []
