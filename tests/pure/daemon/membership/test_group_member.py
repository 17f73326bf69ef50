"""A node's membership: on a real socket, where the broker is too old for members, and how often it looks at what is due."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.membership.division.machine import this_machine
from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.membership.group_member import GroupMember
from holdfast.daemon.node_exit import Refused
from holdfast.daemon.partitions.identity import KnownMembers, NodeIdentity
from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.other_nodes import NodeSilent, OtherNodes
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.membership import MemberClosed
from holdfast.metrics.instruments import Counter
from holdfast.node_settings import load_settings
from holdfast.records.log.checkpoint import Placement
from holdfast.runtime.partition.states import State
from tests.pure.daemon.membership.world import Config
from tests.waiting import in_patience
from tests.world.context import make_context
from tests.world.old_broker import old_broker


def make_member(broker_port: int, bugs: Counter, refused: Refused) -> GroupMember:
    address = f"127.0.0.1:{broker_port}"
    connection = ConnectionOptions(bootstrap=(("127.0.0.1", broker_port),))
    nothing_is_served: Any = SimpleNamespace(
        place=LogPlace(StateTopic("state", bytes(16), 4, 1, 1_000_000), "cluster", connection, Node(1, "h", 9001)),
        find=lambda index: None,
        note_served_elsewhere=lambda indexes: None,
        runtime=SimpleNamespace(config=SimpleNamespace(log=SimpleNamespace(placement=Placement.BY_TOPIC_PARTITION))),
    )
    return GroupMember(
        load_settings(flags={"kafka.bootstrap.servers": address}).settings,
        "nodes",
        nothing_is_served,
        Duties({}, InternalErrors(Counter())),
        NodeIdentity("run", "nodes", KnownMembers(), refused),
        Config(),
        make_context(now_ms=lambda: 0, bugs=bugs),
    )


async def test_a_member_without_a_generation_has_no_heartbeat_and_says_how_far_it_read() -> None:
    member = make_member(1, Counter(), lambda why, *, is_setting_wrong: None)
    assert member.describe_membership() == {
        "config_offset": Config().offset,
        "group_instance_id": None,
        "heartbeat_age_ms": None,
    }


async def test_a_broker_that_is_too_old_for_members_ends_the_node_with_what_to_change() -> None:
    refusals: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    bugs = Counter()
    async with old_broker() as broker:
        member = make_member(
            broker.port, bugs, lambda why, *, is_setting_wrong: refusals.put_nowait((why, is_setting_wrong))
        )
        with capture_logs() as lines:
            member.start(lambda _: 0.0)
            why, is_setting_wrong = await in_patience(refusals.get())
            await in_patience(member.stop())
    # Two nodes with one id and one address, on two machines behind one address translation: neither is the other's former self.
    (name,) = (each for each in broker.client_ids if "-node-" in each)
    assert name == f"holdfast-node-1-h:9001-{this_machine().replace(' ', '-')}"
    assert "Apache Kafka 3.2 or newer" in why
    assert is_setting_wrong, "no restart helps"
    assert refusals.empty()
    assert [line["why"] for line in lines if line["event"] == "membership_refused"] == [why]
    assert bugs.value == 0, "a broker that is too old is no bug"
    with capture_logs() as lines:
        failed = RuntimeError("planted")
        member._note(
            "error", "group_callback_failed", {"group": "nodes", "error": "on_lost failed", "exc_info": failed}
        )
        member._note("info", "group_left", {"group": "nodes"})
    assert [(line["event"], line.get("error"), line.get("exc_info")) for line in lines] == [
        ("group_callback_failed", "on_lost failed", failed),
        ("group_left", None, None),
    ]
    assert bugs.value == 1


@pytest.mark.parametrize(
    ("status", "is_ended"),
    [
        ({"node_id": 1, "run_id": "other"}, True),
        ({"node_id": 1, "run_id": "run"}, False),  # this node, under an address that it had before
        ({"node_id": 2, "run_id": "other"}, False),  # the claim names the address of a third one
        ({"node_id": 1}, False),
        ("no status", False),
        (None, False),
    ],
)
async def test_a_node_ends_for_a_twin_that_answers_and_not_for_a_claim(status: object, is_ended: bool) -> None:
    refusals: list[str] = []
    member = make_member(1, Counter(), lambda why, *, is_setting_wrong: refusals.append(why))
    queried: list[tuple[str, str]] = []

    async def query(address: str, command: str, timeout_ms: int) -> object:
        queried.append((address, command))
        if status is None:
            raise NodeSilent("nobody answers")
        return status

    member._other_nodes = cast("OtherNodes", SimpleNamespace(query=query))
    with capture_logs() as lines:
        member._look_for_twin("node id 1 is claimed", Node(1, "10.9.9.9", 1))
        await in_patience(asyncio.gather(*member._polling))
    assert queried == [("10.9.9.9:1", "status")]
    assert refusals == (["node id 1 is claimed"] if is_ended else [])
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == (
        [] if is_ended else ["twin_unproven"]
    )
    member._look_for_twin("nobody has an address", None)
    assert not member._polling


async def test_what_is_out_of_reach_is_not_served_and_told_to_the_group_once_it_can_be_heard() -> None:
    member = make_member(1, Counter(), lambda why, *, is_setting_wrong: None)
    quiet_s, told, noted = {1: 6.5, 2: 6.7}, list[frozenset[int]](), list[frozenset[int]]()
    active = SimpleNamespace(state=State.ACTIVE, is_alarmed=False)
    member._partitions = cast("Any", SimpleNamespace(find=lambda _: active, note_out_of_reach=noted.append))
    member._leader_quiet_s = lambda task: quiet_s.get(task, 0.0)

    class Coordinator:
        out_of_reach = frozenset[int]()

        def reach_changed(self, out_of_reach: frozenset[int]) -> None:
            self.out_of_reach = out_of_reach
            told.append(out_of_reach)

    member._coordinator = cast("Any", Coordinator())
    heard = SimpleNamespace(heartbeat_age_s=99.0)
    member._member = cast("Any", heard)
    member._look_at_reach()
    # Two thirds of a session of 10 s.
    assert ([member.serves(task) for task in range(4)], member._is_alarmed(2)) == ([True, True, False, True], True)
    assert (noted, told) == ([frozenset({2})], []), "a member that begins to join sends no heartbeats"
    heard.heartbeat_age_s = 2.0  # two intervals of heartbeats
    member._look_at_reach()
    member._look_at_reach()
    assert told == [frozenset({2})]
    quiet_s.clear()
    member._look_at_reach()
    assert (noted[1:], told[1:], member.serves(2)) == ([frozenset()], [frozenset()], True)


async def test_a_member_of_which_nothing_is_due_looks_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    member = make_member(1, Counter(), lambda why, *, is_setting_wrong: None)
    at_rest = iter([False, True, True, True])
    pauses_ms: list[int] = []

    async def wait() -> None:
        await asyncio.Event().wait()

    async def poll(timeout_ms: int) -> None:
        pauses_ms.append(timeout_ms)
        if len(pauses_ms) == 2:
            member._run_poll(wait())
        if len(pauses_ms) == 3:
            await member._stop_polls()
        if len(pauses_ms) == 4:
            raise MemberClosed

    class Coordinator:
        out_of_reach = frozenset[int]()
        is_at_rest = property(lambda _: next(at_rest))

        def tick(self) -> None: ...

        def take_rejoin(self) -> str:
            return ""

    monkeypatch.setattr(member, "_coordinator", Coordinator())
    monkeypatch.setattr(member, "_member", SimpleNamespace(poll=poll))
    await in_patience(member._keep())
    assert pauses_ms == [50, 250, 50, 250], (
        "while it waits for the word of a former owner it is not at rest, and is again behind it"
    )
