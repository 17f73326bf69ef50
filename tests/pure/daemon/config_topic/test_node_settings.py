"""The settings of a node that follows the config topic: when it takes them, and what it makes of each value."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.config_topic import topic as topic_module
from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.settings import reloading
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.log_protocol import LogListener, LogRecord, ReadError
from tests.waiting import PATIENCE_MS, wait_until
from tests.world.context import make_context
from tests.world.identity.certificates import Authority

FLAGS = {"kafka.bootstrap.servers": "a:1", "tick_ms": 9, "state_topic": "jobs", "config.read.timeout.ms": PATIENCE_MS}


class Topic:
    """A config topic in memory, in the place of `KafkaLog`."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.is_there = True
        #: Reading reaches the end.
        self.is_answering = True
        self.connection_failures = 0
        self.name = ""
        self.readings = 0
        self.is_closed = False
        self._listener: LogListener
        self._instance = 0

    def __call__(self, config: KafkaLogConfig, *_: object) -> Topic:
        self.name = config.topic
        return self

    async def start(self, listener: LogListener) -> None:
        self._listener = listener
        if self.connection_failures:
            self.connection_failures -= 1
            raise ConnectionFailed("no broker answers")

    async def close(self, timeout_s: float) -> bool:
        self.is_closed = True
        return True

    def has_topic(self) -> bool:
        return self.is_there

    def start_reading(self, partition: int, instance: int) -> None:
        self._instance = instance
        self.readings += 1
        if self.is_answering:
            asyncio.get_running_loop().call_soon(self.answer)

    def stop_reading(self, partition: int) -> None:
        self._instance = 0

    def answer(self) -> None:
        """Bring the reading to the end of the topic."""
        if not self.is_there:
            self._listener.read_failed(0, self._instance, ReadError("no start", is_alarm=False))
            return
        self._listener.records_read(0, self._instance, list(self.records))
        self._listener.caught_up(0, self._instance, len(self.records))

    def write(self, name: str, text: str | None, *, is_read: bool = True) -> None:
        record = LogRecord(len(self.records), name.encode(), None if text is None else text.encode(), None)
        self.records.append(record)
        if is_read and self._instance:
            self._listener.records_read(0, self._instance, [record])


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()
    monkeypatch.setattr(topic_module, "KafkaLog", made)
    monkeypatch.setattr(reloading, "set_level", lambda level: None)
    return made


def load(cluster: Mapping[str, str], **flags: object) -> Loaded:
    return load_settings(flags=FLAGS | flags, cluster=cluster)


@asynccontextmanager
async def followed(**flags: object) -> AsyncIterator[NodeSettings]:
    """Give the settings of a node that has started."""

    async def stop(name: str, step: Callable[[], Awaitable[object]], timeout_ms: int) -> None:
        assert await step()

    settings = NodeSettings(load({}, **flags).settings, lambda cluster: load(cluster, **flags))
    async with settings.followed(lambda work: work, stop):
        yield settings


def on_node(settings: NodeSettings) -> dict[str, str]:
    return {row["name"]: row["on_node"] for row in settings.describe()["settings"]}


async def test_a_node_takes_the_values_before_it_starts_and_what_it_can_afterwards(topic: Topic) -> None:
    for name, text in (("loads_max", "7"), ("log_level", "warning"), ("tick_ms", "8"), ("moons_max", "12")):
        topic.write(name, text, is_read=False)
    with capture_logs() as lines:
        async with followed() as settings:
            current = settings.current
            assert topic.name == "jobs_config"
            assert (current.load.loads_max, current.logging.log_level, current.load.tick_ms) == (7, "warning", 9)
            at_start = on_node(settings)
            assert at_start.pop("moons_max").startswith("refused: moons_max is no setting")
            assert at_start == {"loads_max": "in force", "log_level": "in force", "tick_ms": "overruled as a flag"}
            started_with = [line["event"] for line in lines]

            topic.write("loads_max", "6")
            topic.write("log_level", "error")
            current = settings.current
            assert (current.load.loads_max, current.logging.log_level) == (7, "error")
            assert on_node(settings)["loads_max"] == "needs a restart"
            topic.write("loads_max", None)
            assert "loads_max" not in on_node(settings)
            assert settings.describe()["offset"] == settings.offset == 6
    assert started_with == ["config_topic_read", "setting_overruled", "cluster_setting_refused"]
    reloads = [line for line in lines if line["event"] == "settings_reloaded"]
    assert [line["reloaded"] for line in reloads] == [[], ["log_level=error"], []]
    assert [line["need_a_restart"] for line in reloads] == [["loads_max"]] * 3
    assert topic.is_closed


async def test_a_topic_that_is_not_there_keeps_no_node_from_its_start_and_is_found_later(topic: Topic) -> None:
    topic.is_there = False
    async with followed() as settings:
        assert (settings.offset, settings.describe()) == (-1, {"offset": -1, "settings": []})
        assert topic.readings == 0, "no start waits for another look at what was looked at just now"
        topic.write("log_level", "error", is_read=False)
        topic.is_there = True
        await wait_until(lambda: settings.current.logging.log_level == "error")
        assert settings.offset == 0


async def test_a_node_tries_again_where_no_broker_answers(topic: Topic) -> None:
    topic.connection_failures = 2
    topic.write("loads_max", "7", is_read=False)
    with capture_logs() as lines:
        async with followed() as settings:
            assert settings.current.load.loads_max == 7
    assert [line["event"] for line in lines] == ["config_topic_unread", "config_topic_read"]


async def test_a_topic_that_is_late_is_waited_for_so_long_and_its_values_come_over_later(topic: Topic) -> None:
    topic.is_answering = False
    topic.write("loads_max", "7", is_read=False)
    topic.write("log_level", "error", is_read=False)
    with capture_logs() as lines:
        async with followed(**{"config.read.timeout.ms": 100}) as settings:
            assert settings.current.load.loads_max == 64
            topic.answer()
            assert (settings.current.load.loads_max, settings.current.logging.log_level) == (64, "error")
            assert on_node(settings) == {"loads_max": "needs a restart", "log_level": "in force"}
    assert [line["event"] for line in lines] == ["config_topic_late", "config_topic_read", "settings_reloaded"]


async def test_a_refresh_reads_to_the_end_that_the_topic_has_now_and_beyond_it_if_wanted(topic: Topic) -> None:
    async with followed() as settings:
        topic.write("loads_max", "7", is_read=False)
        assert settings.offset == -1
        assert await settings.refresh(-1, PATIENCE_MS) == 0

        waiting = asyncio.create_task(settings.refresh(2, PATIENCE_MS))
        await wait_until(lambda: topic.readings == 3)
        topic.write("loads_max", "8")
        await asyncio.sleep(0)
        assert not waiting.done()
        topic.write("loads_max", "9")
        assert await waiting == 2

        assert await settings.refresh(99, timeout_ms=1) == 2


async def test_a_node_without_other_sources_reads_no_topic(topic: Topic) -> None:
    async def stop(*_: Any) -> None:
        raise AssertionError("nothing is to be stopped")

    settings = NodeSettings(load({}).settings)
    async with settings.followed(lambda work: work, stop):
        assert (await settings.refresh(3, 1), settings.describe()["settings"], topic.readings) == (-1, [], 0)


async def test_settings_of_its_own_that_went_wrong_change_nothing_and_are_said(topic: Topic) -> None:
    flags: dict[str, object] = {}

    async def stop(name: str, step: Callable[[], Awaitable[object]], timeout_ms: int) -> None:
        await step()

    settings = NodeSettings(load({}).settings, lambda cluster: load(cluster, **flags))
    topic.write("loads_max", "7", is_read=False)
    flags["tick_ms"] = 0
    with pytest.raises(ConfigError):
        load({}, **flags)
    with capture_logs() as lines:
        async with settings.followed(lambda work: work, stop):
            assert settings.current.load.loads_max == 64
            assert on_node(settings)["loads_max"].startswith("the node's own settings are wrong: tick_ms is 0")
    assert [line["event"] for line in lines] == ["config_topic_read", "settings_reload_failed"]


def test_files_that_a_reload_names_are_followed_also_while_they_are_refused(tmp_path: Path) -> None:
    def with_authority(path: Path | None) -> Loaded:
        named = {} if path is None else {"kafka.ssl.ca.location": str(path)}
        return load({}, **{"kafka.security.protocol": "ssl"}, **named)

    found = with_authority(None)
    settings, files = NodeSettings(found.settings, lambda _: found), FileWatch(make_context())
    settings.follow_files(files)
    authority = tmp_path / "named.pem"
    found = with_authority(authority)
    with capture_logs() as lines:
        # What SIGHUP does.
        files.reload(but=settings.reload())
        files.look()
    assert [line["event"] for line in lines] == ["kafka_credentials_refused", "settings_reloaded"]
    assert settings.current.kafka.properties == settings.kafka.current
    assert "ssl.ca.location" not in settings.kafka.current

    shutil.copy(Authority(tmp_path).certificate, authority)
    with capture_logs() as lines:
        files.look()
        files.look()
    assert [line["event"] for line in lines] == ["kafka_credentials_loaded"]
    assert settings.current.kafka.properties == settings.kafka.current == found.settings.kafka.properties

    authority.write_text("no certificate")
    with capture_logs() as lines:
        files.look()
    assert [line["event"] for line in lines] == ["kafka_credentials_refused"], "a change of it is seen"


def test_a_node_without_certificates_loads_none_at_sighup() -> None:
    settings, files = NodeSettings(load({}).settings), FileWatch(make_context())
    settings.follow_files(files)
    with capture_logs() as lines:
        files.reload()
    assert (lines, settings.kafka.renewals) == ([], 0)


def test_a_reload_of_wrong_settings_has_the_files_of_the_former_ones_followed(tmp_path: Path) -> None:
    authority = tmp_path / "named.pem"
    shutil.copy(Authority(tmp_path).certificate, authority)
    wrong: dict[str, object] = {}
    named = {"kafka.security.protocol": "ssl", "kafka.ssl.ca.location": str(authority)}
    settings = NodeSettings(load({}, **named).settings, lambda _: load({}, **named, **wrong))
    files = FileWatch(make_context())
    settings.follow_files(files)
    wrong["log_level"] = "loud"
    with capture_logs() as lines:
        files.reload(but=settings.reload())
    assert [line["event"] for line in lines] == ["settings_reload_failed", "kafka_credentials_loaded"]


async def test_a_password_that_was_changed_while_the_node_starts_is_used(topic: Topic) -> None:
    login = {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "a"}
    before = load({}, **login, **{"kafka.sasl.password": "before"})

    async def stop(*_: Any) -> None:
        pass

    changed = {"kafka.sasl.password": "after", "kafka.bootstrap.servers": "b:1"}
    settings = NodeSettings(before.settings, lambda cluster: load(cluster, **login, **changed))
    with capture_logs() as lines:
        async with settings.followed(lambda work: work, stop):
            assert settings.kafka.current["sasl.password"] == "after"
            assert settings.kafka.current["bootstrap.servers"] == "a:1", "that needs a restart"
            assert settings.current.kafka.properties == settings.kafka.current
            topic.write("log_level", "error")
            assert settings.kafka.renewals == 1
    assert [line["event"] for line in lines if "credentials" in line["event"]] == ["kafka_credentials_loaded"]
    assert lines[-1]["need_a_restart"] == ["kafka.bootstrap.servers"]


@pytest.mark.parametrize("is_refused_at_start", [False, True])
async def test_what_a_change_of_the_topic_refuses_and_heals_is_shown(
    topic: Topic, tmp_path: Path, is_refused_at_start: bool
) -> None:
    authority, now_ms = tmp_path / "named.pem", [0]
    in_use = {"kafka.security.protocol": "ssl"}
    wanted = in_use | {"kafka.ssl.ca.location": str(authority)}
    own = dict(wanted if is_refused_at_start else in_use)
    registry = Registry()
    files = FileWatch(make_context(registry=registry, now_ms=lambda: now_ms[0]))

    def refused_s() -> float:
        now_ms[0] += 1_000
        return dict(registry.numbers())["holdfast_file_refusal_age_seconds{setting=kafka.ssl}"]

    async def stop(*_: Any) -> None:
        pass

    settings = NodeSettings(load({}, **in_use).settings, lambda cluster: load(cluster, **own))
    settings.follow_files(files)
    with capture_logs() as lines:
        async with settings.followed(lambda work: work, stop):
            own.update(wanted)
            if not is_refused_at_start:
                topic.write("log_level", "error")
            assert refused_s() == 1
            files.look()
            del own["kafka.ssl.ca.location"]
            topic.write("log_level", "warning")
            assert refused_s() == 0, "what is in use is wanted again"
            shutil.copy(Authority(tmp_path).certificate, authority)
            own.update(wanted)
            topic.write("log_level", "info")
            files.look()
            assert (refused_s(), settings.kafka.current) == (0, settings.current.kafka.properties)
    credentials = [line["event"] for line in lines if "credentials" in line["event"]]
    assert credentials == ["kafka_credentials_refused", "kafka_credentials_loaded"]
