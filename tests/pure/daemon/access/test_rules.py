"""The decision: exact cases, and a check of the index against a plain reading of all rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.access.acl import (
    CLUSTER_NAME,
    IMPLYING_DESCRIBE,
    OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from holdfast.daemon.access.rules import Rules
from tests.world.identity.access import cluster_acl, group_acl

PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*"])
NAMES = st.sampled_from(["*", "o", "or", "orders", "orders-1", "x"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    resource = draw(st.sampled_from(ResourceType))
    operation = draw(st.sampled_from(sorted(OPERATIONS[resource], key=lambda each: each.value)))
    permission, host = draw(st.sampled_from(Permission)), draw(HOSTS)
    if resource is ResourceType.CLUSTER:
        return Acl(draw(PRINCIPALS), permission, operation, resource, CLUSTER_NAME, host=host)
    return Acl(draw(PRINCIPALS), permission, operation, resource, draw(NAMES), draw(st.sampled_from(PatternType)), host)


RULES = st.lists(acls(), max_size=12)
CLIENTS = st.tuples(st.sampled_from(["User:a", "User:b", "User:c"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]))
GROUPS = st.sampled_from(["o", "orders", "orders-12", "x", "*", ""])
GROUP_OPERATIONS = st.sampled_from([Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE])


def is_about(acl: Acl, principal: str, host: str, resource: ResourceType, name: str) -> bool:
    """Read a rule as the page has it."""
    fits = name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name in ("*", name)
    return acl.resource is resource and fits and (acl.principal in ("User:*", principal)) and (acl.host in ("*", host))


def grants(acl: Acl, operation: Operation) -> bool:
    implied = operation is Operation.DESCRIBE and acl.operation in IMPLYING_DESCRIBE
    return acl.operation in (Operation.ALL, operation) or implied


def plain(rules: list[Acl], principal: str, host: str, operation: Operation, group: str) -> bool:
    about_group = [acl for acl in rules if is_about(acl, principal, host, ResourceType.GROUP, group)]
    about_cluster = [acl for acl in rules if is_about(acl, principal, host, ResourceType.CLUSTER, CLUSTER_NAME)]
    action = Operation.CLUSTER_ACTION

    def is_denied(about: list[Acl], wanted: Operation) -> bool:
        return any(acl.permission is Permission.DENY and acl.operation in (Operation.ALL, wanted) for acl in about)

    def is_granted(about: list[Acl], wanted: Operation) -> bool:
        return any(acl.permission is Permission.ALLOW and grants(acl, wanted) for acl in about)

    if is_denied(about_group, operation):
        return False
    return is_granted(about_group, operation) or (
        is_granted(about_cluster, action) and not is_denied(about_cluster, action)
    )


@given(RULES, CLIENTS, GROUP_OPERATIONS, GROUPS)
def test_the_decision_is_that_of_a_plain_reading_whatever_the_order(
    rules: list[Acl], client: tuple[str, str], operation: Operation, group: str
) -> None:
    expected = plain(rules, *client, operation, group)
    for ordered in (rules, rules[::-1], sorted(rules, key=str)):
        decision = Rules(ordered).decide(*client, operation, ResourceType.GROUP, group)
        assert decision.is_allowed == expected
        assert decision == Rules(rules).decide(*client, operation, ResourceType.GROUP, group)
        if decision.rule is not None:
            assert decision.rule.permission is (Permission.ALLOW if expected else Permission.DENY)


@given(RULES, CLIENTS, GROUP_OPERATIONS, GROUPS)
def test_a_rule_that_denies_wins_over_all_others(
    rules: list[Acl], client: tuple[str, str], operation: Operation, group: str
) -> None:
    principal, host = client
    denying = group_acl(operation, group, principal=principal, permission=Permission.DENY, host=host)
    assert not Rules([*rules, denying]).decide(principal, host, operation, ResourceType.GROUP, group).is_allowed


@given(RULES, CLIENTS, GROUP_OPERATIONS, GROUPS)
def test_a_super_user_may_do_everything(
    rules: list[Acl], client: tuple[str, str], operation: Operation, group: str
) -> None:
    assert Rules(rules, [client[0]]).decide(*client, operation, ResourceType.GROUP, group).is_allowed


def allowed(rules: Rules, operation: Operation, group: str) -> bool:
    return rules.decide("User:ANONYMOUS", "10.0.0.1", operation, ResourceType.GROUP, group).is_allowed


def test_a_prefix_is_no_literal_name() -> None:
    literal = Rules([group_acl(Operation.READ, "orders")])
    prefixed = Rules([group_acl(Operation.READ, "orders", pattern=PatternType.PREFIXED)])
    everything = Rules([group_acl(Operation.READ, "*")])
    star_prefix = Rules([group_acl(Operation.READ, "*", pattern=PatternType.PREFIXED)])
    groups = ("orders", "orders-1", "order", "*x")
    assert [allowed(literal, Operation.READ, group) for group in groups] == [True, False, False, False]
    assert [allowed(prefixed, Operation.READ, group) for group in groups] == [True, True, False, False]
    assert [allowed(everything, Operation.READ, group) for group in groups] == [True, True, True, True]
    assert [allowed(star_prefix, Operation.READ, group) for group in groups] == [False, False, False, True]


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE])
def test_who_may_do_something_may_describe_but_not_the_other_way_round(operation: Operation) -> None:
    assert allowed(Rules([group_acl(operation, "g")]), Operation.DESCRIBE, "g")
    assert not allowed(Rules([group_acl(Operation.DESCRIBE, "g")]), operation, "g")
    # To deny something is not to deny its description.
    denied = group_acl(operation, "g", permission=Permission.DENY)
    assert allowed(Rules([group_acl(Operation.ALL, "g"), denied]), Operation.DESCRIBE, "g")


def test_what_a_broker_has_is_enough_for_all_calls_and_for_no_admin_command() -> None:
    broker = Rules([cluster_acl(Operation.CLUSTER_ACTION)])
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE):
        assert allowed(broker, operation, "any")
    for operation in (Operation.DESCRIBE, Operation.ALTER):
        decision = broker.decide("User:ANONYMOUS", "h", operation, ResourceType.CLUSTER, CLUSTER_NAME)
        assert decision == (False, None, "no rule allows it")


def test_the_rule_that_decides_is_named() -> None:
    rules = Rules([group_acl(Operation.ALL, "o", pattern=PatternType.PREFIXED), group_acl(Operation.READ, "x")])
    decision = rules.decide("User:ANONYMOUS", "h", Operation.WRITE, ResourceType.GROUP, "orders")
    assert (decision.is_allowed, decision.why) == (True, "User:ANONYMOUS may ALL groups that begin with 'o'")
    by_host = Rules([group_acl(Operation.ALL, "*", permission=Permission.DENY, host="10.0.0.1")])
    decision = by_host.decide("User:ANONYMOUS", "10.0.0.1", Operation.WRITE, ResourceType.GROUP, "orders")
    assert (decision.is_allowed, decision.why) == (False, "User:ANONYMOUS from 10.0.0.1 may not ALL any GROUP")
