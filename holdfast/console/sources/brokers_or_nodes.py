"""Why a client of brokers gets nowhere: a node listens in their place, which has none of the topics of users, or no broker lets us in."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.api.admin import ADMIN
from holdfast.console.outcomes import Exit, Failure
from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions, connection_options
from holdfast.kafka.errors import ConnectionFailed, LoginDenied, PropertyRefused
from holdfast.kafka.protocol.api_keys import SHARE_GROUP_HEARTBEAT

#: How long all addresses together may take; it is only looked at once one of them has answered.
_LOOK_TIMEOUT_MS: Final = 2_000


def node_instead(properties: Mapping[str, Any]) -> Failure | None:
    """Return the failure of a command that was sent to a node, which has no topic but the state topic, and no records; None: it was not."""
    node = find_node(properties)
    return None if node is None else _not_a_broker(node)


async def open_broker(address: Address, options: ConnectionOptions, timeout_ms: int) -> BrokerConnection:
    """Connect to a broker; `timeout_ms` bounds this and every later answer.

    Raises:
        ConnectionFailed: it did not come about.
        Failure: a node listens there, which coordinates no groups and would only say that it does not.
    """
    connection = await BrokerConnection.open(address, options, timeout_ms)
    if ADMIN in connection.versions:
        connection.close()
        raise _not_a_broker(format_address(*address))
    return connection


def find_node(properties: Mapping[str, Any]) -> str | None:
    """Return the first of the addresses of brokers at which a node listens; None: it is not known of any.

    Args:
        properties: librdkafka's; `bootstrap.servers` at least.
    """
    try:
        return asyncio.run(_find_node(connection_options(properties)))
    except PropertyRefused:  # librdkafka alone may understand it
        return None


def find_denied_login(properties: Mapping[str, Any]) -> LoginDenied | None:
    """Return why no broker lets us in; None: one does, or nobody can tell.

    librdkafka tries a login again until its user has no more time, and says nothing of a token that it was not given.

    Args:
        properties: librdkafka's; `bootstrap.servers` at least.
    """
    try:
        return asyncio.run(_find_denied_login(connection_options(properties)))
    except PropertyRefused:  # librdkafka alone may understand it
        return None


def has_share_groups(properties: Mapping[str, Any]) -> bool:
    """Tell whether the brokers have the calls of share groups; they are believed to where none can be asked.

    Args:
        properties: librdkafka's; `bootstrap.servers` at least.
    """
    try:
        versions = asyncio.run(_find_versions(connection_options(properties)))
    except PropertyRefused:  # librdkafka alone may understand it
        return True
    return not versions or SHARE_GROUP_HEARTBEAT in versions


async def _find_versions(options: ConnectionOptions) -> Collection[int]:
    """Return the API keys of the first broker that tells them."""
    for address in options.bootstrap:
        with suppress(TimeoutError, ConnectionFailed):
            async with asyncio.timeout(_LOOK_TIMEOUT_MS / 1_000):
                connection = await BrokerConnection.open(address, options, _LOOK_TIMEOUT_MS)
            connection.close()
            return connection.versions
    return ()


async def _find_denied_login(options: ConnectionOptions) -> LoginDenied | None:
    async def look(address: Address) -> BaseException | None:
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_MS / 1_000):
                connection = await BrokerConnection.open(address, options, _LOOK_TIMEOUT_MS)
        except (TimeoutError, ConnectionFailed) as failure:
            return failure
        connection.close()
        return None

    failures = await asyncio.gather(*map(look, options.bootstrap))
    return None if None in failures else next((each for each in failures if isinstance(each, LoginDenied)), None)


async def _find_node(options: ConnectionOptions) -> str | None:
    are_nodes = await asyncio.gather(*(_is_node(address, options) for address in options.bootstrap))
    nodes = (address for address, is_node in zip(options.bootstrap, are_nodes, strict=True) if is_node)
    return next((format_address(*address) for address in nodes), None)


async def _is_node(address: Address, options: ConnectionOptions) -> bool:
    try:
        async with asyncio.timeout(_LOOK_TIMEOUT_MS / 1_000):
            connection = await BrokerConnection.open(address, options, _LOOK_TIMEOUT_MS)
    except (TimeoutError, ConnectionFailed):
        return False
    connection.close()
    return ADMIN in connection.versions


def _not_a_broker(node: str) -> Failure:
    return Failure(
        f"{node} is a Holdfast node, not a Kafka broker; name brokers by --bootstrap-server.", Exit.WRONG_USAGE
    )
