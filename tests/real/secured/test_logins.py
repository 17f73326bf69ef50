"""A node and the job on a Kafka that asks who they are: each way in, what goes wrong with it, and what happens to it over time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from holdfast.cli import main
from holdfast.client import connect
from holdfast.console.outcomes import Exit
from holdfast.console.sources import brokers_or_nodes
from holdfast.daemon.node import Node
from holdfast.daemon.node_exit import NodeExit
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.errors import ConnectionFailed
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.tenants import TABLES
from tests.kafka_acls import NEEDS, Role, acls_of
from tests.real.job.quick_spark import QUICK
from tests.real.nodes import ONE_TRY, topic_id_of
from tests.real.running_node import RunningNode, read_log, running
from tests.real.secured.certificates import Authority
from tests.real.secured.secured_kafka import PASSWORD, UNCLOSED, SecuredKafka
from tests.real.secured.test_acls import make_topics, settings_of
from tests.real.secured.tokens import sign_token
from tests.waiting import PATIENCE_MS, PATIENCE_S, SPARK_PATIENCE_S

pytestmark = [pytest.mark.real, *UNCLOSED]

Properties = dict[str, str]
WAYS: Final[dict[str, Callable[[SecuredKafka, Path], Properties]]] = {
    "certificate": lambda secured, _: secured.by_certificate(),
    "password": lambda secured, _: secured.by_password("SCRAM-SHA-512"),
    "password without TLS": lambda secured, _: secured.by_bare_password(),
    "token": lambda secured, _: secured.by_token(),
    "token file": lambda secured, directory: secured.by_token_file(written(directory / "a token", "node", 600)),
}
#: Other tests here come in by a password, too.
SHORT_WAYS: Final = [name for name in WAYS if name != "password"]
JOB_WAYS: Final = [name for name in WAYS if name != "token file"]
long_form = pytest.mark.skipif(
    os.environ.get("SECURED_LONG") != "1", reason="Spark takes minutes; SECURED_LONG=1 runs it, and so does `make soak`"
)
#: Enough of a write for a busy machine.
PATIENT: Final = {"share.coordinator.write.timeout.ms": PATIENCE_MS}


def written(file: Path, subject: str, life_s: float, **claims: object) -> Path:
    file.write_text(sign_token(subject, life_s, **claims))
    return file


def allow(secured: SecuredKafka, settings: Any, *roles: Role) -> None:
    secured.allow({acl for need in NEEDS if need.role in roles for acl in acls_of(need, settings)})


def make_orders(secured: SecuredKafka, topic: str) -> bytes:
    make_topics(secured, f"{topic}-orders")
    return topic_id_of(secured.open, f"{topic}-orders")


async def write(node: RunningNode, orders: bytes, offset: int) -> None:
    """Write once, on a connection that tries once."""
    await node.client.write("group", orders, 0, 1, 0, offset, [StateBatch(offset, offset, ACKNOWLEDGED, 1)])


@pytest.mark.parametrize("way", SHORT_WAYS)
async def test_a_node_starts_joins_writes_and_comes_back(
    secured: SecuredKafka, topic: str, tmp_path: Path, way: str
) -> None:
    settings = settings_of(WAYS[way](secured, tmp_path), topic, **PATIENT)
    allow(secured, settings, Role.NODE)
    orders = make_orders(secured, topic)
    async with running(settings) as node:
        await node.client.initialize("group", orders, 0, 1, 0)
        await write(node, orders, 7)
    async with running(settings) as again:
        assert (await again.client.read("group", orders, 0, 0)).start_offset == 7


@long_form
@pytest.mark.parametrize("way", JOB_WAYS)
def test_the_job_comes_in_as_the_node_does(secured: SecuredKafka, topic: str, tmp_path: Path, way: str) -> None:
    pytest.importorskip("pyspark")
    properties = WAYS[way](secured, tmp_path)
    settings = settings_of(properties, topic)
    allow(secured, settings, Role.NODE, Role.JOB)
    orders = make_orders(secured, topic)

    async def fill() -> None:
        async with running(settings_of(properties, topic, **PATIENT)) as node:
            await node.client.initialize("group", orders, 0, 1, 0)

    asyncio.run(fill())
    flags = {f"kafka.{name}": value for name, value in properties.items()} | {
        "state_topic": topic,
        "snapshots.topic": settings.snapshots.topic,
        "compaction.group": settings.compaction.group,
        "compaction.checkpoint.dir": tmp_path / "checkpoint",
        "compaction.master": "local[1]",
        "compaction.state.partitions": 1,
        "compaction.worker.start.attempts.max": 100,
        **QUICK,
    }
    command = [sys.executable, "-m", "holdfast", "compact", "--once"]
    command += [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(read_log(secured.open, settings.snapshots.topic, 0)) == 2, "a snapshot and a manifest"


async def test_a_way_in_that_is_closed_ends_the_start_with_one_clear_line(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    by_token, elsewhere = secured.by_token(), secured.sasl.replace("127.0.0.1", "localhost")
    unsigned = stranger.sign("node")
    foreign = {"ssl.certificate.location": str(unsigned.certificate), "ssl.key.location": str(unsigned.key)}
    ended = written(tmp_path / "ended", "node", -5)
    wrong: list[tuple[Properties, str]] = [
        (secured.by_password(password="not-the-password"), "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        (
            secured.by_password() | {"ssl.ca.location": str(stranger.certificate)},
            f"{secured.sasl} cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED]",
        ),
        (secured.by_password() | {"bootstrap.servers": elsewhere}, "certificate is not valid for 'localhost'"),
        (secured.by_certificate() | foreign, "whose certificate it does not accept"),
        (secured.by_token("not-the-secret"), "gave no token: HTTP status 401, the client id or its secret is wrong"),
        (
            by_token | {"https.ca.location": str(stranger.certificate)},
            "gave no token: [SSL: CERTIFICATE_VERIFY_FAILED]",
        ),
        (secured.by_token_file(ended), f"the token of {ended} expired at "),
        (
            secured.by_token_file(written(tmp_path / "other", "node", 600, aud="another audience")),
            'the broker refuses the token: {"status":"invalid_token"}',
        ),
    ]

    async def outcome(properties: Properties) -> NodeExit:
        settings = settings_of(properties, "nothing", request_timeout_ms=5_000, metadata_timeout_ms=5_000)
        return await Node(settings, TABLES).run()

    with capture_logs() as lines:
        exit_codes = await asyncio.gather(*(outcome(properties) for properties, _ in wrong))
    assert set(exit_codes) == {NodeExit.REFUSED}
    said = [line["why"] for line in lines if line["event"] == "node_start_failed"]
    for properties, reason in wrong:
        (why,) = (each for each in said if reason in each)
        assert properties["bootstrap.servers"] in why


#: Commands that query brokers, each over librdkafka, or over connections of our own, or over both.
BROKER_COMMANDS: Final = (
    "groups list",
    "groups describe g",
    "groups kafka list",
    "groups kafka describe g",
    "groups kafka describe g --offsets",
    "groups kafka delete g --dry-run",
    "find --type group g",
    "find --type transaction t",
    "topics create orders",
    "dump",
    "config list",
    "config set loads_max=6 --before-the-first-node",
    "snapshots list",
)


@pytest.mark.parametrize("login", ["a password", "a user", "a mechanism", "a secret"])
def test_command_with_a_refused_login_at_brokers_ends_with_8(
    secured: SecuredKafka, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether a login is refused is looked at once, and a busy machine may take longer than users are to wait for that.
    monkeypatch.setattr(brokers_or_nodes, "_LOOK_TIMEOUT_MS", PATIENCE_MS)
    refused = {
        "a password": secured.by_bare_password() | {"sasl.password": "not-the-password"},
        "a user": secured.by_bare_password() | {"sasl.username": "nobody"},
        "a mechanism": secured.by_bare_password("PLAIN") | {"bootstrap.servers": secured.bare},
        "a secret": secured.by_token("not-the-secret"),
    }[login]
    options = [part for name, value in refused.items() for part in ("--kafka", f"{name}={value}")]
    ended = {}
    for command in BROKER_COMMANDS:
        arguments = (*command.split(), "--bootstrap-server", refused["bootstrap.servers"], *options)
        result = CliRunner().invoke(main, arguments)
        ended[command] = result.exit_code, result.stderr
    assert {command: code for command, (code, _) in ended.items()} == dict.fromkeys(BROKER_COMMANDS, Exit.DENIED), ended


async def test_a_session_that_ends_costs_a_connection_and_no_write(
    secured: SecuredKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = secured.by_password() | {"bootstrap.servers": secured.short}
    settings = settings_of(properties, topic, **PATIENT)
    allow(secured, settings, Role.NODE)
    orders = make_orders(secured, topic)
    opened, really_open = 0, BrokerConnection.open

    async def open_and_count(*arguments: Any) -> BrokerConnection:
        nonlocal opened
        opened += 1
        return await really_open(*arguments)

    async with running(settings) as node, connect(node.address, ONE_TRY) as client:
        node.client = client
        await client.initialize("group", orders, 0, 1, 0)
        monkeypatch.setattr(BrokerConnection, "open", open_and_count)
        writes = 0
        while opened < 20:
            await write(node, orders, writes)
            writes += 1
        assert (await client.read("group", orders, 0, 0)).start_offset == writes - 1


async def test_a_password_that_changes_leaves_connections_alone_and_closes_the_way_in(
    secured: SecuredKafka, topic: str
) -> None:
    properties = secured.by_password("SCRAM-SHA-256")
    settings = settings_of(properties, topic, **PATIENT)
    allow(secured, settings, Role.NODE)
    orders = make_orders(secured, topic)
    options = connection_options(properties)

    async def come_in() -> None:
        (await BrokerConnection.open(options.bootstrap[0], options, PATIENCE_MS)).close()

    async with running(settings) as node:
        await node.client.initialize("group", orders, 0, 1, 0)
        await come_in()
        secured.set_password("another")
        try:
            with pytest.raises(ConnectionFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
                await come_in()
            await write(node, orders, 7)
            assert (await node.client.read("group", orders, 0, 0)).start_offset == 7
        finally:
            secured.set_password(PASSWORD)
        await come_in()


@pytest.mark.parametrize("login", ["a password", "a mechanism", "a secret"])
def test_the_job_with_a_refused_login_ends_with_8(secured: SecuredKafka, login: str, tmp_path: Path) -> None:
    refused = {
        "a password": secured.by_bare_password() | {"sasl.password": "not-the-password"},
        "a mechanism": secured.by_bare_password("PLAIN") | {"bootstrap.servers": secured.bare},
        "a secret": secured.by_token("not-the-secret"),
    }[login]
    settings = {f"kafka.{name}": value for name, value in refused.items()} | {
        "compaction.checkpoint.dir": tmp_path / "checkpoint"
    }
    command = [sys.executable, "-m", "holdfast", "compact", "--once"]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    # Before it stands the warning of a password that is sent in the clear, where one is.
    *others, line = ended.stderr.splitlines()
    assert [json.loads(other)["level"] for other in others] == ["warning"] * (login == "a mechanism"), others
    assert ended.returncode == Exit.DENIED, line
    assert line.startswith("Error: Kafka refuses the login: ")
    assert "not-the-" not in line
