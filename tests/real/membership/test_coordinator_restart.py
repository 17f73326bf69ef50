"""A broker of its own for groups: restarted under its members, who stay, and with limits and ACLs by which it refuses some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from holdfast.broker import EmbeddedKafka
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import Generation, MembershipFailed
from holdfast.membership.kafka_group import Member
from holdfast.membership.kafka_group.group_link import GroupLink
from holdfast.membership.requests import JoinGroup, Refused
from tests.real.membership.member_program import FOREVER_MS, Program, options, running, settings
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

LIMITED = {
    "group.max.size": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
#: Answers of a broker to the first look-up of a group, and until it has loaded the group.
UNTIL_LOADED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(jvm_options=QUICK_KAFKA, properties=LIMITED) as broker:
        yield broker


async def test_members_stay_when_their_coordinator_is_restarted_and_a_group_that_is_full_takes_no_more(
    broker: EmbeddedKafka,
) -> None:
    group, kafka = f"group-{uuid4()}", broker.bootstrap_servers
    async with running(Program(), kafka, settings(group)) as one, running(Program(), kafka, settings(group)) as two:
        await one.until_members(2)
        await two.until_members(2)
        generation = one.member.generation
        await asyncio.to_thread(broker.restart)
        async with running(Program(), kafka, settings(group)) as three:
            for each in (one, two, three):
                await each.until_members(3)
            await refused(
                kafka, group, r"GROUP_MAX_SIZE_REACHED.*; the group is full: raise the broker's group\.max\.size"
            )
            assert len(one.program.members) == 3
        assert one.member.generation.member_id == generation.member_id
        assert one.member.generation.id > generation.id
        assert "lost" not in one.program.happened + two.program.happened


async def test_a_member_without_an_acl_is_refused_for_good_and_learns_which_it_needs(broker: EmbeddedKafka) -> None:
    group = f"group-{uuid4()}"
    fields = (
        *(ResourceType.GROUP, group, ResourcePatternType.LITERAL),
        *("User:somebody-else", "*", AclOperation.READ, AclPermissionType.ALLOW),
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_acls([others := AclBinding(*fields)])[others].result(PATIENCE_S)
    # The controller has it, and the broker learns of it a moment later.
    rules = AclBindingFilter(*fields)
    await wait_until(lambda: admin.describe_acls(rules).result(PATIENCE_S), "the rule at the broker")
    await refused(
        broker.bootstrap_servers, group, r"GROUP_AUTHORIZATION_FAILED.*; .*an ACL that allows READ on the group"
    )


async def refused(kafka: str, group: str, why: str) -> None:
    """Check that the group coordinator refuses a new member for good, and that the member says why."""
    member = Member(program := Program(), options(kafka), settings(group))
    with pytest.raises(MembershipFailed, match=why):
        await member.ensure_active(FOREVER_MS)
    await member.close(FOREVER_MS)
    assert not any(line.startswith("complete") for line in program.happened)


async def test_what_kafka_says_to_a_group_id_that_no_settings_let_through(broker: EmbeddedKafka) -> None:
    nameless = settings("a name")
    object.__setattr__(nameless, "group_id", "")
    link = GroupLink(options(broker.bootstrap_servers), nameless, "test")
    refusal = None
    while not isinstance(refusal, Refused) or refusal.error_code in UNTIL_LOADED:
        refusal = await link.exchange(JoinGroup(Generation.NONE, (("p", b""),), "a test"))
    link.close()
    assert refusal.error_code == ErrorCode.INVALID_GROUP_ID
