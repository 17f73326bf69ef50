"""The broker that coordinates a group is restarted under it, and killed: the members stay, and none of them joins anew."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast.broker import FAST_START, EmbeddedKafka
from tests.real.membership.member_program import Program, running, settings

pytestmark = pytest.mark.real


async def test_members_stay_when_their_coordinator_is_restarted() -> None:
    group = f"group-{uuid4()}"
    with EmbeddedKafka(jvm_options=FAST_START) as broker:
        kafka = broker.bootstrap_servers
        async with running(Program(), kafka, settings(group)) as one, running(Program(), kafka, settings(group)) as two:
            await one.until_members(2)
            await two.until_members(2)
            generation = one.member.generation
            await asyncio.to_thread(broker.restart)
            async with running(Program(), kafka, settings(group)) as three:
                for each in (one, two, three):
                    await each.until_members(3)
            assert one.member.generation.member_id == generation.member_id
            assert one.member.generation.id > generation.id
            assert "lost" not in one.program.happened + two.program.happened
