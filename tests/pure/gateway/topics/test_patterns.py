"""Patterns of `gateway.topics`: names with wildcards, and never topics of the node itself."""

from __future__ import annotations

import pytest

from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.cluster_wide import why_not_cluster_wide
from holdfast.daemon.settings.file_env_flags import ConfigError
from holdfast.daemon.settings.models import Settings
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.topics.patterns import is_literal, match_topics
from holdfast.node_settings import SETTINGS, load_settings


def load(**flags: object) -> Settings:
    return load_settings(flags={"kafka.bootstrap.servers": "127.0.0.1:1"} | flags).settings


def test_a_node_is_no_gateway_unless_it_is_told() -> None:
    assert load().of(GatewaySettings).topics == ()
    assert load(**{"gateway.topics": "orders, pay*"}).of(GatewaySettings).topics == ("orders", "pay*")


@pytest.mark.parametrize(
    ("patterns", "name", "matches"),
    [
        (("orders",), "orders", True),
        (("orders",), "orders2", False),
        (("orders.v1",), "ordersxv1", False),
        (("orders.v?",), "orders.v1", True),
        (("orders.v?",), "orders.v10", False),
        (("*.v1", "payments"), "payments", True),
        (("*.v1", "payments"), "orders.v1", True),
        (("*",), "anything", True),
        ((), "anything", False),
        ((), "", True),
    ],
)
def test_only_wildcards_stand_for_other_characters(patterns: tuple[str, ...], name: str, matches: bool) -> None:
    assert bool(match_topics(patterns).fullmatch(name)) is matches


@pytest.mark.parametrize(("pattern", "literal"), [("orders", True), ("a.b-c_d", True), ("*", False), ("order?", False)])
def test_a_pattern_without_wildcards_is_a_name(pattern: str, literal: bool) -> None:
    assert is_literal(pattern) is literal


@pytest.mark.parametrize("pattern", ["order s", "orders[12]", "ör", "a" * 250, "^orders$", "(a|b)"])
def test_a_pattern_has_the_characters_of_names_and_wildcards(pattern: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**{"gateway.topics": pattern})
    assert "gateway.topics has the pattern" in str(refused.value)
    assert "wildcards * and ?" in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "topic"),
    [
        ({"gateway.topics": "orders,__holdfast_share_state"}, "__holdfast_share_state"),
        ({"gateway.topics": "__holdfast*"}, "__holdfast_share_state"),
        ({"gateway.topics": "__holdfast_share_state_config"}, "__holdfast_share_state_config"),
        ({"gateway.topics": "settings", "config.topic": "settings"}, "settings"),
        ({"gateway.topics": "snapshots", "snapshots.topic": "snapshots"}, "snapshots"),
        ({"gateway.topics": "state", "state_topic": "state"}, "state"),
    ],
)
def test_a_pattern_that_matches_a_topic_of_the_node_is_refused(flags: dict[str, object], topic: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**flags)
    assert f"which matches {topic}, a topic of the node itself" in str(refused.value)


@pytest.mark.parametrize("pattern", ["*", "h*", "*snapshots"])
def test_wildcards_leave_topics_of_the_node_out(pattern: str) -> None:
    own = ("__holdfast_share_state", "holdfast-share-snapshots", "__holdfast_share_state_config")
    assert load(**{"gateway.topics": pattern}).own_topics == own


def test_each_node_has_its_patterns_of_its_own_file() -> None:
    known = catalogue_of(SETTINGS).known
    assert (
        why_not_cluster_wide("gateway.topics", known)
        == "a node tells clients what it serves before it reads the config topic"
    )
    assert [name for name in known if name.startswith("gateway.") and why_not_cluster_wide(name, known)] == [
        "gateway.topics"
    ]
