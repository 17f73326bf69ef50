"""A server of the tests leaves no socket behind, however far the loop was with a connection when it ended."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.server.security import NodeSecurity
from holdfast.daemon.settings.components.listener import SecuritySettings
from tests.world.context import make_context
from tests.world.identity.access import AUDIT
from tests.world.identity.secured import SecuredFiles
from tests.world.serving import serve


async def end_beside_new_connections(settings: SecuritySettings, turns: int) -> None:
    context = make_context()
    security = NodeSecurity(settings, FileWatch(context), context, AUDIT)
    with ExitStack() as clients:
        async with serve(security=security) as served:
            await asyncio.sleep(0)
            for _ in range(2):
                client = clients.enter_context(socket.socket())
                client.connect(("127.0.0.1", served.server.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        await security.stop()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_no_socket_is_left_whenever_a_server_ends(protocol: str, tmp_path: Path) -> None:
    files = SecuredFiles(tmp_path)
    security = (
        SecuritySettings(
            security_protocol="SSL",
            ssl_certificate_location=str(files.certificate),
            client_properties_file="unused",
        )
        if protocol == "SSL"
        else SecuritySettings()
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for turns in range(8):
            asyncio.run(end_beside_new_connections(security, turns))
            gc.collect()
    assert [str(warning.message) for warning in found] == []
