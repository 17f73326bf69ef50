"""Password, certificate and token change while a node runs: new connections go by the new ones, and no write is lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from holdfast.client import connect
from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.settings.file_env_flags import Loaded
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import KafkaClients, find_topic
from tests.kafka_acls import Role
from tests.real.nodes import ONE_TRY
from tests.real.running_node import running
from tests.real.secured.certificates import Authority, Signed
from tests.real.secured.secured_kafka import PASSWORD, UNCLOSED, USER, SecuredKafka
from tests.real.secured.test_acls import settings_of
from tests.real.secured.test_logins import PATIENT, allow, make_orders, write, written
from tests.waiting import PATIENCE_MS
from tests.world.context import make_context

pytestmark = [pytest.mark.real, *UNCLOSED]

ANOTHER: Final = "another password"


async def come_in(options: ConnectionOptions) -> None:
    (await BrokerConnection.open(options.bootstrap[0], options, PATIENCE_MS)).close()


async def test_a_changed_password_is_taken_over_at_sighup_and_no_write_fails(
    secured: SecuredKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_password(password: str) -> dict[str, str]:
        return secured.by_password(password=password) | {"bootstrap.servers": secured.short}

    settings = settings_of(with_password(PASSWORD), topic, **PATIENT)
    allow(secured, settings, Role.NODE)
    orders = make_orders(secured, topic)
    opened, really_open = 0, BrokerConnection.open

    async def open_and_count(*arguments: Any) -> BrokerConnection:
        nonlocal opened
        connection = await really_open(*arguments)
        opened += 1
        return connection

    try:
        async with running(settings) as node, connect(node.address, ONE_TRY) as client:
            node.client, live = client, node.node.node_settings
            await client.initialize("group", orders, 0, 1, 0)
            await write(node, orders, 0)
            secured.set_password(ANOTHER)
            # What SIGHUP does, which finds this in the file of settings.
            found = settings_of(with_password(ANOTHER), topic, **PATIENT)
            live._load = lambda _: Loaded(found)
            with capture_logs() as lines:
                live.reload()
            assert [line["event"] for line in lines] == ["kafka_credentials_loaded", "settings_reloaded"]
            monkeypatch.setattr(BrokerConnection, "open", open_and_count)
            writes = 1
            while opened < 10:  # sessions are over soon there
                await write(node, orders, writes)
                writes += 1
            assert (await client.read("group", orders, 0, 0)).start_offset == writes - 1
            with KafkaClients(live.kafka).admin() as admin:
                assert await asyncio.to_thread(find_topic, admin, topic, PATIENCE_MS) is not None
    finally:
        secured.set_password(PASSWORD)


async def test_a_changed_certificate_is_taken_over_from_its_file(secured: SecuredKafka, tmp_path: Path) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"

    def show(signed: Signed) -> None:
        shutil.copy(signed.certificate, certificate)
        shutil.copy(signed.key, key)

    show(secured.client)
    own = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    settings = settings_of(secured.by_certificate() | own, "unused")
    live, files = NodeSettings(settings), FileWatch(make_context())
    live.follow_files(files)
    options = live.kafka.connection_options()
    await come_in(options)
    show(Authority(tmp_path, "stranger").sign(USER))
    files.look()
    with pytest.raises(ConnectionFailed, match="whose certificate it does not accept"):
        await come_in(options)
    # Half a file changes nothing.
    certificate.write_text("broken")
    with capture_logs() as lines:
        files.look()
    assert {line["event"] for line in lines} == {"kafka_credentials_refused"}
    show(secured.client)
    files.look()
    await come_in(options)


async def test_a_changed_token_file_is_read_for_the_next_connection(secured: SecuredKafka, tmp_path: Path) -> None:
    token = written(tmp_path / "token", USER, 600)
    options = LiveProperties(secured.by_token_file(token)).connection_options()
    await come_in(options)
    written(token, USER, -5)
    with pytest.raises(ConnectionFailed, match="expired at"):
        await come_in(options)
    written(token, USER, 600)
    await come_in(options)
