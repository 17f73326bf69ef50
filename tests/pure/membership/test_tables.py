"""The tables of a member: legal transitions, reactions to error codes, settings, and the arguments of a program."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import (
    Generation,
    InvalidAssignment,
    InvalidMetadata,
    JoinedMember,
    MembershipFailed,
    MembershipSettings,
)
from holdfast.membership.checks import check_assignments, check_protocol_type, check_protocols
from holdfast.membership.errors import ADVICE, Reaction, reaction_to
from holdfast.membership.states import TRANSITIONS, IllegalTransition, State, check_transition
from tests.pure.docs.pages import ROOT

GROUP = {"group_id": "g"}
#: The legal transitions, written out: a table is not held to itself.
LEGAL = {
    ("unjoined", "joining"),
    ("unjoined", "leaving"),
    ("joining", "syncing"),
    ("joining", "unjoined"),
    ("joining", "leaving"),
    ("syncing", "stable"),
    ("syncing", "joining"),
    ("syncing", "unjoined"),
    ("syncing", "leaving"),
    ("stable", "joining"),
    ("stable", "unjoined"),
    ("stable", "leaving"),
    ("leaving", "unjoined"),
}
#: The reaction to each error, written out.
REACTION_TO = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Reaction.LOOK_UP,
    ErrorCode.NETWORK_EXCEPTION: Reaction.LOOK_UP,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction.GIVE_UP,
    ErrorCode.INVALID_GROUP_ID: Reaction.GIVE_UP,
    ErrorCode.INVALID_SESSION_TIMEOUT: Reaction.GIVE_UP,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.GIVE_UP,
    ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction.GIVE_UP,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.GIVE_UP,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.GIVE_UP,
}


# ---- generation ------------------------------------------------------------------------------------------------------


def test_a_generation_is_compared_by_all_three_and_says_them() -> None:
    one = Generation(7, "m", "p")
    assert one == Generation(7, "m", "p")
    assert len({one, Generation(8, "m", "p"), Generation(7, "n", "p"), Generation(7, "m", "q"), Generation.NONE}) == 5
    assert str(one) == "generation 7, member m, protocol p"
    assert str(Generation.NONE) == "no generation, no member id, no protocol"
    with pytest.raises(AttributeError):
        one.id = 8  # type: ignore[misc]  # that it cannot be set is what is tested


def test_a_member_may_have_an_id_before_it_has_a_generation() -> None:
    assert Generation(-1, "", None) == Generation.NONE
    assert (Generation.NONE.has_member_id, Generation.NONE.is_joined) == (False, False)
    with_id = Generation(-1, "m", None)
    assert (with_id.has_member_id, with_id.is_joined) == (True, False)
    assert Generation(7, "m", "p").left() == with_id


# ---- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "finish"), list(product(State, State)), ids=lambda state: state.value)
def test_a_transition_is_legal_or_raises(start: State, finish: State) -> None:
    if (start.value, finish.value) in LEGAL:
        check_transition(start, finish)
    else:
        with pytest.raises(IllegalTransition, match=f"{start.value} -> {finish.value}"):
            check_transition(start, finish)


def test_no_state_is_a_dead_end_and_the_page_has_each() -> None:
    assert set().union(*TRANSITIONS.values()) == set(State) == set(TRANSITIONS)
    page = Path(ROOT / "docs" / "membership.md").read_text()
    assert [state for state in State if f"\n| {state.value} |" not in page] == []


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ErrorCode)
def test_each_error_has_one_reaction(code: ErrorCode) -> None:
    assert reaction_to(code) is REACTION_TO.get(code, Reaction.WAIT)


def test_error_codes_of_later_brokers_are_waited_for() -> None:
    assert reaction_to(999) is Reaction.WAIT


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another program uses this group id: give group.id"),
        (ErrorCode.INVALID_GROUP_ID, "change group.id"),
        (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            "session.timeout.ms must lie within the broker's group.min.session.timeout.ms",
        ),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "an ACL that allows READ on the group"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (ErrorCode.FENCED_INSTANCE_ID, "group.instance.id"),
        (ErrorCode.UNSUPPORTED_VERSION, "Apache Kafka 3.2 or newer"),
    ],
)
def test_a_final_error_names_the_group_and_what_to_change(code: ErrorCode, named: str) -> None:
    text = str(MembershipFailed("workers", code, "the broker's words"))
    assert text.startswith(f"Group workers: {code.name} (the broker's words); ")
    assert named in text


def test_every_final_error_has_advice() -> None:
    assert set(ADVICE) == {code for code, reaction in REACTION_TO.items() if reaction is Reaction.GIVE_UP}


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"group_id": ""}, ["group.id"]),
        ({"group_instance_id": ""}, ["group.instance.id"]),
        ({"session_timeout_ms": 0}, ["session.timeout.ms"]),
        ({"heartbeat_interval_ms": 0}, ["heartbeat.interval.ms"]),
        ({"retry_backoff_ms": 0}, ["retry.backoff.ms"]),
        ({"request_timeout_ms": 0}, ["request.timeout.ms"]),
        (
            {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 1_000},
            ["heartbeat.interval.ms (1000)", "session.timeout.ms (3000)"],
        ),
        (
            {"session_timeout_ms": 30_001, "rebalance_timeout_ms": 30_000},
            ["session.timeout.ms (30001)", "rebalance.timeout.ms (30000)"],
        ),
        (
            {"retry_backoff_ms": 101, "retry_backoff_max_ms": 100},
            ["retry.backoff.ms (101)", "retry.backoff.max.ms (100)"],
        ),
    ],
)
def test_settings_that_do_not_go_together_are_both_named(values: dict[str, int | str], names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\.") as refused:
        MembershipSettings(**{**GROUP, **values})  # type: ignore[arg-type]  # wrong values are what is tested
    assert [name for name in names if name not in str(refused.value)] == []


def test_settings_at_their_bounds_are_taken() -> None:
    MembershipSettings(group_id="g", session_timeout_ms=3_001, heartbeat_interval_ms=1_000, rebalance_timeout_ms=3_001)


# ---- what a program hands in -----------------------------------------------------------------------------------------


def test_an_empty_protocol_type_is_refused() -> None:
    check_protocol_type("workers")
    with pytest.raises(InvalidMetadata, match="protocol_type is empty"):
        check_protocol_type("")


@pytest.mark.parametrize(
    ("protocols", "fault"),
    [
        ([], "names no protocol"),
        ([("", b"")], "a protocol with an empty name"),
        ([("a", b""), ("b", b""), ("a", b"")], "more than once: a"),
        ([("a", "text")], "the metadata of protocol a is str, not bytes"),
    ],
)
def test_metadata_that_cannot_be_sent_is_refused_with_its_fault(protocols: list[tuple[str, bytes]], fault: str) -> None:
    with pytest.raises(InvalidMetadata, match=fault):
        check_protocols(protocols)


def test_the_order_of_preference_stays() -> None:
    assert check_protocols([("b", b"2"), ("a", b"1")]) == (("b", b"2"), ("a", b"1"))


MEMBERS = [JoinedMember("m1", None, b""), JoinedMember("m2", "i", b"")]


@pytest.mark.parametrize(
    ("assignments", "fault"),
    [
        ({"m1": b""}, "members without an assignment: m2"),
        ({"m1": b"", "m2": b"", "m3": b""}, "assignments of no member: m3"),
        ({"m1": b"", "m2": "text"}, "assignments that are no bytes: m2"),
        (
            {"m1": None, "x": b""},
            "without an assignment: m2; assignments of no member: x; assignments that are no bytes: m1",
        ),
    ],
)
def test_an_assignment_names_exactly_the_members(assignments: dict[str, bytes], fault: str) -> None:
    with pytest.raises(InvalidAssignment, match=fault):
        check_assignments(MEMBERS, assignments)


def test_members_without_work_have_an_empty_assignment() -> None:
    assert check_assignments(MEMBERS, {"m2": b"", "m1": b"1"}) == (("m1", b"1"), ("m2", b""))
