"""A preview tells what a call then does, because the same code decides; and it leaves everything as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.api.results import StateRequest, StateResponse
from holdfast.api.share_state import DELETE, INITIALIZE, READ, WRITE
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.share.previews import preview
from tests.world.samples import TOPIC
from tests.world.service import House, ask

#: The epochs that are current, whichever those are.
UNCHECKED = {"state_epoch": -1, "leader_epoch": -1, "start_offset": -1, "delivery_complete_count": -1}
BATCHES = [[100, 109, ACKNOWLEDGED, 1], [105, 119, AVAILABLE, 2]]


class Gate:
    """Stands where the topic gate does, before the service of a house."""

    def __init__(self, house: House) -> None:
        self._house = house

    def handle(self, api_key: int, request: StateRequest, respond: Any, caller: str) -> None:
        self._house.service.handle(api_key, request, respond)

    def partition_for(self, key: SharePartitionKey) -> int:
        return self._house.service.partition_for(key)


class World:
    def __init__(self) -> None:
        self.house = House()

    async def preview(self, call: str, partition: int = 0, **fields: Any) -> dict[str, Any]:
        named = {"group": "g1", "topic_id": format_topic_id(TOPIC), "partition": partition}
        return await preview(Gate(self.house), {"call": call, **named, **fields})

    def call(self, api_key: int, **fields: Any) -> StateResponse:
        return self.house.call(api_key, (TOPIC, [ask(api_key, 0, **fields)]))

    @property
    def state(self) -> ShareState | None:
        return self.house.runtime.worlds[self.house.index(0)].shard.state.newest(SharePartitionKey("g1", TOPIC, 0))

    async def foretold(self, call: str, api_key: int, asked: dict[str, Any], fields: dict[str, Any]) -> None:
        """Preview a call, then make it, and compare."""
        before, decided = self.state, len(self.house.runtime.decisions)
        answer = await self.preview(call, **fields)
        assert self.state == before
        assert self.house.runtime.decisions[decided].records == ()
        self.call(api_key, **asked)
        assert json.loads(json.dumps(answer)) == {
            "before": as_json(before),
            "after": as_json(self.state),
            "error": None,
        }


def as_json(state: ShareState | None) -> dict[str, Any] | None:
    return (
        None if state is None else json.loads(json.dumps(state._asdict() | {"state_batches": [*state.state_batches]}))
    )


async def test_preview_of_each_call_equals_its_effect() -> None:
    world = World()
    begin = {"state_epoch": 3, "start_offset": 100}
    await world.foretold("initialize", INITIALIZE, begin, begin)
    batches = tuple(StateBatch(*batch) for batch in BATCHES)
    write = {"start_offset": 102}
    await world.foretold(
        "write", WRITE, write | {"state_batches": batches}, UNCHECKED | write | {"state_batches": BATCHES}
    )
    assert world.state is not None
    assert world.state.state_batches[0] == (102, 104, ACKNOWLEDGED, 1), "combined, and cut"
    await world.foretold("read", READ, {"leader_epoch": 5}, {"leader_epoch": 5})
    await world.foretold("read", READ, {"leader_epoch": 5}, {"leader_epoch": -1})
    await world.foretold("initialize", INITIALIZE, begin, begin)
    assert world.state.leader_epoch_fence == 5
    await world.foretold("delete", DELETE, {}, {})
    assert world.state is None
    await world.foretold("delete", DELETE, {}, {})


async def test_a_preview_counts_as_no_write() -> None:
    world = World()
    world.call(INITIALIZE)
    await world.preview("write", state_batches=BATCHES, **UNCHECKED)
    await world.preview("read", leader_epoch=9)
    assert world.house.metrics.writes == 0


@pytest.mark.parametrize(
    ("call", "fields", "code"),
    [
        ("initialize", {"state_epoch": 2, "start_offset": 0}, ErrorCode.FENCED_STATE_EPOCH),
        ("initialize", {"state_epoch": -1, "start_offset": 0}, ErrorCode.INVALID_REQUEST),
        ("read", {"leader_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ("write", UNCHECKED | {"leader_epoch": -2, "state_batches": []}, ErrorCode.INVALID_REQUEST),
        ("write", UNCHECKED | {"state_epoch": 2, "state_batches": []}, ErrorCode.FENCED_STATE_EPOCH),
        ("write", UNCHECKED | {"state_batches": [[9, 0, ACKNOWLEDGED, 1]]}, ErrorCode.INVALID_REQUEST),
        ("write", UNCHECKED | {"partition": 1, "state_batches": []}, ErrorCode.INVALID_REQUEST),
        ("delete", {"partition": 99}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_the_error_that_a_call_would_get_is_reported(call: str, fields: dict[str, Any], code: ErrorCode) -> None:
    world = World()
    world.call(INITIALIZE, state_epoch=3)
    answer = await world.preview(call, **fields)
    assert (answer["error"]["code"], answer["before"]) == (code, answer["after"])
    assert world.state is not None
    assert world.state.state_epoch == 3


@pytest.mark.parametrize(
    ("call", "fields", "why"),
    [
        ("summary", {}, "one of initialize, read, write, delete"),
        ("delete", {"group": ""}, "needs a `group`"),
        ("delete", {"topic_id": "orders"}, "22 characters of base64url"),
        ("delete", {"partition": 1 << 31}, "`partition` is 2147483648; it must be a whole number of 32 bits"),
        ("read", {}, "`leader_epoch` is None"),
        ("initialize", {"state_epoch": 0, "start_offset": 1 << 63}, "`start_offset` is .* of 64 bits"),
        ("write", UNCHECKED, "`state_batches` must be a list"),
        ("write", UNCHECKED | {"state_batches": [[1, 2, 2]]}, r"The state batch \[1, 2, 2\] is not"),
        ("write", UNCHECKED | {"state_batches": [[1, 2, 2, 99_999]]}, "99999; it must be a whole number of 16 bits"),
    ],
)
async def test_a_wrong_argument_is_named(call: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(AdminError, match=why):
        await World().preview(call, **fields)
