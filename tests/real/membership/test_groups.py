"""Members of groups on a real group coordinator: who comes, goes, freezes and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import uuid4

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import Generation, MembershipFailed
from holdfast.membership.kafka_group import Member
from holdfast.membership.kafka_group.group_link import GroupLink
from holdfast.membership.requests import Acknowledged, Heartbeat, JoinGroup, LeaveGroup, Refused, SyncGroup
from holdfast.membership.states import State
from tests.pure.docs.pages import ROOT
from tests.real.membership.member_program import (
    FOREVER_MS,
    SHORT_MS,
    Program,
    options,
    poll_forever,
    running,
    settings,
)
from tests.waiting import PATIENCE_S, Lines, wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def group() -> str:
    return f"group-{uuid4()}"


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    """Give a process and its lines; it is killed in the end, if it has not ended."""
    command = [sys.executable, "-u", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)) as started:
        assert started.stdout is not None
        try:
            yield started, Lines(started.stdout)
        finally:
            started.kill()


def member_process(
    kafka: str, group: str, kind: str = "usual"
) -> AbstractContextManager[tuple[subprocess.Popen[str], Lines]]:
    """Give a member with a short session in a process of its own."""
    return process("-m", "tests.real.membership.member_program", kafka, group, kind)


async def next_line(lines: Lines, wanted: Callable[[str], bool]) -> list[str]:
    """Wait for a line of another process while the members of this one go on; returns all lines up to it."""
    seen: list[str] = []
    while not seen or not wanted(seen[-1]):
        seen.append((await asyncio.to_thread(lines.next)).strip())
        assert seen[-1], f"the process ended after {seen}"
    return seen


async def test_the_first_join_goes_by_an_id_that_the_broker_gives(kafka: str, group: str) -> None:
    link = GroupLink(options(kafka), settings(group), "test")
    refused = None
    while not isinstance(refused, Refused) or refused.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        # Until the broker has loaded the group.
        refused = await link.exchange(JoinGroup(Generation.NONE, (("p", b""),), "a test"))
        assert isinstance(refused, Refused)
    assert refused.member_id
    link.close()
    async with running(Program(), kafka, settings(group)) as one:
        assert one.program.happened == ["prepare -1", "perform 1", "complete 1 1"]
        assert one.member.generation == Generation(1, one.member.member_id, "p") == one.member.generation_if_stable
    assert one.program.happened[-1] == "leave 1"
    assert (one.member.state, one.member.generation) == (State.UNJOINED, Generation.NONE)


async def test_two_then_three_then_one_leaves(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)) as one, running(Program(), kafka, settings(group)) as two:
        await one.until_members(2)
        async with running(Program(), kafka, settings(group)) as three:
            for each in (one, two, three):
                await each.until_members(3)
            assert one.program.members == two.program.members == three.program.members
            assert len({each.member.generation.id for each in (one, two, three)}) == 1
            assert three.member.member_id in one.program.members
        for each in (one, two):
            await each.until_members(2)
        assert sum("perform" in line for line in one.program.happened + two.program.happened) >= 3
        assert "lost" not in one.program.happened + two.program.happened


async def test_the_group_speaks_what_all_know_and_most_prefer(kafka: str, group: str) -> None:
    both, reverse = [("new", b""), ("old", b"")], [("old", b""), ("new", b"")]
    async with running(Program(both), kafka, settings(group)) as one:
        assert one.program.protocol == "new"
        async with running(Program(reverse), kafka, settings(group)) as two:
            await one.until_members(2)
            assert one.program.protocol == two.program.protocol
            async with running(Program([("old", b"")]), kafka, settings(group)) as three:
                await one.until_members(3)
                assert one.program.protocol == three.program.protocol == "old"


async def test_a_wish_to_rejoin_is_a_rebalance_of_all_if_there_is_news_or_the_leader_wishes(
    kafka: str, group: str
) -> None:
    async with running(Program(), kafka, settings(group)) as leader, running(Program(), kafka, settings(group)) as two:
        await leader.until_members(2)
        await two.until_members(2)
        generation = leader.member.generation
        # The broker answers a follower that has nothing new to say with the generation that there is.
        taken_over = two.program.happened.count(f"complete {generation.id} 2")
        two.member.request_rejoin("a test")
        await wait_until(lambda: two.program.happened.count(f"complete {generation.id} 2") > taken_over)
        assert leader.member.generation == generation
        two.program.protocols = [("p", b"news")]
        two.member.request_rejoin("a test")
        await wait_until(lambda: (leader.member.generation_if_stable or Generation.NONE).id == generation.id + 1)
        leader.member.request_rejoin("a test")
        await wait_until(lambda: (two.member.generation_if_stable or Generation.NONE).id == generation.id + 2)


async def test_a_member_that_is_killed_or_frozen_is_gone_and_one_that_wakes_comes_back(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)) as one:
        with member_process(kafka, group) as (other, lines):
            await next_line(lines, lambda line: line.startswith("complete"))
            await one.until_members(2)
            other.send_signal(signal.SIGSTOP)
            await one.until_members(1)
            generation = one.member.generation
            other.send_signal(signal.SIGCONT)
            seen = await next_line(lines, lambda line: line.startswith("complete"))
            # It notices by itself, once, before it joins; its late heartbeat disturbs nobody.
            assert [line.split()[0] for line in seen if not line.startswith("perform")] == [
                "lost",
                "prepare",
                "complete",
            ]
            await one.until_members(2)
            assert one.member.generation.id == generation.id + 1
            assert "lost" not in one.program.happened
            other.kill()
            await one.until_members(1)


async def test_a_leader_killed_between_join_and_sync_keeps_nobody_from_working(kafka: str, group: str) -> None:
    with member_process(kafka, group, "hanging") as (leader, lines):
        await next_line(lines, lambda line: line == "hanging")
        leader.kill()
        async with running(Program(), kafka, settings(group)) as one:
            await one.until_members(1)
            assert one.program.happened.count("perform 1") == 1


async def test_a_static_member_comes_back_within_its_session_without_a_rebalance(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)) as one:
        async with running(Program(), kafka, settings(group, instance_id="a")) as first:
            await one.until_members(2)
            generation = one.member.generation
        assert first.program.happened[-1].startswith("leave")
        async with running(Program(), kafka, settings(group, instance_id="a")) as again:
            assert again.program.happened == ["prepare -1", f"complete {generation.id} 2"]
            assert again.member.member_id != first.member.member_id
        assert one.member.generation == generation


async def test_a_static_member_is_gone_after_its_session(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)) as one:
        async with running(Program(), kafka, settings(group, SHORT_MS, instance_id="a")) as first:
            await one.until_members(2)
            assert first.member.member_id in one.program.members
        await one.until_members(1)
        generation = one.member.generation
        async with running(Program(), kafka, settings(group, SHORT_MS, instance_id="a")):
            await one.until_members(2)
            assert first.member.member_id not in one.program.members
        assert one.member.generation.id > generation.id, "it is a new one, for which the group rebalances"


async def test_of_two_with_one_instance_id_the_first_is_out_for_good(kafka: str, group: str) -> None:
    first = Member(program := Program(), options(kafka), settings(group, instance_id="a"))
    assert await first.ensure_active(FOREVER_MS)
    async with running(Program(), kafka, settings(group, instance_id="a")):
        with pytest.raises(MembershipFailed, match=r"FENCED_INSTANCE_ID; .*group\.instance\.id"):
            await poll_forever(first)
        with pytest.raises(MembershipFailed):
            await first.ensure_active(0)
        assert program.happened[-1] == "lost"
        await first.close(FOREVER_MS)
        assert program.happened[-1] == "lost"


async def test_two_programs_under_one_group_id(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)):
        for other in (Program(protocol_type="another"), Program(protocols=[("unknown", b"")])):
            member = Member(other, options(kafka), settings(group))
            with pytest.raises(MembershipFailed, match="another program uses this group id"):
                await member.ensure_active(FOREVER_MS)
            await member.close(FOREVER_MS)
            assert other.happened == ["prepare -1"]


async def test_a_session_that_the_broker_does_not_allow(kafka: str, group: str) -> None:
    short = settings(group, session_timeout_ms=400)
    member = Member(Program(), options(kafka), short)
    with pytest.raises(MembershipFailed, match=r"INVALID_SESSION_TIMEOUT; session\.timeout\.ms"):
        await member.ensure_active(FOREVER_MS)
    await member.close(FOREVER_MS)


async def test_what_the_coordinator_answers_to_members_that_are_none(kafka: str, group: str) -> None:
    async with running(Program(), kafka, settings(group)) as one:
        link = GroupLink(options(kafka), settings(group), "test")
        real = one.member.generation
        old, stranger = Generation(real.id + 1, real.member_id, "p"), Generation(real.id, "nobody", "p")
        assert await link.exchange(Heartbeat(old)) == Refused(ErrorCode.ILLEGAL_GENERATION)
        assert await link.exchange(SyncGroup(old, ())) == Refused(ErrorCode.ILLEGAL_GENERATION)
        assert await link.exchange(Heartbeat(stranger)) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        assert await link.exchange(JoinGroup(stranger, (("p", b""),), "")) == Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, member_id="nobody"
        )
        assert await link.exchange(LeaveGroup(stranger, "a test")) == Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        assert await link.exchange(Heartbeat(real)) == Acknowledged()
        link.close()


async def test_the_example_elects_a_leader_and_spreads_work(kafka: str, group: str) -> None:
    code = [line for line in (ROOT / "examples" / "spread_work.py").read_text().splitlines() if line.strip()]
    assert len([line for line in code if '"""' not in line]) <= 30
    example = ("examples/spread_work.py", kafka, group)
    with process(*example) as (_, first), process(*example) as (second, lines):
        await next_line(lines, lambda line: line.startswith("working on "))
        seen = await next_line(first, lambda line: line.startswith("working on ") and line.count(",") == 4)
        assert seen[-1] in ("working on [0, 2, 4, 6, 8]", "working on [1, 3, 5, 7, 9]")
        second.send_signal(signal.SIGINT)
        assert second.wait(PATIENCE_S) == 0
        await next_line(first, lambda line: line == "working on [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
