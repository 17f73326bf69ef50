"""A client of the HTTP port that sees every byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

#: What a browser prefers that goes to an address.
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def get(
    port: int,
    path: str,
    context: ssl.SSLContext | None = None,
    method: str = "GET",
    host: str = "localhost",
    **headers: str,
) -> Answer:
    """Request a path on a connection of its own; the names of headers have underscores for hyphens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write(
            "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""]).encode()
        )
        return parse(await reader.read())
    finally:
        writer.close()


def parse(data: bytes) -> Answer:
    """Return the one answer that these bytes are."""
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers.get("content-length", str(len(body))) == str(len(body))
    return Answer(int(status.split()[1]), headers, body)
