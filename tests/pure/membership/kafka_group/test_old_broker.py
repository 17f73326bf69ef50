"""A member at a broker that is too old for it: a real one's versions, over a real socket."""

from __future__ import annotations

import pytest

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import MembershipFailed
from holdfast.membership.kafka_group import Member
from tests.pure.membership.kafka_group.test_member import SETTINGS, Program
from tests.waiting import PATIENCE_MS, in_patience
from tests.world.old_broker import FIND_COORDINATOR, old_broker


async def test_a_too_old_broker_ends_the_membership_and_its_version_is_named() -> None:
    async with old_broker() as broker:
        program = Program()
        member = Member(program, ConnectionOptions(bootstrap=(("127.0.0.1", broker.port),)), SETTINGS)
        for _ in range(2):
            with pytest.raises(MembershipFailed, match=r"Apache Kafka 3\.2 or newer") as failed:
                await in_patience(member.ensure_active(PATIENCE_MS))
        assert failed.value.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert program.happened == ["prepare"]
        assert (FIND_COORDINATOR, 2) in broker.requests, "the look-up has versions for older brokers"
        await in_patience(member.close(PATIENCE_MS))
