"""Admin commands: one request to one node, never repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.admin import ADMIN, ADMIN_VERSION, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.client.connection import NodeConnection
from holdfast.client.errors import AdminRefused, Disconnected
from holdfast.kafka.protocol.primitives import MalformedBody


async def run_command(connection: NodeConnection, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Run an admin command and return what it gave.

    Raises:
        AdminRefused: the node does not know the command, or refused it, or it failed there.
        ClientError: the node gave no answer.
    """
    version = connection.version_of("HoldfastAdmin", ADMIN, ADMIN_VERSION, ADMIN_VERSION)
    body = encode_admin_request(AdminRequest(command, dict(arguments)))
    frame, offset = await connection.request(ADMIN, version, body)
    try:
        error_code, error_message, result = decode_admin_response(frame, offset)
    except MalformedBody as error:
        raise Disconnected(f"The server at {connection.address} breaks the protocol. {error}") from error
    if error_code:
        raise AdminRefused(error_code, error_message or f"The node refused the command {command}.", command)
    return result
