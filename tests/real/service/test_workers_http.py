"""The HTTP port of two workers, guarded in each way, over a listener with a login or without one."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.real.nodes import NodeProcess, node_processes
from tests.waiting import PATIENCE_S
from tests.world.http import Answer, get
from tests.world.identity.secured import SecuredFiles

pytestmark = pytest.mark.real

TOKEN = "open sesame"


class HostHttp:
    """The HTTP port of all workers of a host, as its clients see it."""

    def __init__(self, host: NodeProcess, context: ssl.SSLContext, headers: Mapping[str, str]) -> None:
        self._host = host
        self._context = context
        self._headers = headers

    async def get(self, path: str, *, is_known: bool = True) -> Answer:
        """Request a path, with the token or without it."""
        events = self._host.events()
        [port] = [line["port"] for line in events if line["event"] == "http_listening" and "node_id" not in line]
        return await get(port, path, self._context, **(self._headers if is_known else {}))

    async def wait(self, path: str, wanted: bytes, *, is_known: bool = True) -> Answer:
        """Request a path until it is answered by 200 and these bytes."""
        deadline_s, answer = time.monotonic() + PATIENCE_S, Answer(0, {}, b"")
        while not (answer.status == 200 and wanted in answer.body):
            assert time.monotonic() < deadline_s, f"{answer}\n{self._host.last_words()}"
            await asyncio.sleep(0.1)
            try:
                answer = await self.get(path, is_known=is_known)
            except (OSError, ValueError, IndexError):  # it does not listen yet
                continue
        return answer


def client_of(files: SecuredFiles) -> ssl.SSLContext:
    """Return the TLS of a client that trusts the authority of the files."""
    context = ssl.create_default_context(cafile=str(files.authority.certificate))
    context.check_hostname = False  # the certificate is of the advertised name, which leads nowhere
    return context


@pytest.mark.parametrize("guard", ["a token", "certificates"])
async def test_workers_are_shown_at_one_guarded_port(kafka: str, topic: str, tmp_path: Path, guard: str) -> None:
    files = SecuredFiles(tmp_path)
    # As certificates are outside of tests: of the name that clients connect to, and of no address of this machine.
    files.show(files.authority.sign("named", "/CN=node", host="DNS:node.example"))
    settings: dict[str, object] = {
        "workers": 2,
        "membership": "group",
        "listen": "127.0.0.1:0",
        "http.tls.certificate.file": files.certificate,
        "files.reload.interval.ms": 3_600_000,
    }
    context, headers = client_of(files), {}
    if guard == "a token":
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        settings |= {
            **files.settings,
            "advertised_listener": "node.example:9492",
            "http.token.file": tmp_path / "token",
        }
        headers = {"Authorization": f"Bearer {TOKEN}"}
    else:
        settings["http.tls.client.ca.file"] = files.authority.certificate
        context.load_cert_chain(*files.authority.sign("scraper", "/CN=scraper"))
    with node_processes(kafka, topic, tmp_path) as make_process:
        host = make_process(**settings)
        host.launch()
        port = HostHttp(host, context, headers)
        await port.wait("/live", b"true")
        ready = await port.wait("/ready", b'"is_ready":true')
        assert ready.json() == {"is_ready": True, "why_not_ready": None, "log_partitions": []}
        metrics = await port.wait("/metrics", b"\nholdfast_workers_silent 0")
        assert all(f'holdfast_log_partitions{{node="{number}"'.encode() in metrics.body for number in (1, 2))
        if headers:
            # A worker that stalls for a second is not ready to the supervisor until it is asked again.
            ready = await port.wait("/ready", b'"is_ready":true', is_known=False)
            live, metrics, query = [
                await port.get(path, is_known=False) for path in ("/live", "/metrics", "/api/v1/partitions")
            ]
            assert (live.status, ready.json()) == (200, {"is_ready": True})
            assert (metrics.status, query.status) == (401, 401)
            (tmp_path / "token").write_text("another\n")
            host.signal(signal.SIGHUP)  # the files are not looked at by themselves in the time of this test
            deadline_s = time.monotonic() + PATIENCE_S
            while (await port.get("/metrics")).status != 401:
                assert time.monotonic() < deadline_s, host.last_words()
                await asyncio.sleep(0.1)
        else:
            with pytest.raises((OSError, IndexError)):  # the connection ends without an answer
                await HostHttp(host, client_of(files), {}).get("/live")
        host.kill()
