"""`holdfast page` under attack, in one table: what each attacker gets, the memory of the process, and how long a healthy client waits."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from holdfast.client import connect
from holdfast.page.web.events import STREAMS_MAX
from holdfast.page.web.server import CONNECTIONS_MAX, PATIENCE_S
from holdfast.records.share.batches import AVAILABLE, StateBatch
from tests import waiting
from tests.real.nodes import topic_id_of
from tests.real.page.opened import page_command
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import in_patience
from tests.world.http import get

pytestmark = pytest.mark.real

SCRIPT: Final = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&{{7*7}}"
#: A page that is rendered while the machine is busy with a thousand connections takes longer than one that is not.
SLOWER_MAX: Final = 20
#: And this is no delay, however fast the calm page was.
DELAY_S: Final = 2.0
GROWTH_MAX_MIB: Final = 64
STREAMS: Final = 1_000
HALF_REQUESTS: Final = 3 * CONNECTIONS_MAX


class Row(NamedTuple):
    """A line of the table."""

    attack: str
    statuses: dict[int, int]  #: answers by status; 0: it was closed without one
    p99_s: float  #: of a healthy client meanwhile
    memory_mib: float


class Target:
    """The page, and a healthy client of it."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self._pid = port, pid
        self.rows: list[Row] = []

    def memory_mib(self) -> float:
        """Return the resident memory of the process."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1_024

    async def suffer(self, attack: str, attacking: Callable[[], Awaitable[Counter[int]]]) -> dict[int, int]:
        """Add the line of an attack; returns its statuses."""
        task = asyncio.ensure_future(attacking())
        times = list[float]()
        while not task.done() or len(times) < 30:
            began_s = time.perf_counter()
            answer = await in_patience(get(self.port, "/"))
            assert answer.status == 200
            times.append(time.perf_counter() - began_s)
            await asyncio.sleep(0.02)
        times.sort()
        statuses = dict(sorted((await task).items()))
        self.rows.append(Row(attack, statuses, times[len(times) * 99 // 100], self.memory_mib()))
        return statuses

    async def ask(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text.encode())
        return reader, writer

    async def status(self, path: str = "/", method: str = "GET", **headers: str) -> int:
        """Return the status of an answer; 0: there was none."""
        given = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return await status_of(*await self.ask(f"{method} {path} HTTP/1.1\r\n{lines}\r\n"), is_over=True)

    # ---- attacks -----------------------------------------------------------------------------------------------------

    async def calm(self) -> Counter[int]:
        return Counter([await self.status()])

    async def foreign_hosts(self) -> Counter[int]:
        return Counter([await self.status(Host=host) for host in ("evil.example", "localhost.evil.example", SCRIPT)])

    async def foreign_sites(self) -> Counter[int]:
        return Counter(
            [
                await self.status(Origin="http://evil.example"),
                await self.status(Origin="null"),
                await self.status("/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors"),
                await self.status(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe"),
            ]
        )

    async def other_methods(self) -> Counter[int]:
        return Counter([await self.status(method=method) for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE")])

    async def misspelled_names(self) -> Counter[int]:
        return Counter([await self.status(f"/group?group={'ab' * 124}{number}") for number in range(30)])

    async def event_streams(self) -> Counter[int]:
        """Have a thousand at once, and keep those that were given."""
        opened = [await self.ask("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(STREAMS)]
        found = Counter([await status_of(*each) for each in opened])
        for _, writer in opened:
            await close(writer)
        return found

    async def half_requests(self) -> Counter[int]:
        """Send a byte now and then, and never the end of a request; returns how many were cut off, as 0."""
        opened = [await self.ask("GET /gro") for _ in range(HALF_REQUESTS)]

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
            rest = asyncio.ensure_future(reader.read())
            while not rest.done():
                writer.write(b"x")
                await asyncio.wait([rest], timeout=1)
            with suppress(ConnectionError):
                await rest
            await close(writer)
            return 0

        began_s = time.monotonic()
        found = Counter(await asyncio.gather(*(drip(*each) for each in opened)))
        assert time.monotonic() - began_s < PATIENCE_S + waiting.PATIENCE_S
        return found

    async def slow_readers(self) -> Counter[int]:
        """Ask for much, and take nothing of it; returns how many were cut off, as 0."""
        loop, clients = asyncio.get_running_loop(), list[socket.socket]()
        for _ in range(5):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", self.port))
            # More than kernels keep for a connection.
            await loop.sock_sendall(client, b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
            clients.append(client)
        await asyncio.sleep(1.5 * PATIENCE_S)
        found = Counter[int]()
        for client in clients:
            with suppress(ConnectionError):
                while await in_patience(loop.sock_recv(client, 1 << 20)):
                    pass
            client.close()
            found[0] += 1
        return found


async def status_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_over: bool = False) -> int:
    """Return the status that comes; 0: none did."""
    line = b""
    with suppress(ConnectionError):
        line = await in_patience(reader.readline())
    if is_over:
        await close(writer)
    return int(line.split()[1]) if line else 0


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await in_patience(writer.wait_closed())


@asynccontextmanager
async def target(kafka: str, group: str) -> AsyncIterator[Target]:
    """Give the page, once it shows a group."""
    with page_command(kafka) as (port, pid):
        async with asyncio.timeout(waiting.PATIENCE_S):
            while (await get(port, f"/group?group={quote(group, safe='')}")).status != 200:
                pass
        yield Target(port, pid)


async def test_attackers_get_little_and_a_healthy_client_what_it_asks_for(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, SCRIPT, key=SCRIPT, headers=[(SCRIPT, SCRIPT.encode())])
    assert producer.flush(waiting.PATIENCE_S) == 0
    async with connect(kafka) as client:
        topic_id = topic_id_of(kafka, topic)
        await client.initialize(SCRIPT, topic_id, 0, state_epoch=1, start_offset=0)
        await client.write(SCRIPT, topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 3)])

    async with target(kafka, SCRIPT) as page:
        one = f"group={quote(SCRIPT, safe='')}&topic={topic}&partition=0"
        for path in ("/", f"/group?{one}", f"/window?{one}", f"/offset?{one}&offset=0", f"/record?{one}&offset=0"):
            answer = await get(page.port, path)
            assert (answer.status, SCRIPT.encode() in answer.body, b"<img" in answer.body) == (200, False, False), path
            assert answer.body.count(b"<script") == 1
        assert await page.suffer("none", page.calm) == {200: 1}
        assert await page.suffer("foreign Host", page.foreign_hosts) == {421: 3}
        assert await page.suffer("foreign Origin and site", page.foreign_sites) == {403: 4}
        assert await page.suffer("other methods", page.other_methods) == {405: 5}
        assert await page.suffer("misspelled long names", page.misspelled_names) == {404: 30}
        streams = await page.suffer(f"{STREAMS} event streams", page.event_streams)
        assert 0 < streams.get(200, 0) <= STREAMS_MAX
        assert streams.keys() <= {0, 200, 503}
        assert await page.suffer(f"{HALF_REQUESTS} half requests", page.half_requests) == {0: HALF_REQUESTS}
        assert await page.suffer("slow readers", page.slow_readers) == {0: 5}

    print()
    for row in page.rows:
        print(f"{row.attack:24} {row.statuses!s:36} p99 {1_000 * row.p99_s:6.0f} ms {row.memory_mib:5.0f} MiB")
    calm = page.rows[0]
    for row in page.rows:
        assert row.p99_s < max(DELAY_S, SLOWER_MAX * calm.p99_s), row
        assert row.memory_mib < calm.memory_mib + GROWTH_MAX_MIB, row
