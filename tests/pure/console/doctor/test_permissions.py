"""What the doctor says of ACLs, from the operations that brokers name."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from holdfast.console.doctor.findings import Level
from holdfast.console.doctor.permissions import Operation, Resource, _operations, judge_permissions, needed
from holdfast.node_settings import load_settings

SETTINGS: Final = load_settings(
    flags={"kafka.bootstrap.servers": "a:1", "state_topic": "log", "membership": "group", "log_readers": "audit"}
).settings
LOG: Final = Resource("topic", "log")
ALL: Final = frozenset(range(3, 13))


def judged(**changes: frozenset[int] | None) -> list[tuple[Level, str, str]]:
    """Judge with everything allowed but for the resources of these names."""
    wanted = needed(SETTINGS)
    allowed = {resource: changes.get(resource.name.replace("-", "_"), ALL) for resource in wanted}
    return [
        (each.level, each.text, each.remedy) for each in judge_permissions(wanted, allowed, True, "log", "holdfast")
    ]


def test_a_node_needs_what_the_page_of_operations_says() -> None:
    assert {(each.kind, each.name): [*map(int, operations)] for each, operations in needed(SETTINGS).items()} == {
        ("topic", "log"): [8, 10, 3, 4, 6],
        ("topic", SETTINGS.config_topic_name): [8, 3],
        ("topic", "holdfast-share-snapshots"): [8, 10, 3, 4],
        ("group", "audit"): [8],
        ("group", "holdfast-log"): [8, 3],
    }


def test_what_is_lacking_is_named_with_the_command_that_grants_it() -> None:
    assert judged(log=ALL - {Operation.WRITE, Operation.DESCRIBE_CONFIGS}, holdfast_log=frozenset()) == [
        (
            Level.WRONG,
            "the node may not DescribeConfigs, Write the topic log",
            "kafka-acls.sh --add --allow-principal User:holdfast --operation DescribeConfigs --operation Write --topic log",
        ),
        (
            Level.WRONG,
            "the node may not Describe, Read the group holdfast-log",
            "kafka-acls.sh --add --allow-principal User:holdfast --operation Describe --operation Read --group holdfast-log",
        ),
    ]


def test_what_is_not_there_is_not_judged_and_all_else_is_enough() -> None:
    [(level, text, _)] = judged(audit=None)
    assert (level, text) == (
        Level.RIGHT,
        "the brokers allow all that the node needs, of 4 topics and groups that are there",
    )


def test_a_log_that_is_not_there_must_be_made_by_somebody() -> None:
    wanted = {LOG: (Operation.READ,)}
    [found] = judge_permissions(wanted, {}, False, "log", "holdfast")
    assert (found.level, "--operation Create --topic log" in found.remedy) == (Level.WRONG, True)
    assert judge_permissions(wanted, {}, True, "log", "holdfast")[0].level is Level.UNKNOWN
    assert judge_permissions(wanted, {}, None, "log", "holdfast")[0].level is Level.UNKNOWN


def test_operations_are_bits_and_a_refusal_is_none_of_them() -> None:
    assert _operations(ErrorCode.none, 1 << 3 | 1 << 8) == frozenset({3, 8})
    assert _operations(ErrorCode.topic_authorization_failed, -(2**31)) == frozenset()
    assert _operations(ErrorCode.unknown_topic_or_partition, -(2**31)) is None
    assert _operations(ErrorCode.none, -(2**31)) is None
