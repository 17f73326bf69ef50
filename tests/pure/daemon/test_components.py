"""Settings reach components by their names, and have their defaults in one place."""

import dataclasses
from typing import Any

import pytest

from holdfast.compaction.config import CompactionConfig
from holdfast.daemon.components import (
    partition_config,
    quiet_log_config,
    state_log_config,
)
from holdfast.daemon.settings.by_name import configure, field_names
from holdfast.daemon.settings.components.snapshots import CompactionSettings
from holdfast.daemon.settings.declarations import Component, Properties
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.node_settings import SETTINGS
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.sending.accumulator import AccumulatorConfig
from holdfast.runtime.kafka_log.sending.pace import PaceConfig
from holdfast.runtime.kafka_log.sending.sender import SenderConfig
from holdfast.runtime.settings import LogIdentity, PartitionConfig
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.config import ShardConfig
from holdfast.share.settings import ShareSettings
from holdfast.share.state_bounds import StateBounds, StateTotals

TOPIC = StateTopic("state", b"t" * 16, 3, 1, 1_048_588)
OPTIONS = ConnectionOptions(bootstrap=(("127.0.0.1", 1),))
CONFIGS = (
    AccumulatorConfig,
    CompactionConfig,
    FetcherConfig,
    KafkaLogConfig,
    PaceConfig,
    PartitionConfig,
    SenderConfig,
    ShardConfig,
    StateBounds,
)


def parts() -> dict[str, type[Component]]:
    """Return the parts of the settings, by their names."""
    return {
        name: field.annotation
        for name, field in SETTINGS.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, Component)
        and not issubclass(field.annotation, Properties)
    }


def own_values() -> Settings:
    """Return settings of which none that a component here has is at its default."""
    log = {
        "append_linger_ms": 7,
        "busy_poll_us": 501,
        "codec": "kafka",
        "fetch_wait_ms": 101,
        "leader_silence_max_ms": 3_001,
        "message_timeout_ms": 31_000,
        "parked_writes_max": 14,
        "producer_queue_bytes_max": 3_000_001,
        "request_timeout_ms": 10_001,
        "state_topic_compression_codec": 3,
    }
    load = {
        "alarm_backoff_ms": 18,
        "load_timeout_ms": 1_002,
        "loads_max": 65,
        "retry_backoff_max_ms": 202,
        "retry_backoff_ms": 201,
    }
    share = {
        "group_id_bytes_max": 19,
        "share_partitions_max": 21,
        "share_partitions_per_group_max": 20,
        "snapshot_update_records_per_snapshot": 22,
        "state_bytes_max": 4_000_001,
        "write_timeout_ms": 5_001,
    }
    kafka = {"properties": {"bootstrap.servers": "127.0.0.1:1"}}
    return SETTINGS.model_validate({"kafka": kafka, "log": log, "load": load, "share": share})


def default_of(config: Any, name: str) -> object:
    """Return what a field has that nobody gives, or MISSING."""
    if issubclass(config, tuple):
        return config._field_defaults.get(name, dataclasses.MISSING)
    return next(each.default for each in dataclasses.fields(config) if each.name == name)


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_a_setting_has_its_default_there_and_nowhere_else(config: type) -> None:
    # Two settings of this name belong to other components: the pause between Produces and Fetches is no setting.
    own = {"retry_backoff_ms"} if config in (FetcherConfig, SenderConfig) else set()
    settings = {name for component in parts().values() for name in component.model_fields} - own
    repeated = [
        name for name in field_names(config) if name in settings and default_of(config, name) is not dataclasses.MISSING
    ]
    assert repeated == []


def test_each_component_gets_the_settings_of_its_names() -> None:
    settings = own_values()
    given = (
        state_bounds(settings),
        partition_config(
            settings,
            LogIdentity("cluster", bytes(16), 3),
            "127.0.0.1:9095",
            settings.of(ShareSettings).write_timeout_ms,
        ),
        state_log_config(settings, TOPIC, OPTIONS),
        shard_config(settings, TOPIC, StateTotals(state_bounds(settings))),
    )
    for config in given:
        for part in (settings.of(ShareSettings), settings.load, settings.log):
            defaults = type(part)()
            for name in (set(field_names(type(config))) & set(type(part).model_fields)) - {"codec"}:
                assert getattr(config, name) == getattr(part, name) != getattr(defaults, name), name


def test_topics_that_seldom_change_are_read_like_the_log_with_a_longer_wait() -> None:
    settings = own_values()
    log = state_log_config(settings, TOPIC, OPTIONS)
    snapshot_log = quiet_log_config(settings, settings.snapshots.topic, OPTIONS)
    config_log = quiet_log_config(settings, settings.config_topic_name, OPTIONS)
    assert snapshot_log.topic == settings.snapshots.topic
    assert log.fetch_wait_ms < snapshot_log.fetch_wait_ms == config_log.fetch_wait_ms == 500
    differing = {name for name in field_names(KafkaLogConfig) if getattr(log, name) != getattr(snapshot_log, name)}
    assert differing == {"topic", "topic_id", "message_bytes_max", "fetch_wait_ms", "busy_poll_us"}
    assert snapshot_log.busy_poll_us == config_log.busy_poll_us == 0  # no client waits for these


def test_broker_that_only_holds_fetches_of_the_snapshot_topic_never_passes_for_silent() -> None:
    settings = own_values()
    hasty = settings.model_copy(update={"log": settings.log.model_copy(update={"leader_silence_max_ms": 1_000})})
    for topic in (hasty.snapshots.topic, hasty.config_topic_name):
        assert quiet_log_config(hasty, topic, OPTIONS).fetch_wait_ms == 250


@dataclasses.dataclass
class _Places:
    connections_max: int


def test_a_name_of_two_settings_is_given_by_hand() -> None:
    settings = own_values()
    with pytest.raises(ValueError, match="connections_max is the name of 2 settings"):
        configure(_Places, settings.limits, settings.http)
    with pytest.raises(TypeError, match="bootstrap_servers"):
        configure(CompactionConfig, CompactionSettings())
