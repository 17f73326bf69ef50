"""Admin commands from this node to another one, over a connection of their own."""

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from holdfast.api.admin import ADMIN, ADMIN_VERSION, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.daemon.file_watch import Look, look_at
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, AnswerTimes, ConnectionOptions, secured_options
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.security import PLAINTEXT, read_security
from holdfast.metrics.line_limit import LineLimiter

_log = structlog.get_logger(__name__)

#: About one command to one node: it is queried again and again.
_LINES_PER_MINUTE_MAX: Final = 1
#: What this node calls itself.
_CLIENT_ID = "holdfast"


class NodeOptions:
    """How to reach other nodes, by a file of properties, which may change; without a file, in the clear.

    What is made of the files, a context of TLS above all, is kept until one of them changes.
    """

    def __init__(self, client_properties_file: str) -> None:
        """Read nothing yet."""
        self._path = Path(client_properties_file) if client_properties_file else None
        self._made: ConnectionOptions | None = None
        #: The files that it was made of, as they looked before.
        self._seen: dict[Path, Look] = {}

    def to(self, place: Address) -> ConnectionOptions:
        """Return how to reach the node at an address.

        Raises:
            PropertyRefused: a file is wrong.
        """
        if self._made is None or any(look_at(path) != look for path, look in self._seen.items()):
            self._made = self._make(place)
        return replace(self._made, bootstrap=(place,), answers=AnswerTimes())

    def _make(self, place: Address) -> ConnectionOptions:
        if self._path is None:
            return secured_options((place,), PLAINTEXT, _CLIENT_ID)
        seen = {self._path: look_at(self._path)}
        security = read_security(self._path)
        named = (
            (security.tls.authority_file, security.tls.certificate_file, security.tls.key_file) if security.tls else ()
        )
        seen |= {path: look_at(path) for path in map(Path, filter(None, named))}
        made = secured_options((place,), security, _CLIENT_ID)
        self._seen = seen
        return made


def workers_of(settings: Settings, limiter: LineLimiter) -> "OtherNodes":
    """Return the workers of this host: reached at an address of this machine, they show the certificate of the advertised host."""
    listener = settings.listener
    name = listener.advertised_address[0] if listener.advertised_listener else ""
    return OtherNodes(limiter, settings.security.client_properties_file, name)


class NodeSilent(Exception):
    """Another node gave no answer that can be read, or not in time; the text says why."""


class OtherNodes:
    """The other nodes, as this one reaches them."""

    def __init__(self, limiter: LineLimiter, client_properties_file: str = "", tls_name: str = "") -> None:
        """Reach nodes by the properties in this file (`NodeOptions`); their certificates are of `tls_name`, or of their hosts."""
        self._options = NodeOptions(client_properties_file)
        self._tls_name = tls_name
        self._limiter = limiter

    async def query(self, address: str, command: str, timeout_ms: int, **arguments: object) -> Any:  # noqa: ANN401
        """Return what the node at an address (`host:port`) answers to a command; None where it does not know it.

        Raises:
            NodeSilent: there was no answer in time, or this node may not have one, which is a log line as well.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                place = parse_address(address)
                options = replace(self._options.to(place), tls_name=self._tls_name)
                with closing(await BrokerConnection.open(place, options, timeout_ms)) as connection:
                    request = encode_admin_request(AdminRequest(command, arguments))
                    body = await connection.exchange(ADMIN, ADMIN_VERSION, request, is_flexible=True)
            answer = decode_admin_response(body)
        except (TimeoutError, ConnectionFailed, MalformedBody, PropertyRefused, ValueError) as failure:
            raise NodeSilent(str(failure) or type(failure).__name__) from failure
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._report(address, command, answer.error_message or "")
            raise NodeSilent(answer.error_message or "")
        return answer.result

    def _report(self, address: str, command: str, why: str) -> None:
        left_out = self._limiter.admit("node_query_denied", _LINES_PER_MINUTE_MAX, f"{address} {command}")
        if left_out is not None:
            _log.warning("node_query_denied", address=address, command=command, why=why, **left_out)
