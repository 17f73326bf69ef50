"""A program that is a member of a group, and keeps what happened to it; as a process it writes that down, a line each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.membership import JoinedMember, MembershipSettings
from holdfast.membership.kafka_group import Member
from tests.waiting import PATIENCE_MS, wait_until

#: Longer than any test takes: only a member that leaves or is thrown out is gone.
FOREVER_MS = PATIENCE_MS
#: Of a member that is frozen or killed: no machine that stalls for some seconds ends it, and a test waits for its end.
SHORT_MS = 8_000


def settings(group: str, session_timeout_ms: int = FOREVER_MS, instance_id: str | None = None) -> MembershipSettings:
    """Return settings of a member that notices a rebalance soon."""
    return MembershipSettings(
        group_id=group,
        group_instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=FOREVER_MS,
        heartbeat_interval_ms=100,
        request_timeout_ms=FOREVER_MS,
        retry_backoff_ms=20,
        retry_backoff_max_ms=200,
    )


def options(bootstrap_servers: str) -> ConnectionOptions:
    """Return how to connect to a broker on this machine."""
    return ConnectionOptions(bootstrap=(parse_address(bootstrap_servers),))


class Program:
    """What a member does in the tests: the leader gives each member the ids of all, with its own marked."""

    def __init__(self, protocols: Sequence[tuple[str, bytes]] = (("p", b""),), protocol_type: str = "test") -> None:
        self.protocol_type = protocol_type
        self.protocols = protocols
        #: Callbacks in the order in which they ran.
        self.happened: list[str] = []
        #: Members by the last assignment that was taken over.
        self.members: list[str] = []
        self.protocol = ""

    def say(self, line: str) -> None:
        """Take note of what happened."""
        self.happened.append(line)

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Say what this member knows."""
        return self.protocols

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Take note."""
        self.say(f"prepare {generation} {member_id}".rstrip())

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        """Give each member the ids of all."""
        self.say(f"perform {len(members)}")
        everybody = " ".join(sorted(member.member_id for member in members)).encode()
        return {member.member_id: everybody for member in members}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """Take note."""
        self.members, self.protocol = assignment.decode().split(), protocol
        self.say(f"complete {generation} {len(self.members)}")

    async def on_leave_prepare(self, generation: int, member_id: str) -> None:
        """Take note."""
        self.say(f"leave {generation}")

    async def on_lost(self, reason: str) -> None:
        """Take note."""
        self.say("lost")


class Running:
    """A program and its member, polled until the test lets it go."""

    def __init__(self, program: Program, member: Member) -> None:
        self.program = program
        self.member = member

    async def until_members(self, count: int) -> None:
        """Wait until the group has so many members, by an assignment that stands."""
        await wait_until(
            lambda: self.member.generation_if_stable is not None and len(self.program.members) == count,
            f"a group of {count}, seen by {self.member.generation} after {self.program.happened[-5:]}",
        )


async def poll_forever(member: Member) -> NoReturn:
    """Keep a member in its group."""
    while True:
        await member.poll(FOREVER_MS)


@asynccontextmanager
async def running(program: Program, bootstrap_servers: str, group: MembershipSettings) -> AsyncIterator[Running]:
    """Give a member that joined, polled all the time, and closed in the end."""
    member = Member(program, options(bootstrap_servers), group)
    try:
        assert await member.ensure_active(FOREVER_MS)
        polling = asyncio.create_task(poll_forever(member))
        try:
            yield Running(program, member)
        finally:
            polling.cancel()
            await asyncio.wait([polling])
    finally:
        await member.close(FOREVER_MS)


class Printing(Program):
    """The program as a process: each line leaves at once."""

    def say(self, line: str) -> None:
        """Write what happened."""
        print(line, flush=True)


class Hanging(Printing):
    """A leader that never gets done."""

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        """Say that it leads, and no more."""
        self.say("hanging")
        await asyncio.Event().wait()
        return {}


async def main(bootstrap_servers: str, group: str, kind: str) -> None:
    """Be a member with a short session until the process ends."""
    program = Hanging() if kind == "hanging" else Printing()
    await poll_forever(Member(program, options(bootstrap_servers), settings(group, SHORT_MS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
