"""Connections to the nodes of a cluster: one each, opened when first needed and again when it ended."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.errors import Disconnected
from holdfast.client.settings import ClientSettings
from holdfast.kafka import addresses
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.oauth.sources import Bearer
from holdfast.kafka.security import PLAINTEXT, Security, make_ssl_context


class Nodes:
    """The connections of one client."""

    def __init__(self, bootstrap: Sequence[Address], settings: ClientSettings, security: Security = PLAINTEXT) -> None:
        limits = CallLimits(
            items_per_request_max=settings.share_partitions_per_request_max,
            requests_in_flight_max=settings.requests_in_flight_max,
            throttle_max_ms=settings.throttle_max_ms,
        )

        if isinstance(security.sasl, Bearer):
            raise PropertyRefused(
                "sasl.mechanism OAUTHBEARER is for brokers; nodes know PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512."
            )
        sasl = security.sasl
        ssl_context = None if security.tls is None else make_ssl_context(security.tls)

        async def open_one(address: addresses.Address) -> NodeConnection:
            return await open_connection(Address(*address), settings, ssl_context, sasl)

        #: For the look-up of coordinators.
        self.links = Links(bootstrap, open_one, Sender(limits), max_age_ms=settings.metadata_max_age_ms)

    async def to(self, address: Address) -> NodeConnection:
        """Return an open connection to a node.

        Raises:
            Disconnected: it cannot be opened.
        """
        try:
            return await self.links.to(address)
        except ConnectionFailed as failure:
            raise Disconnected(str(failure)) from failure

    async def any(self) -> NodeConnection:
        """Return an open connection to any node that can be reached: those known by name, and those that Metadata named.

        Raises:
            Disconnected: none can be reached.
        """
        try:
            return await self.links.any()
        except ConnectionFailed as failure:
            raise Disconnected(str(failure)) from failure

    def close(self) -> None:
        """Close all connections, for good."""
        self.links.close()
