"""What the config topic holds among the other sources of settings: who wins, what loses, and what keeps no node from its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.file_env_flags import ConfigError, Overruled, check_cluster_change, cluster_wide_name
from holdfast.node_settings import SETTINGS, load_settings

BROKERS = {"kafka.bootstrap.servers": "broker:9092"}


def refused(cluster: dict[str, str]) -> dict[str, str]:
    return dict(load_settings(flags=BROKERS, cluster=cluster).refused)


def test_the_config_topic_wins_over_file_and_environment_and_loses_against_a_flag(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("loads_max = 2\nparked_writes_max = 2\nrequest_timeout_ms = 2\n")
    environment = {"HOLDFAST_PARKED_WRITES_MAX": "3", "HOLDFAST_TICK_MS": "3"}
    cluster = {
        "loads_max": "4",
        "parked_writes_max": "4",
        "request_timeout_ms": "2",
        "tick_ms": "4",
        "alarm_backoff_ms": "4",
    }
    loaded = load_settings(path, environment, BROKERS | {"tick_ms": 5}, cluster)
    load, log = loaded.settings.load, loaded.settings.log
    assert (load.loads_max, log.parked_writes_max, log.request_timeout_ms, load.tick_ms, load.alarm_backoff_ms) == (
        4,
        4,
        2,
        5,
        4,
    )
    assert set(loaded.overruled) == {
        Overruled("loads_max", "in node.toml", "in the config topic"),
        Overruled("parked_writes_max", "in node.toml", "in the config topic"),
        Overruled("parked_writes_max", "from HOLDFAST_PARKED_WRITES_MAX", "in the config topic"),
        Overruled("tick_ms", "from HOLDFAST_TICK_MS", "as a flag"),
        Overruled("tick_ms", "in the config topic", "as a flag"),
    }
    assert (loaded.refused, loaded.warnings) == ({}, ())


def test_a_wrong_value_is_left_out_alone() -> None:
    loaded = load_settings(flags=BROKERS, cluster={"loads_max": "many", "tick_ms": "7", "log_level": "loud"})
    assert (loaded.settings.load.loads_max, loaded.settings.load.tick_ms) == (64, 7)
    assert loaded.settings.logging.log_level == "info"
    assert loaded.refused == {
        "loads_max": "loads_max is 'many' (in the config topic); it must be a whole number from 1 to 10000.",
        "log_level": "log_level is 'loud' (in the config topic); it must be one of debug, info, warning, error.",
    }


def test_values_that_do_not_go_with_the_nodes_own_are_left_out_together() -> None:
    loaded = load_settings(
        flags=BROKERS | {"retry_backoff_max_ms": 300}, cluster={"retry_backoff_ms": "400", "tick_ms": "7"}
    )
    assert (loaded.settings.load.retry_backoff_ms, loaded.settings.load.tick_ms) == (200, 50)
    assert set(loaded.refused) == {"retry_backoff_ms", "tick_ms"}
    assert set(loaded.refused.values()) == {"retry_backoff_ms must be at most retry_backoff_max_ms."}


def test_a_node_whose_own_settings_are_wrong_says_so_whatever_the_config_topic_holds() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags=BROKERS | {"loads_max": 0}, cluster={"tick_ms": "7", "log_level": "loud"})
    assert caught.value.problems == ("loads_max is 0 (as a flag); it must be a whole number from 1 to 10000.",)


def test_what_this_version_does_not_know_or_each_node_has_for_itself_is_refused_and_the_rest_taken() -> None:
    cluster = {
        "moons_max": "12",
        "listen": "0.0.0.0:1",
        "kafka.ssl.key.password": "x",
        "config.topic": "other",
        "share.coordinator.threads": "3",
        "load.tick_ms": "7",
        "tick_ms": "8",
    }
    loaded = load_settings(flags=BROKERS, cluster=cluster)
    assert loaded.settings.load.tick_ms == 8
    assert set(loaded.refused) == cluster.keys() - {"tick_ms"}
    assert loaded.refused["moons_max"].startswith("moons_max is no setting; ")
    assert loaded.refused["listen"] == "listen cannot be set for all nodes: each node has an address of its own."
    assert loaded.refused["load.tick_ms"] == "load.tick_ms is another spelling of tick_ms."
    assert "x" not in loaded.settings.kafka.properties.values()


def test_no_setting_by_which_a_node_finds_the_topic_is_taken_from_it() -> None:
    finding = {"state_topic", *(name for name in catalogue_of(SETTINGS).known if name.startswith("config."))}
    for name in finding:
        with pytest.raises(ConfigError, match="cannot be set for all nodes: a node finds the config topic by it"):
            cluster_wide_name(name, SETTINGS)
    assert cluster_wide_name("load.tick_ms", SETTINGS) == "tick_ms"


def test_the_default_name_follows_the_state_topic_and_a_topic_of_another_use_is_refused() -> None:
    def name(**flags: object) -> str:
        return load_settings(flags=BROKERS | flags).settings.config_topic_name

    assert (name(), name(state_topic="jobs")) == ("__holdfast_share_state_config", "jobs_config")
    assert name(**{"config.topic": "ours"}) == "ours"
    for other in ("__holdfast_share_state", "holdfast-share-snapshots"):
        with pytest.raises(ConfigError, match="name a topic of its own"):
            name(**{"config.topic": other})


# ---- changes -------------------------------------------------------------------------------------------------------


def problems_of(before: dict[str, str], **wanted: str | None) -> tuple[str, ...]:
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    try:
        check_cluster_change(before, after, SETTINGS)
    except ConfigError as error:
        return error.problems
    return ()


def test_a_change_is_refused_for_what_it_would_break_and_for_nothing_else() -> None:
    related = {"fetch_wait_ms": "600", "leader_silence_max_ms": "6000"}
    (problem,) = problems_of({}, fetch_wait_ms="600")
    assert problem.startswith("leader_silence_max_ms is 3000 and fetch_wait_ms 600; ")
    assert problems_of({}, **related) == ()
    (problem,) = problems_of(related, leader_silence_max_ms=None)
    assert problem.startswith("leader_silence_max_ms is 3000")
    assert problems_of(related, fetch_wait_ms=None) == ()

    broken = {"moons_max": "12", "loads_max": "0"}
    assert problems_of(broken, tick_ms="7") == ()
    assert problems_of(broken, moons_max=None, loads_max=None) == ()
    (problem,) = problems_of(broken, loads_max="-1")
    assert problem.startswith("loads_max is '-1' (in the config topic)")


def test_every_setting_that_may_hold_for_all_nodes_can_be_set_to_its_default() -> None:
    settings = SETTINGS.model_validate({"kafka": {"properties": {"bootstrap.servers": "a:1"}}})
    for name, known in catalogue_of(SETTINGS).known.items():
        try:
            cluster_wide_name(name, SETTINGS)
        except ConfigError:
            continue
        value = getattr(getattr(settings, known.component) if known.component else settings, known.attribute)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        assert refused({name: text}) == {}, name


@pytest.mark.parametrize(
    "name",
    [
        "spark.driver.extraJavaOptions",
        "spark.jars",
        "spark.pyspark.python",
        "compaction.master",
        "compaction.checkpoint.dir",
        "compaction.history.dir",
    ],
)
def test_nobody_runs_programs_of_his_own_on_a_nodes_host_by_the_config_topic(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set for all nodes"):
        cluster_wide_name(name, SETTINGS)
    assert name in refused({name: "spark://host:7077"})
