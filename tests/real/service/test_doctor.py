"""The doctor beside a real broker: a node that is well, and a set-up with one fault of each kind."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry

from holdfast.broker.properties import HOST, choose_ports
from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.kafka.librdkafka_types import ConfigResource, ResourceType
from tests.real.running_node import make_settings, running
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.real


def examine(kafka: str, topic: str, address: str, *more: str) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
    """Run the doctor; returns its exit code, and by check what it found: level, text and remedy."""
    settings = (
        "kafka.bootstrap.servers=" + kafka,
        "state_topic=" + topic,
        "membership=static",
        "state_bytes_max=1048576",
    )
    flags = [part for each in settings for part in ("--set", each)]
    patient = ("--timeout-ms", str(PATIENCE_MS), "--address", address, "--json")
    result = CliRunner().invoke(main, ["doctor", *flags, *patient, *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in json.loads(result.stdout):
        found.setdefault(line["check"], []).append((line["level"], line["text"], line["remedy"]))
    return result.exit_code, found


def levels(found: dict[str, list[tuple[str, str, str]]], *checks: str) -> list[str]:
    return [level for check in checks for level, _, _ in found[check]]


async def test_a_node_that_is_well_and_a_set_up_that_is_not(kafka: str, topic: str, tmp_path: Path) -> None:
    async with running(make_settings(kafka, topic)) as node:
        code, found = await asyncio.to_thread(examine, kafka, topic, node.address)
        assert levels(found, "versions", "brokers", "clock", "ACLs", "node", "other nodes") == ["right"] * 7, found
        assert "Kafka 4.1 or newer" in found["brokers"][0][1]
        assert found["snapshot topic"][0][0] == "right"
        # One copy of everything, as on a machine for trials, and two log partitions.
        assert set(levels(found, "state topic")) == {"warning"}
        assert "one copy only" in found["state topic"][0][1]
        assert code == Exit.DONE, found
        strict, _ = await asyncio.to_thread(examine, kafka, topic, node.address, "--strict")
        assert strict == Exit.FAILED
        address = node.address
        bundle = str(tmp_path / "b.tar.gz")
        flags = ("--set", f"kafka.bootstrap.servers={kafka}", "--address", address, "--output", bundle, "--json")
        patient = ("--timeout-ms", str(PATIENCE_MS))
        result = await asyncio.to_thread(CliRunner().invoke, main, ["debug", "bundle", *flags, *patient])
        assert json.loads(result.stdout)["missing"] == []
        with tarfile.open(bundle) as archive:
            stacks = archive.extractfile("b/stacks.txt")
            assert stacks is not None
            assert "=== task holdfast-tick" in stacks.read().decode()

    entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": kafka})
    unsafe = admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
    for done in unsafe.values():
        done.result(PATIENCE_S)
    described = ConfigResource(ResourceType.TOPIC, topic)
    # The controller has it, and the broker learns it a moment later.
    await wait_until(
        lambda: admin.describe_configs([described])[described].result()["retention.ms"].value == "86400000"
    )
    dead = f"{HOST}:{choose_ports(1)[0].broker}"
    code, found = await asyncio.to_thread(examine, f"{kafka},{dead}", topic, address)
    assert code == Exit.FAILED
    [(level, text, remedy)] = [each for each in found["brokers"] if dead in each[1]]
    assert (level, "kafka.bootstrap.servers" in remedy) == ("wrong", True)
    [(level, text, remedy)] = found["state topic"]
    assert (level, "retention.ms=86400000" in text) == ("wrong", True)
    assert remedy.startswith("kafka-configs.sh --bootstrap-server")
    assert levels(found, "node") == ["warning"]
    assert levels(found, "clock", "ACLs") == ["right", "right"], "the other broker has answered"
