"""Addresses as text: `host:port`, an IPv6 host in brackets."""

import re
from typing import Final

#: Host and port.
Address = tuple[str, int]

#: Where a node listens unless its settings say otherwise.
DEFAULT_PORT: Final = 9492

_PORT_MAX: Final = 65_535


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Return host and port of `host:port`; where there is a default, the port may be left out.

    Raises:
        ValueError: it is not of that form, or the port is not between 0 and 65535.
    """
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or text.endswith("]")):
        host, colon, port = text, ":", str(default_port)
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX
    host = host[1:-1] if is_bracketed else host
    if not (colon and host and is_port) or re.search(r"\s", host) or (":" in host and not is_bracketed):
        raise ValueError(f"it must be host:port, as in 127.0.0.1:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Return `host:port`, which `parse_address` splits again."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_host(text: str) -> str:
    """Return the host of a text that `format_address` made, and any other text as it is."""
    try:
        return parse_address(text)[0]
    except ValueError:
        return text
