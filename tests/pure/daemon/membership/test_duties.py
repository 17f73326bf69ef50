"""Duties begin and end as they are assigned, one change after the other."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.membership.duties import Duties
from holdfast.metrics.instruments import Counter
from tests.waiting import in_patience, wait_until


class Job:
    def __init__(self, name: str, did: list[str]) -> None:
        self.name = name
        self.did = did
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.is_ending = False
        self.bug: Exception | None = None

    def start(self) -> None:
        self.did.append(f"{self.name} starts")

    async def stop(self) -> None:
        self.is_ending = True
        await self.may_end.wait()
        self.did.append(f"{self.name} ends")
        if self.bug is not None:
            raise self.bug


async def test_what_is_wanted_again_before_it_has_ended_ends_and_then_begins_again() -> None:
    did: list[str] = []
    job = Job("a", did)
    duties = Duties({"a": job, "b": Job("b", did)}, InternalErrors(Counter()))
    assert duties.offered == ("a", "b")
    duties.set(("a",))
    await wait_until(lambda: did == ["a starts"])
    job.may_end.clear()
    duties.set(("b",))
    await wait_until(lambda: job.is_ending)
    duties.set(("a", "b"))
    job.may_end.set()
    await wait_until(lambda: len(did) == 4)
    assert did == ["a starts", "a ends", "a starts", "b starts"]
    await in_patience(duties.stop())
    assert did[4:] == ["a ends", "b ends"]


async def test_a_bug_at_the_end_of_one_keeps_no_other_from_ending() -> None:
    did: list[str] = []
    jobs = {name: Job(name, did) for name in "ab"}
    for job in jobs.values():
        job.bug = RuntimeError("a bug")
    bugs = Counter()
    duties = Duties(jobs, InternalErrors(bugs))
    duties.set(("a", "b"))
    with capture_logs() as lines:
        await in_patience(duties.stop())
        assert did == [], "nothing had begun"
        duties.set(("a", "b"))
        await wait_until(lambda: len(did) == 2)
        await in_patience(duties.stop())
    assert sorted(did[2:]) == ["a ends", "b ends"]
    assert sorted(line["duty"] for line in lines) == ["a", "b"]
    assert bugs.value == 2
