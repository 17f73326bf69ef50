"""Admin commands from this node to another one, over a connection of their own."""

import asyncio
from typing import Any

from holdfast.api.admin import ADMIN, ADMIN_VERSION, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.connection import BrokerConnection, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.primitives import MalformedBody


class NodeSilent(Exception):
    """Another node gave no answer that can be read, or not in time; the text says why."""


async def query_other_node(address: str, command: str, timeout_ms: int, **arguments: object) -> Any:  # noqa: ANN401
    """Return what the node at an address (`host:port`) answers to a command; None where it refuses it.

    Raises:
        NodeSilent: there was no answer in time.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            place = parse_address(address)
            connection = await BrokerConnection.open(place, ConnectionOptions(bootstrap=(place,)), timeout_ms)
            try:
                request = encode_admin_request(AdminRequest(command, arguments))
                body = await connection.exchange(ADMIN, ADMIN_VERSION, request, is_flexible=True)
            finally:
                connection.close()
        return decode_admin_response(body).result
    except (TimeoutError, ConnectionFailed, MalformedBody, ValueError) as failure:
        raise NodeSilent(str(failure) or type(failure).__name__) from failure
