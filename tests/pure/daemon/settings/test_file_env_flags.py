"""Settings: sources, names, bounds, relations, and the page that documents them."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.components.listener import ListenerSettings
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.declarations import Properties
from holdfast.daemon.settings.file_env_flags import ConfigError, describe, expected, to_flags
from holdfast.daemon.settings.models import KafkaSettings, Settings
from holdfast.node_settings import SETTINGS, load_settings
from holdfast.share.settings import DeletedTopicSettings, ShareSettings
from tools.settings_reference import render_reference

BROKERS = {"kafka.bootstrap.servers": "broker:9092"}


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]  # a test names its sources by word
    return caught.value.problems


def load_toml(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return load_settings(path, flags=BROKERS).settings


def test_the_defaults_are_those_of_the_design() -> None:
    settings = load_settings(flags=BROKERS).settings
    assert settings.listener.listen_address == ("127.0.0.1", 9492)
    assert settings.log.state_topic == "__holdfast_share_state"
    assert settings.log.state_topic_num_partitions == 50
    assert settings.log.parked_writes_max == 10_000
    assert settings.log.message_timeout_ms == 30_000
    assert settings.of(ShareSettings).write_timeout_ms == 5_000
    assert settings.of(ShareSettings).snapshot_update_records_per_snapshot == 500
    assert settings.of(DeletedTopicSettings).deleted_topic_grace_ms == 600_000


def test_a_later_source_wins_over_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'kafka.bootstrap.servers = "file:1"\nnode_id = 2\n[log]\nparked_writes_max = 2\nmessage_timeout_ms = 2000\n'
    )
    environment = {
        "HOLDFAST_CONFIG": str(path),
        "HOLDFAST_PARKED_WRITES_MAX": "3",
        "HOLDFAST_MESSAGE_TIMEOUT_MS": "3000",
    }
    settings = load_settings(environment=environment, flags={"message_timeout_ms": 4000, "node_id": None}).settings
    assert settings.node_id == 2
    assert settings.log.parked_writes_max == 3
    assert settings.log.message_timeout_ms == 4000
    assert settings.log.request_timeout_ms == LogSettings().request_timeout_ms


@pytest.mark.parametrize(
    "text",
    [
        '"share.coordinator.write.timeout.ms" = 7',
        "share.coordinator.write.timeout.ms = 7",
        "[share.coordinator]\nwrite.timeout.ms = 7",
        '[kafka]\n"share.coordinator.write.timeout.ms" = 7',
        '[share]\n"share.coordinator.write.timeout.ms" = 7',
    ],
)
def test_a_name_of_kafkas_may_be_written_as_toml_allows(tmp_path: Path, text: str) -> None:
    assert load_toml(tmp_path, text).of(ShareSettings).write_timeout_ms == 7


@pytest.mark.parametrize("text", ['codec = "kafka"', '[log]\ncodec = "kafka"', 'log.codec = "kafka"'])
def test_a_table_only_groups(tmp_path: Path, text: str) -> None:
    assert load_toml(tmp_path, text).log.codec == "kafka"


def test_properties_of_the_client_are_passed_through_as_text(tmp_path: Path) -> None:
    settings = load_toml(
        tmp_path, '[kafka]\n"socket.keepalive.enable" = true\n"fetch.max.bytes" = 1000\nssl.ca.location = "x"'
    )
    assert settings.kafka.properties == {
        "bootstrap.servers": "broker:9092",
        "socket.keepalive.enable": "true",
        "fetch.max.bytes": "1000",
        "ssl.ca.location": "x",
    }


def test_names_of_compaction_have_dots_and_spark_has_its_own(tmp_path: Path) -> None:
    settings = load_toml(
        tmp_path,
        """
        [compaction]
        run = true
        checkpoint.dir = "/var/lib/holdfast/checkpoint"
        trigger.interval.ms = 500
        [spark]
        executor.memory = "4g"
        dynamicAllocation.enabled = true
        """,
    )
    assert settings.compaction.run
    assert settings.compaction.checkpoint_dir == "/var/lib/holdfast/checkpoint"
    assert settings.compaction.trigger_interval_ms == 500
    assert settings.spark.properties == {"spark.executor.memory": "4g", "spark.dynamicAllocation.enabled": "true"}
    by_variable = load_settings(environment={"HOLDFAST_COMPACTION_CHECKPOINT_DIR": "/c"}, flags=BROKERS)
    assert by_variable.settings.compaction.checkpoint_dir == "/c"


def test_settings_written_as_flags_are_the_same_settings_again() -> None:
    flags = {
        "kafka.sasl.password": "open sesame",
        "log_readers": "audit,spark",
        "compaction.checkpoint.dir": "/c",
        "share.coordinator.write.timeout.ms": 7,
        "spark.executor.memory": "4g",
    }
    settings = load_settings(flags=BROKERS | flags).settings
    assert load_settings(flags=json.loads(json.dumps(to_flags(settings)))).settings == settings


def test_the_environment_sets_names_of_kafka_and_of_the_client() -> None:
    settings = load_settings(
        environment={
            "HOLDFAST_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
            "HOLDFAST_SHARE_COORDINATOR_WRITE_TIMEOUT_MS": "9",
            "HOLDFAST_LOG_READERS": "spark, audit",
            "HOLDFAST_BOOTSTRAP": "elsewhere:1",
            "HOLDFAST_BROKER": "docker",
            "HOLDFAST_ADDRESS": "node-1:9492",
            "PATH": "not ours",
        }
    )
    assert settings.warnings == ()
    assert settings.settings.of(ShareSettings).write_timeout_ms == 9
    assert settings.settings.pruning.log_readers == ("spark", "audit")
    assert settings.settings.kafka.properties == {"bootstrap.servers": "broker:9092"}


def test_an_unknown_variable_is_a_warning_with_the_nearest_one() -> None:
    loaded = load_settings(environment={"HOLDFAST_SERVICE_HOST": "10.0.0.1", "HOLDFAST_NODE_IDD": "3"}, flags=BROKERS)
    assert loaded.warnings == (
        "The environment variable HOLDFAST_NODE_IDD sets nothing. Did you mean HOLDFAST_NODE_ID?",
        "The environment variable HOLDFAST_SERVICE_HOST sets nothing.",
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("parked_write_max", "parked_write_max (as a flag) is no setting; did you mean parked_writes_max?"),
        ("log.codecs", "log.codecs (as a flag) is no setting; did you mean codec?"),
        ("listener.listne", "did you mean listen?"),
        ("snapshots.topics", "did you mean snapshots.topic?"),
        (
            "kafak.bootstrap.servers",
            "kafak.bootstrap.servers (as a flag) is no setting; did you mean a name that begins with 'kafka.'?",
        ),
        ("write_timeout_ms", "did you mean share.coordinator.write.timeout.ms?"),
        ("kafka.share.coordinator.treads", "did you mean share.coordinator.threads?"),
        (
            "zebra",
            "zebra (as a flag) is no setting; properties of the Kafka client begin with 'kafka.', those of Spark with 'spark.'.",
        ),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_one(name: str, problem: str) -> None:
    (found,) = problems_of(flags={**BROKERS, name: 1})
    assert problem in found


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("parked_writes_max", 0, "parked_writes_max is 0 (as a flag); it must be a whole number from 1 to 1000000."),
        (
            "parked_writes_max",
            True,
            "parked_writes_max is true (as a flag); it must be a whole number from 1 to 1000000.",
        ),
        ("parked_writes_max", 1.5, "it must be a whole number from 1 to 1000000."),
        ("share.coordinator.snapshot.update.records.per.snapshot", 501, "it must be a whole number from 0 to 500."),
        (
            "pruning_dead_share",
            "x",
            "pruning_dead_share is 'x' (as a flag); it must be a number from 0.05 to 0.95.",
        ),
        ("codec", "json", "codec is 'json' (as a flag); it must be one of avro, kafka."),
        ("log_readers", 5, "it must be a list of names."),
        (
            "super.users",
            "User:a;ANON",
            "super.users is 'User:a;ANON' (as a flag); a principal in it is 'ANON'; it must be User: and a name, as in User:orders.",
        ),
        ("listen", "9492", "listen is '9492' (as a flag); it must be host:port, as in 127.0.0.1:9492 or [::1]:9492."),
        ("listen", "", "it must be host:port"),
        ("snapshots.topic", "a b", "it must be 0 to 249 letters, digits, dots, dashes or underscores."),
        ("compaction.group", "", "it must be a text of 1 to 249 characters."),
        ("compaction.master", 5, "it must be a text."),
        (
            "compaction.master",
            "nonsense",
            "compaction.master is 'nonsense' (as a flag); it must be local[N], local[*], spark://host:port, yarn or "
            "k8s://https://host:port.",
        ),
        ("compaction.master", "local[x]", "it must be local[N],"),
        ("compaction.run", "maybe", "it must be true or false."),
        ("spark.executor.memory", ["4g"], "it must be a text, a number, true or false."),
        ("state_topic", "a b", "it must be 1 to 249 letters, digits, dots, dashes or underscores."),
        ("kafka.debug", ["a"], "kafka.debug is ['a'] (as a flag); it must be a text, a number, true or false."),
    ],
)
def test_a_wrong_value_is_named_with_its_source_and_what_would_be_right(name: str, value: object, problem: str) -> None:
    (found,) = problems_of(flags={**BROKERS, name: value})
    assert found.startswith(name)
    assert problem in found


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[*, 3]",
        "local-cluster[2,1,1024]",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://a:6443",
    ],
)
def test_every_master_of_spark_is_taken(master: str) -> None:
    assert load_settings(flags={**BROKERS, "compaction.master": master}).settings.compaction.master == master


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("codec = 7\nnode_id = -1\n")
    assert problems_of(config=path, flags=BROKERS) == (
        "node_id is -1 (in node.toml); it must be a whole number from 0 to 2147483647.",
        "codec is 7 (in node.toml); it must be one of avro, kafka.",
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"share.coordinator.state.topic.min.isr": 4}, "would count: --set share.coordinator.state.topic.min.isr=3"),
        ({"listen": "0.0.0.0:9492"}, "set advertised_listener as well"),
        ({"advertised_listener": "0.0.0.0:9492"}, "advertised_listener must be an address that clients can connect to"),
        ({"fetch_wait_ms": 301}, "leader_silence_max_ms must be at least 10 times fetch_wait_ms, which is 3010"),
        ({"retry_backoff_ms": 40_000}, "retry_backoff_ms must be at most retry_backoff_max_ms"),
        ({"deleted_topic_grace_ms": 1_000}, "deleted_topic_grace_ms must be at least metadata_refresh_interval_ms"),
        ({"state_topic": "__share_group_state"}, "which a broker writes itself"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is not set"),
        ({"compaction.run": True}, "compaction.checkpoint.dir is not set"),
        (
            {"compaction.run": True, "compaction.checkpoint.dir": "/c", "snapshots.topic": ""},
            "snapshots.topic is empty",
        ),
        ({"snapshots.topic": "s", "state_topic": "s"}, "snapshots.topic is the state topic"),
        ({"spark.master": "yarn"}, "spark.master cannot be set: use compaction.master; remove it."),
        ({"kafka.linger.ms": 5}, "kafka.linger.ms cannot be set: use share.coordinator.append.linger.ms; remove it."),
    ],
)
def test_relations_are_checked(flags: dict[str, object], problem: str) -> None:
    (found,) = problems_of(flags=BROKERS | flags)
    assert problem in found


def test_a_leader_may_be_silent_for_as_long_as_ten_fetches_are_held() -> None:
    log = load_settings(flags=BROKERS | {"fetch_wait_ms": 300}).settings.log
    assert log.leader_silence_max_ms == 10 * log.fetch_wait_ms


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "transactional.id",
        "isolation.level",
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "linger.ms",
        "queue.buffering.max.ms",
        "compression.type",
        "compression.codec",
    ],
)
def test_a_property_that_the_log_fixes_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"kafka.{name} cannot be set"):
        KafkaSettings(properties={"bootstrap.servers": "broker:9092", name: "1"})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("share.coordinator.threads", "one event loop owns all log partitions of a node"),
        ("share.coordinator.load.buffer.size", "a load reads with fetches of 4 MiB"),
        (
            "share.coordinator.cached.buffer.max.bytes",
            "batches are built as large as the state topic takes them",
        ),
        ("share.coordinator.state.topic.prune.interval.ms", "pruning has no clock; see pruning_dead_share"),
        ("share.coordinator.cold.partition.snapshot.interval.ms", "pruning has no clock; see pruning_dead_share"),
    ],
)
def test_a_setting_without_meaning_here_is_a_warning_that_says_why(name: str, why: str) -> None:
    assert load_settings(flags=BROKERS | {name: 5}).warnings == (f"{name} (as a flag) has no effect here: {why}.",)


def test_a_setting_given_twice_in_one_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('codec = "avro"\n[log]\ncodec = "kafka"\n')
    assert problems_of(config=path, flags=BROKERS) == ("codec is given twice (in node.toml); keep one of them.",)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("node_id = 7\n", encoding="utf-8-sig")
    assert load_settings(config=path, flags=BROKERS).settings.node_id == 7


def test_a_file_that_is_missing_or_no_toml_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    assert "cannot be read (No such file or directory); name another with --config." in problems_of(config=path)[0]
    path.write_text("= 5")
    assert "is not TOML" in problems_of(config=path)[0]


def test_secrets_are_never_shown() -> None:
    secret = "open sesame"
    flags = {
        **BROKERS,
        "kafka.sasl.password": secret,
        "kafka.ssl.key.password": secret,
        "kafka.sasl.oauthbearer.client.secret": secret,
        "kafka.ssl.key.pem": secret,
        "listener.ssl.key.password": secret,
        "kafka.sasl.username": "ali",
    }
    settings = load_settings(flags=flags).settings
    assert settings.kafka.properties["sasl.password"] == secret
    shown = describe(settings)
    assert shown["kafka.sasl.username"] == "ali"
    assert settings.security.ssl_key_password == to_flags(settings)["listener.ssl.key.password"] == secret
    assert secret not in f"{shown} {settings} {settings!r}"
    assert secret not in "".join(problems_of(flags=flags | {"kafka.sasl.password": [secret], "node_id": -1}))


def test_settings_are_frozen() -> None:
    settings = load_settings(flags=BROKERS).settings
    with pytest.raises(ValidationError, match="frozen"):
        settings.log.codec = "kafka"


def test_the_advertised_address_is_host_and_port() -> None:
    assert ListenerSettings(listen="0.0.0.0:1", advertised_listener="h:2").advertised_address == ("h", 2)


def test_every_setting_has_a_name_of_its_own_a_description_and_bounds() -> None:
    known_settings = catalogue_of(SETTINGS).known
    declared = [field for component in SETTINGS.model_fields for field in _fields(component)]
    assert len(declared) == len(known_settings)
    variables = [known.variable for known in known_settings.values()]
    assert len(set(variables)) == len(variables)
    assert not [variable for variable in variables if variable.startswith("HOLDFAST_KAFKA_")]
    for known in known_settings.values():
        assert known.field.description, known.name
        assert known.field.description.rstrip().endswith("."), known.name
        assert expected(known.field)
        is_time = "ms" in known.attribute.split("_")
        assert not is_time or known.attribute.endswith("_ms"), f"{known.attribute}: units come last"


def test_every_setting_is_read_somewhere() -> None:
    """A setting without effect would be a lie in the documentation."""
    package = Path(__file__).parents[4] / "holdfast"
    readers = [path for path in package.rglob("*.py") if path.name != "settings.py"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in readers)
    through_properties = {
        "listen": "listen_address",
        "advertised_listener": "advertised_address",
    }
    for known in catalogue_of(SETTINGS).known.values():
        attribute = through_properties.get(known.attribute, known.attribute)
        assert re.search(rf"\.{attribute}\b", code), f"nothing reads {known.name}"


def _fields(component: str) -> list[str]:
    annotation = SETTINGS.model_fields[component].annotation
    inner = getattr(annotation, "model_fields", None)
    if inner is None:
        return [component]
    return [] if issubclass(annotation, Properties) else list(inner)  # type: ignore[arg-type] # a component is a class


def test_the_documented_settings_are_the_real_ones() -> None:
    """Write it again with `python -m tools.settings_reference > docs/configuration.md`."""
    page = Path(__file__).parents[4] / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == render_reference()


def test_the_example_of_the_page_loads(tmp_path: Path) -> None:
    example = render_reference().split("```toml\n")[1].split("```")[0]
    assert tomllib.loads(example)
    path = tmp_path / "node.toml"
    path.write_text(example)
    settings = load_settings(path).settings
    assert settings.listener.advertised_address == ("coordinator.example", 9492)
    assert settings.of(ShareSettings).write_timeout_ms == 5_000
