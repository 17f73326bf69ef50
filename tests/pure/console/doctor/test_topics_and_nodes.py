"""What the doctor says of topics, by the node's own checks, and of nodes, by what they answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.console.doctor import nodes
from holdfast.console.doctor.findings import Level, Subject, warning
from holdfast.console.doctor.nodes import check_node, check_others, judge_lines, judge_node, judge_others
from holdfast.console.doctor.topics import judge_fatal, judge_topic, missing_log
from holdfast.daemon.topics.state_topic import Finding as TopicFinding
from holdfast.distribution import VERSION
from holdfast.node_settings import load_settings

SETTINGS: Final = load_settings(flags={"kafka.bootstrap.servers": "a:1"}).settings
READY: Final[dict[str, Any]] = {"node_id": 1, "version": VERSION, "is_ready": True, "why_not_ready": None}
ADDRESS: Final = "127.0.0.1:9492"


def test_a_topic_is_right_or_weak_or_fatal_with_its_command() -> None:
    assert judge_topic("it fits", ())[0].level is Level.RIGHT
    weak = TopicFinding("topic log has min.insync.replicas=1", "kafka-configs.sh --alter")
    [found] = judge_topic("it fits", (weak,))
    assert (found.level, found.text, found.remedy) == (Level.WARNING, weak.problem, weak.command)
    found = judge_fatal(str(weak))
    assert (found.level, found.text, found.remedy) == (Level.WRONG, weak.problem, weak.command)
    found = judge_fatal("topic x has 3 partitions and the state topic 4.")
    assert (found.text, "the page Alarms and alerts" in found.remedy) == (
        "topic x has 3 partitions and the state topic 4",
        True,
    )


def test_a_topic_that_the_brokers_that_are_up_cannot_hold_is_doubted() -> None:
    found = missing_log(SETTINGS, 3)
    assert (found.level, "50 partitions in 3 copies" in found.text) == (Level.RIGHT, True)
    found = missing_log(SETTINGS, 1)
    assert (found.level, found.text.endswith("a node makes it with 3 copies, and 1 broker is up")) == (
        Level.WARNING,
        True,
    )
    assert missing_log(SETTINGS, 0).level is Level.RIGHT
    assert found.remedy == (
        "if these are all brokers, add some, or lower what they cannot hold: --set share.coordinator.state.topic.replication.factor=1 "
        "--set share.coordinator.state.topic.min.isr=1"
    )


@pytest.mark.parametrize(
    ("status", "why_not_free", "levels", "text"),
    [
        (READY, "in use", [Level.RIGHT], "node 1 answers"),
        (READY | {"version": "0.0.1"}, "in use", [Level.RIGHT, Level.WARNING], "version 0.0.1"),
        (
            READY | {"is_ready": False, "why_not_ready": "it loads"},
            "",
            [Level.RIGHT, Level.WRONG],
            "not ready: it loads",
        ),
        ("refused", "", [Level.WARNING], "no node runs"),
        ("refused", "Address already in use", [Level.WRONG], "taken (Address already in use)"),
        ("refused", "not here", [Level.WRONG], "no node answers"),
    ],
)
def test_a_node_answers_or_its_port_is_free_or_taken(
    status: dict[str, Any] | str, why_not_free: str, levels: list[Level], text: str
) -> None:
    found = judge_node(ADDRESS, status, why_not_free)
    assert [each.level for each in found] == levels
    assert text in found[-1].text
    assert all(each.remedy for each in found if each.level is not Level.RIGHT)


def test_other_nodes_are_reached_ready_and_of_one_version() -> None:
    assert judge_others(VERSION, {"node 2 at b:1": READY}, [])[0].level is Level.RIGHT
    not_ready = READY | {"is_ready": False, "why_not_ready": "it loads"}
    found = judge_others("0.2", {"node 2 at b:1": not_ready, "node 3 at c:1": "no answer."}, ["4"])
    assert [(each.level, each.text) for each in found] == [
        (Level.WARNING, "node 2 at b:1 is not ready: it loads"),
        (Level.WRONG, "node 3 at c:1 does not answer (no answer)"),
        (Level.WARNING, f"the nodes are several versions: {', '.join(sorted(('0.2', VERSION)))}"),
        (Level.WARNING, "node 4 has left and is waited for"),
    ]


async def test_what_listens_at_the_port_and_is_no_node_is_in_the_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        subject = Subject(SETTINGS, f"127.0.0.1:{other.getsockname()[1]}", 150)
        [found] = await check_node(subject)
        assert (found.level, "is taken" in found.text) == (Level.WRONG, True)
        assert (await check_others(subject))[0].level is Level.RIGHT
    [found] = await check_node(subject)
    assert (found.level, "the port is free" in found.text) == (Level.WARNING, True)


def test_the_doctor_agrees_with_what_the_node_warned_of_and_still_holds() -> None:
    lines = [
        '{"event": "snapshot_topic_shared", "level": "warning", "timestamp": "t1", "topic": "s", "state_topic_id": "x"}',
        '{"event": "brokers_lost", "level": "warning", "timestamp": "t2"}',
        '{"event": "snapshot_topic_shared", "level": "warning", "timestamp": "t3", "topic": "s", "state_topic_id": "y"}',
        '{"event": "cut off',
    ]
    (found,) = judge_lines(lines)
    assert found == warning(
        "the node warned at t3: snapshot_topic_shared (topic s, state_topic_id y)",
        "see snapshot_topic_shared in the page Log events",
    )
    assert [each.level.value for each in judge_lines(lines[1:2])] == ["right"]


def test_every_event_that_lasts_is_one_of_a_warning() -> None:
    page = (Path(__file__).parents[4] / "docs" / "log-events.md").read_text()
    assert [event for event in nodes._LASTING if f"| `{event}` | warning |" not in page] == []
