"""Settings of a tenant come from each source, and are known by name as those of the host are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.daemon.settings.catalogue import catalogue_of, settings_with
from holdfast.daemon.settings.cluster_wide import why_not_cluster_wide
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
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.reloading import take
from holdfast.daemon.tenant import Tables, Tenant
from holdfast.gateway.tenant import GATEWAY_TENANT
from holdfast.kafka.connection_options import LiveProperties
from holdfast.node_settings import SETTINGS
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
        load_settings(flags=BROKERS | {NAME: 1}, model=Settings)
    with pytest.raises(LookupError, match=r"^this node has no settings of TimerSettings$"):
        load_settings(flags=BROKERS, model=Settings).settings.of(TimerSettings)


@pytest.mark.parametrize("tenant", [SHARE_TENANT, GATEWAY_TENANT], ids=lambda tenant: tenant.name)
def test_host_alone_knows_no_setting_of_a_tenant(tenant: Tenant[Any]) -> None:
    of_host, of_both = catalogue_of(Settings), catalogue_of(settings_with(tenant.settings))
    names = of_both.known.keys() - of_host.known.keys()
    assert names
    assert {of_both.known[name].component for name in names} <= tenant.settings.keys()
    assert tenant.settings.keys() <= of_both.tables | {each.component for each in of_both.open_components}
    assert not of_host.tables & tenant.settings.keys()
    for name in names:
        with pytest.raises(ConfigError, match=rf"^{re.escape(name)} \(as a flag\) is no setting"):
            load_settings(flags=BROKERS | {name: 1}, model=Settings)
        assert why_not_cluster_wide(name, of_host.known) == ""


def test_settings_of_share_state_are_of_its_tenant_alone() -> None:
    names = {
        "share.coordinator.write.timeout.ms",
        "share.coordinator.snapshot.update.records.per.snapshot",
        "share_partitions_max",
        "share_partitions_per_group_max",
        "state_bytes_max",
        "group_id_bytes_max",
        "deleted_topic_grace_ms",
        "deleted_topic_max_share",
        "group_metrics_groups",
        "group_metrics_interval_ms",
        "group_metrics_pairs_max",
        "group_metrics_ages_max",
    }
    assert catalogue_of(MODEL).known.keys() - catalogue_of(Settings).known.keys() == names | {NAME}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("node_idd", "node_id"),
        ("deleted_topics_grace_ms", "deleted_topic_grace_ms"),
        ("share.coordinator.write.timeout", "share.coordinator.write.timeout.ms"),
        ("gateway.share.partition.max", "gateway.share.partitions.max"),
        ("gateway.topic", "gateway.topics"),
    ],
)
def test_misspelt_setting_is_compared_with_those_of_all_tenants(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(misspelt)} .*; did you mean {re.escape(meant)}\?$"):
        load_settings(flags=BROKERS | {misspelt: 1}, model=SETTINGS)
    with pytest.raises(ConfigError, match=rf"^{re.escape(misspelt)} .*; did you mean {re.escape(meant)}\?$"):
        cluster_wide_name(misspelt, SETTINGS)
    variable = "HOLDFAST_" + re.sub(r"\W", "_", meant[:-1]).upper()
    (warning,) = load_settings(environment={variable: "1"}, flags=BROKERS, model=SETTINGS).warnings
    assert warning.endswith(f"Did you mean {catalogue_of(SETTINGS).known[meant].variable}?")


def test_rule_between_host_and_tenant_is_kept_once_both_are_there() -> None:
    flags = BROKERS | {"metadata_refresh_interval_ms": 700_000}
    assert load_settings(flags=flags, model=Settings).settings.metadata.metadata_refresh_interval_ms == 700_000
    with pytest.raises(ConfigError) as caught:
        load_settings(flags=flags, model=MODEL)
    why = "deleted_topic_grace_ms must be at least metadata_refresh_interval_ms, or one answer would decide."
    assert caught.value.problems == (why,)


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
