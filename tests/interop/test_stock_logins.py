"""librdkafka and aiokafka log in at a node, by every mechanism, with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # as above
from confluent_kafka.admin import AdminClient

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.server.security import NodeSecurity
from holdfast.daemon.settings.components.listener import SecuritySettings
from tests.waiting import PATIENCE_S
from tests.world.context import make_context
from tests.world.identity.access import AUDIT
from tests.world.identity.mechanisms import SCRAM
from tests.world.identity.secured import SecuredFiles
from tests.world.serving import Served, serve

pytestmark = pytest.mark.interop

Protocol = Literal["SASL_PLAINTEXT", "SASL_SSL"]
STATE_TOPIC = "__holdfast_share_state"
MECHANISMS = ("PLAIN", *SCRAM)
every_way = pytest.mark.parametrize("mechanism", MECHANISMS)
every_listener = pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SecuredFiles:
    return SecuredFiles(tmp_path_factory.mktemp("secured"))


@asynccontextmanager
async def guarded(protocol: Protocol, files: SecuredFiles) -> AsyncIterator[Served]:
    settings = SecuritySettings(
        security_protocol=protocol,
        users_file=str(files.users),
        ssl_certificate_location=str(files.certificate),
        client_properties_file="unused",
        sasl_enabled_mechanisms=MECHANISMS,
    )
    security = NodeSecurity(settings, FileWatch(make_context()), make_context(), AUDIT)
    try:
        async with serve(security=security) as served:
            yield served
    finally:
        await security.stop()


async def by_librdkafka(served: Served, protocol: Protocol, files: SecuredFiles, mechanism: str) -> bool:
    """Return whether it gets in."""
    admin = AdminClient(
        {
            "bootstrap.servers": served.address,
            "security.protocol": protocol.lower(),
            "ssl.ca.location": str(files.authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": "open sesame",
            "log_level": 0,
        }
    )
    return STATE_TOPIC in (await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)).topics


async def by_aiokafka(served: Served, protocol: Protocol, files: SecuredFiles, mechanism: str, password: str) -> bool:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=served.address,
        security_protocol=protocol,
        ssl_context=ssl.create_default_context(cafile=files.authority.certificate) if protocol == "SASL_SSL" else None,
        sasl_mechanism=mechanism,
        sasl_plain_username="admin",
        sasl_plain_password=password,
    )
    try:
        await admin.start()
        return STATE_TOPIC in await admin.list_topics()
    except KafkaError:
        return False
    finally:
        await admin.close()


@every_way
@every_listener
async def test_librdkafka_logs_in(protocol: Protocol, mechanism: str, files: SecuredFiles) -> None:
    async with guarded(protocol, files) as served:
        assert await by_librdkafka(served, protocol, files, mechanism)
        assert served.reports == []


@every_way
@every_listener
async def test_aiokafka_logs_in(protocol: Protocol, mechanism: str, files: SecuredFiles) -> None:
    async with guarded(protocol, files) as served:
        assert await by_aiokafka(served, protocol, files, mechanism, "open sesame")
        assert not await by_aiokafka(served, protocol, files, mechanism, "guess")
        assert set(served.reports.kinds) == {"login_failed"}
