"""What a service manager hears of a node over a socket of its own: ready, reload, stop, and silence when the loop hangs."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import connect
from tests.real.node.journal_writer import GROUP, Journal
from tests.real.node.test_kill import find_lost, writer_process
from tests.real.nodes import node_processes, topic_id_of
from tests.real.service.held_node import HELD
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import wait_until

pytestmark = pytest.mark.real

CONNECTIONS: Final = 8
ANSWERS: Final = 200
WATCHDOG_S: Final = 2


class ServiceManager:
    """The socket of a service manager, and what was heard on it."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.heard: list[str] = []

    async def hears(self, line: str) -> list[str]:
        """Wait for a line, and return what was heard before it, which is forgotten with it."""
        await wait_until(lambda: line in self.listen(), line)
        index = self.heard.index(line)
        before, self.heard = self.heard[:index], self.heard[index + 1 :]
        return before

    def listen(self) -> list[str]:
        """Return what was heard so far."""
        with suppress(BlockingIOError):
            while True:
                lines = self._server.recv(10_000).decode().split("\n")
                print(*lines)
                self.heard.extend(lines)
        return self.heard

    def is_silent_for(self, seconds: float) -> bool:
        """Wait so long for any message, as a service manager does; returns whether none came."""
        self._server.settimeout(seconds)
        try:
            self.heard.append(self._server.recv(10_000).decode())
        except TimeoutError:
            return True
        finally:
            self._server.setblocking(False)
        return False


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceManager]:
    """Give the service manager of all processes that the test starts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_S * 1_000_000))
        yield ServiceManager(server)


async def test_a_node_is_ready_reloads_and_drains_and_a_loop_that_hangs_falls_silent(
    manager: ServiceManager, kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic_id = topic_id_of(kafka, new_topic(CONNECTIONS))
    with node_processes(kafka, topic, tmp_path, ("tests.real.service.held_node",)) as make_node:
        node = make_node()
        node.launch()
        before = await manager.hears("READY=1")
        assert "STATUS=starting: the node starts" in before
        assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in before)
        assert (await node.status())["is_ready"]
        await manager.hears("WATCHDOG=1")

        node.signal(signal.SIGHUP)
        await manager.hears("RELOADING=1")
        assert "STOPPING=1" not in await manager.hears("READY=1")
        assert [line["event"] for line in node.events()].count("settings_reloaded") == 1

        async with connect(node.address) as client:
            for partition in range(CONNECTIONS):
                await client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
        with writer_process(node.address, topic_id, tmp_path / "journal", CONNECTIONS):
            journal = Journal(tmp_path / "journal")

            def is_reached() -> bool:
                # The socket is full after ten messages that nobody reads, and a node that stops waits for no room in it.
                manager.listen()
                return journal.read_on().answered.total() >= ANSWERS

            await wait_until(is_reached, f"{ANSWERS} answers")
            node.signal(signal.SIGTERM)
            await manager.hears("STOPPING=1")
            assert await node.wait_exit() == 0, node.last_words()
        answered = journal.read_on().answered
        assert "STATUS=stopping: a stop was requested" in manager.listen()
        assert "READY=1" not in manager.listen()

        node.launch()
        await manager.hears("READY=1")
        lost = await find_lost(node, topic_id, answered)
        print(f"{answered.total()} writes were answered until the end of the drain, {len(lost)} of them are lost")
        assert lost == []
        await manager.hears("WATCHDOG=1")
        node.signal(signal.SIGUSR1)
        await manager.hears(HELD.decode())
        assert manager.listen() == []
        assert manager.is_silent_for(WATCHDOG_S), manager.heard
        node.signal(signal.SIGABRT)
        assert await node.wait_exit() == -signal.SIGABRT
        assert "held_node.py" in node.last_words(), "where it hung is in its log"
