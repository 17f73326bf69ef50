"""Settings of a tenant come from each source, and are known by name as those of the host are."""

import json
from pathlib import Path

import pytest

from holdfast.daemon.settings.catalogue import settings_with
from holdfast.daemon.settings.declarations import Component, Properties, count
from holdfast.daemon.settings.file_env_flags import (
    ConfigError,
    check_cluster_change,
    cluster_wide_name,
    describe,
    load_settings,
    running_settings,
    to_flags,
)
from holdfast.daemon.settings.reloading import take
from holdfast.daemon.tenant import Tables
from holdfast.kafka.connection_options import LiveProperties
from holdfast.share.tenant import SHARE_TENANT
from tests.world.timers import TIMERS, TimerSettings

BROKERS = {"kafka.bootstrap.servers": "broker:9092"}
NAME = "timers.ticks.max"
MODEL = Tables(SHARE_TENANT, [TIMERS]).settings


def test_setting_of_a_tenant_comes_from_each_source(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[timers]\nticks.max = 2\n")
    dotted = tmp_path / "dotted.toml"
    dotted.write_text('"timers.ticks.max" = 6\n')

    def ticks_max(config: Path | None = None, **sources: dict[str, str]) -> int:
        flags = BROKERS | sources.get("flags", {})
        loaded = load_settings(config, sources.get("environment"), flags, sources.get("cluster"), model=MODEL)
        assert loaded.warnings == ()
        return loaded.settings.of(TimerSettings).ticks_max

    variable = {"HOLDFAST_TIMERS_TICKS_MAX": "3"}
    assert ticks_max() == 10
    assert (ticks_max(path), ticks_max(dotted)) == (2, 6)
    assert ticks_max(path, environment=variable) == 3
    assert ticks_max(path, environment=variable, cluster={NAME: "4"}) == 4
    assert ticks_max(path, environment=variable, cluster={NAME: "4"}, flags={NAME: "5"}) == 5


def test_wrong_value_of_a_tenant_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags=BROKERS | {NAME: 0}, model=MODEL)
    assert caught.value.problems == (f"{NAME} is 0 (as a flag); it must be a whole number from 1 to 1000.",)
    with pytest.raises(ConfigError, match=r"did you mean timers\.ticks\.max\?"):
        load_settings(flags=BROKERS | {"timers.tick.max": 1}, model=MODEL)


def test_setting_of_a_tenant_that_a_node_has_not_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"^timers\.ticks\.max \(as a flag\) is no setting"):
        load_settings(flags=BROKERS | {NAME: 1})
    with pytest.raises(LookupError, match=r"^this node has no settings of TimerSettings$"):
        load_settings(flags=BROKERS).settings.of(TimerSettings)


def test_setting_of_a_tenant_is_shown_and_handed_on() -> None:
    settings = load_settings(flags=BROKERS | {NAME: 7}, model=MODEL).settings
    assert describe(settings)[NAME] == 7
    handed_on = json.loads(json.dumps(to_flags(settings)))
    assert load_settings(flags=handed_on, model=MODEL).settings == settings
    assert running_settings(describe(settings), MODEL)[NAME] == 7


def test_setting_of_a_tenant_survives_a_reload() -> None:
    loaded = load_settings(flags=BROKERS | {NAME: 7}, model=MODEL)
    taken = take(lambda: loaded, LiveProperties(loaded.settings.kafka.properties))
    assert taken is not None
    assert taken.settings.of(TimerSettings).ticks_max == 7


def test_setting_of_a_tenant_may_hold_for_all_nodes() -> None:
    assert cluster_wide_name(NAME, MODEL) == cluster_wide_name("timers.timers.ticks.max", MODEL) == NAME
    check_cluster_change({}, {NAME: "1"}, MODEL)
    with pytest.raises(ConfigError, match="a whole number from 1 to 1000"):
        check_cluster_change({}, {NAME: "0"}, MODEL)


class _Repeated(Component):
    node_id: int = count(1, "A name that the host has.")


class _SameVariable(Component):
    config_topic: int = count(1, "The variable of `config.topic`.")


class _AnyProperty(Properties):
    pass


@pytest.mark.parametrize(
    ("component", "text"),
    [
        (_Repeated, "settings node_id and node_id are both set by HOLDFAST_NODE_ID"),
        (_SameVariable, "settings config.topic and config_topic are both set by HOLDFAST_CONFIG_TOPIC"),
        (_AnyProperty, "settings component timers takes any name; give it a name_prefix, or declare each setting"),
    ],
)
def test_component_with_a_name_of_another_is_refused(component: type[Component], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        settings_with({"timers": component})
