"""A node with TLS and logins, as its clients, its admin and its workers reach it; certificate and password change under load."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.client import Client, LoginRefused, connect
from holdfast.client.connection import NodeConnection
from holdfast.console.outcomes import Exit
from holdfast.kafka.security import Security, read_security
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.nodes import PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until
from tests.world.identity.secured import SecuredFiles

pytestmark = pytest.mark.real


SILENT = "holdfast_workers_silent"


class Writer:
    """A client that writes one share partition without a pause; no write may fail."""

    def __init__(self, client: Client, topic_id: bytes) -> None:
        self._client = client
        self._topic_id = topic_id
        self.written = 0
        self.is_over = False

    async def run(self) -> None:
        await self._client.initialize("group", self._topic_id, 0, state_epoch=1, start_offset=0)
        while not self.is_over:
            offset = self.written
            batch = StateBatch(offset, offset, ACKNOWLEDGED, 1)
            await self._client.write("group", self._topic_id, 0, 1, 0, -1, [batch])
            self.written += 1

    async def go_on(self) -> None:
        """Wait for some writes more."""
        until = self.written + 5
        await wait_until(lambda: self.written >= until)


def security_of(files: SecuredFiles, name: str, password: str) -> Security:
    path = files.directory / f"{name}.properties"
    path.write_text(files.properties_of(name, password))
    return read_security(path)


def connections_of(client: Client) -> list[NodeConnection]:
    return list(client._nodes.links._connections.values())


async def wait_taken(node: NodeProcess, event: str, times: int) -> None:
    await wait_until(lambda: sum(line["event"] == event for line in node.events()) >= times, f"{event} {times} times")


async def test_certificate_and_password_change_under_load_without_a_failed_request(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    files = SecuredFiles(tmp_path)
    topic_id = topic_id_of(kafka, new_topic(1))
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**files.settings, **{"files.reload.interval.ms": 200})
        await node.start()
        async with connect(node.address, PATIENT_CLIENT, node.security) as client:
            writer = Writer(client, topic_id)
            writing = asyncio.create_task(writer.run())
            await wait_until(lambda: writer.written > 5 or writing.done())
            opened = connections_of(client)

            # By a look at the files, and at once by SIGHUP.
            files.show(files.authority.sign("renewed", "/CN=renewed"))
            await wait_taken(node, "certificate_loaded", 2)
            files.let_in(admin="changed", orders="sesame")
            node.signal(signal.SIGHUP)
            await wait_taken(node, "users_loaded", 2)
            await writer.go_on()

            with pytest.raises(LoginRefused):
                async with connect(node.address, PATIENT_CLIENT, node.security):
                    pass
            async with connect(node.address, PATIENT_CLIENT, security_of(files, "admin", "changed")) as renewed:
                [link] = connections_of(renewed)
                assert link._transport is not None
                assert link._transport.get_extra_info("peercert")["subject"] == ((("commonName", "renewed"),),)
                metrics = await renewed.admin("metrics")
            assert metrics["holdfast_logins_failed_total"] >= 1
            assert 0 < metrics["holdfast_certificate_days_left{port=listener}"] <= 2

            files.certificate.write_text("broken")
            await wait_taken(node, "certificate_refused", 1)
            await writer.go_on()
            writer.is_over = True
            async with asyncio.timeout(PATIENCE_S):
                await writing
            assert connections_of(client) == opened, "no connection was dropped"
            assert all(each.is_open for each in opened)
        assert [line for line in node.events() if line["event"] == "login_failed"]
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0


async def count_silent(node: NodeProcess) -> float:
    metrics = await node.ask("metrics")
    return sum(float(value) for name, value in metrics.items() if name.startswith(SILENT))


async def test_workers_and_the_command_line_reach_a_node_by_a_file_of_properties(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    files = SecuredFiles(tmp_path)
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**files.settings, workers=2, membership="group")
        await node.start()

        def run(*arguments: str) -> tuple[int, str]:
            result = CliRunner().invoke(main, [*arguments, "--address", node.address])
            return result.exit_code, result.output

        config = ("--command-config", str(files.client_properties))
        code, output = await asyncio.to_thread(run, *config, "status", "--alive")
        assert code == Exit.DONE, output
        # Each worker queries the other for its metrics, once both have started.
        deadline = time.monotonic() + PATIENCE_S
        while await count_silent(node):
            assert time.monotonic() < deadline, "a worker stays silent"
            await asyncio.sleep(0.05)
        code, output = await asyncio.to_thread(run, "status", "--alive")
        assert (code, "--address" in output) == (Exit.UNREACHABLE, True), output
        wrong = tmp_path / "wrong.properties"
        wrong.write_text(files.properties_of("admin", "guess"))
        code, output = await asyncio.to_thread(run, "--command-config", str(wrong), "status", "--alive")
        assert code == Exit.DENIED
        assert "invalid credentials" in output
