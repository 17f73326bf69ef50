"""Members of a group elect a leader, which spreads ten pieces of work: `python spread_work.py KAFKA:9092 GROUP`, as often as you like."""

import asyncio
import sys
from contextlib import suppress

from click import echo

from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.membership import JoinedMember, MembershipSettings
from holdfast.membership.kafka_group import Member


class Worker:
    """A member that works on what the leader gives it."""

    protocol_type = "spread-work"

    def metadata(self) -> list[tuple[str, bytes]]:
        """Say nothing of this member but that it can share work in turn."""
        return [("in-turn", b"")]

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Stop what others may get now."""
        echo("stopping all work")

    async def perform_assignment(self, leader_id: str, protocol: str, members: list[JoinedMember]) -> dict[str, bytes]:
        """Lead: deal ten pieces to the members in turn."""
        echo(f"leading {len(members)}")
        return {member.member_id: bytes(range(10)[turn :: len(members)]) for turn, member in enumerate(members)}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """Begin what the leader gave."""
        echo(f"working on {list(assignment)}")


async def main(kafka: str, group: str) -> None:
    """Be a member until somebody ends this."""
    member = Member(Worker(), ConnectionOptions(bootstrap=(parse_address(kafka),)), MembershipSettings(group_id=group))
    try:
        while True:
            await member.poll(timeout_ms=1_000)
    finally:
        await member.close(timeout_ms=5_000)


with suppress(KeyboardInterrupt):
    asyncio.run(main(*sys.argv[1:]))
