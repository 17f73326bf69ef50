"""The settings of the gateway, from any source, and the configs of groups by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.file_env_flags import ConfigError, describe, to_flags
from holdfast.daemon.settings.models import Settings
from holdfast.delivery.group_config import DEFAULT, EARLIEST
from holdfast.gateway.settings import GatewaySettings, GroupSettings
from holdfast.node_settings import SETTINGS, load_settings
from holdfast.tenants import TABLES

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1"}
LOCK = "share.record.lock.duration.ms"


def load(flags: Mapping[str, object], file: Path | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(file, environment, KAFKA | dict(flags)).settings


def test_configs_of_a_group_stand_on_those_of_all_groups(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[gateway]\ntopics = ["orders"]\n[gateway.groups.default]\n"share.auto.offset.reset" = "earliest"\n'
        '[gateway.groups."mail.out"]\n"share.record.lock.duration.ms" = 60000\n'
    )
    settings = load({f"gateway.groups.late.{LOCK}": "15000"}, file, {"HOLDFAST_GROUP_SHARE_MAX_SIZE": "7"})
    config_of = settings.of(GroupSettings).configs()
    assert (config_of("any").auto_offset_reset, config_of("any").record_lock_duration_ms) == (EARLIEST, 30_000)
    assert (config_of("mail.out").auto_offset_reset, config_of("mail.out").record_lock_duration_ms) == (
        EARLIEST,
        60_000,
    )
    assert config_of("late").record_lock_duration_ms == 15_000
    assert settings.of(GatewaySettings).topics == ("orders",)
    shown = describe(settings)
    assert shown["gateway.groups.mail.out.share.record.lock.duration.ms"] == "60000"
    assert load(to_flags(settings)) == settings


def test_without_configs_groups_have_kafkas_defaults() -> None:
    assert load({}).of(GroupSettings).configs()("any") == DEFAULT


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (f"a.{LOCK}", "1", f"gateway.groups.a.{LOCK} is '1'; it must be a number from 15000 to 60000"),
        (f"default.{LOCK}", "1", f"gateway.groups.default.{LOCK} is '1'; it must be a number from 15000 to 60000"),
        (
            "a.share.lock",
            "1",
            "gateway.groups.a.share.lock names no config of a group; it is gateway.groups.GROUP.CONFIG",
        ),
        (LOCK, "1", f"gateway.groups.{LOCK} names no config of a group"),
        ("a.share.auto.offset.reset", "first", "it must be latest, earliest, or by_duration: and an ISO-8601 duration"),
    ],
)
def test_wrong_config_of_a_group_is_one_line_that_says_what_is_right(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({f"gateway.groups.{name}": value})
    (problem,) = refused.value.problems
    assert text in problem


def test_pattern_that_matches_a_topic_of_the_node_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gateway.topics has the pattern st\*, which matches state"):
        load({"gateway.topics": "st*", "state_topic": "state"})
    assert load({"gateway.topics": "*"}).of(GatewaySettings).topics == ("*",)


def test_settings_without_tenants_are_those_with_them() -> None:
    assert catalogue_of(SETTINGS).by_variable == catalogue_of(TABLES.settings).by_variable
    assert catalogue_of(SETTINGS).open_components == catalogue_of(TABLES.settings).open_components
