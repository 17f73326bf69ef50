"""Attackers of a page: what each gets, the memory of the process, and how long a healthy client waits meanwhile."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests import waiting
from tests.waiting import in_patience
from tests.world.http import get

SCRIPT: Final = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&{{7*7}}"
STREAMS: Final = 1_000
#: Looks of the healthy client during an attack, at least.
LOOKS_MIN: Final = 30
_WITNESS_S: Final = 0.01
_SILENT_S: Final = 0.1


class Row(NamedTuple):
    """A line of the table."""

    attack: str
    statuses: dict[int, int]  #: answers by status; 0: it was closed without one
    p99_s: float  #: of a healthy client meanwhile
    memory_mib: float  #: the most
    during_s: tuple[float, float]  #: from when until when, by `time.monotonic`


class Bounds(NamedTuple):
    """The bounds of a server that its attackers try."""

    connections_max: int
    patience_s: float  #: a connection without a whole request is closed after it


class Target:
    """The page, and a healthy client of it."""

    def __init__(
        self,
        port: int,
        pid: int,
        bounds: Bounds,
        healthy: ssl.SSLContext | None = None,
        hostile: ssl.SSLContext | None = None,
        attackers_host: str = "127.0.0.1",
        pause_s: float = 0.02,
    ) -> None:
        """Attack a page.

        Args:
            port: of the page.
            pid: of its process.
            bounds: of its server.
            healthy: the TLS of the healthy client; None: there is none.
            hostile: that of attackers.
            attackers_host: the address from which they come.
            pause_s: between two looks of the healthy client.
        """
        self.port, self._pid, self._bounds = port, pid, bounds
        self._healthy, self._hostile, self._pause_s = healthy, hostile, pause_s
        self._attackers_host = attackers_host
        self._late_s = 0.0
        self.rows: list[Row] = []

    def memory_mib(self) -> float:
        """Return the resident memory of the process."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1_024

    async def suffer(self, attack: str, attacking: Callable[[], Awaitable[Counter[int]]]) -> dict[int, int]:
        """Add the line of an attack; returns its statuses."""
        task, attacked_s = asyncio.ensure_future(attacking()), time.monotonic()
        times, memory_mib, witness = list[float](), 0.0, asyncio.ensure_future(self._watch_clock())
        while not task.done() or len(times) < LOOKS_MIN:
            began_s, late_s = time.perf_counter(), self._late_s
            try:
                answer = await in_patience(get(self.port, "/", self._healthy))
            except (OSError, IndexError):
                # While others wait, a connection that says nothing is soon closed, and a process that stalls says nothing.
                await asyncio.sleep(self._pause_s)
                assert self._late_s > late_s + _SILENT_S, "a healthy client was cut off"
                continue
            assert answer.status == 200
            took_s = time.perf_counter() - began_s
            memory_mib = max(memory_mib, self.memory_mib())
            await asyncio.sleep(self._pause_s)
            times.append(max(0.0, took_s - (self._late_s - late_s)))
        witness.cancel()
        times.sort()
        statuses = dict(sorted((await task).items()))
        p99_s = times[len(times) * 99 // 100]
        self.rows.append(Row(attack, statuses, p99_s, memory_mib, (attacked_s, time.monotonic())))
        return statuses

    async def _watch_clock(self) -> None:
        """Note how late this process is: a machine that stalls keeps a look waiting, and the page is not the reason."""
        while True:
            began_s = time.perf_counter()
            await asyncio.sleep(_WITNESS_S)
            self._late_s += max(0.0, time.perf_counter() - began_s - 2 * _WITNESS_S)

    async def ask(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self._hostile, local_addr=(self._attackers_host, 0)
        )
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

    async def names_with_script(self, paths: Sequence[str]) -> Counter[int]:
        """Look at pages that show names and values of others, none of which may be markup."""
        found = Counter[int]()
        for path in paths:
            answer = await in_patience(get(self.port, path, self._healthy))
            found[answer.status] += 1
            assert (SCRIPT.encode() in answer.body, b"<img" in answer.body) == (False, False), path
            assert answer.body.count(b"<script") == 1
        return found

    async def without_rights(self, paths: Sequence[str], times: int, secret: str) -> Counter[int]:
        """Ask for everything again and again; no answer may have a name that the reader may not see."""
        found = Counter[int]()
        for path in [*paths] * times:
            reader, writer = await self.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if path.startswith("/events"):
                found[await status_of(reader, writer, is_over=True)] += 1
                continue
            body = await in_patience(reader.read())
            await close(writer)
            found[int(body.split()[1]) if body else 0] += 1
            # Metrics name groups to all whom the port lets in.
            assert path == "/metrics" or secret.encode() not in body, path
        return found

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
        opened = [await self.ask("GET /gro") for _ in range(3 * self._bounds.connections_max)]

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
        assert time.monotonic() - began_s < self._bounds.patience_s + waiting.PATIENCE_S
        return found

    async def slow_readers(self) -> Counter[int]:
        """Ask for much, and take nothing of it; returns how many were cut off, as 0."""
        loop, clients = asyncio.get_running_loop(), list[socket.socket]()
        for _ in range(5):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.setblocking(False)
            client.bind((self._attackers_host, 0))
            await loop.sock_connect(client, ("127.0.0.1", self.port))
            # More than kernels keep for a connection.
            await loop.sock_sendall(client, b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
            clients.append(client)
        await asyncio.sleep(1.5 * self._bounds.patience_s)
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
    with suppress(OSError):  # those of TLS are some
        line = await in_patience(reader.readline())
    if is_over:
        await close(writer)
    return int(line.split()[1]) if line else 0


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await in_patience(writer.wait_closed())
