"""Links to Kafka's brokers, over the connections that the log uses: TLS and SASL as the client properties say."""

from functools import partial

from holdfast.kafka.addresses import Address
from holdfast.kafka.connection import BrokerConnection, ConnectionOptions
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.links import Links


def broker_links(
    options: ConnectionOptions, timeout_ms: int, limits: CallLimits | None = None
) -> Links[BrokerConnection]:
    """Return links to the brokers of a cluster; `timeout_ms` bounds connecting, and each answer."""
    return Links(options.bootstrap, partial(_open, options, timeout_ms), Sender(limits))


async def _open(options: ConnectionOptions, timeout_ms: int, address: Address) -> BrokerConnection:
    return await BrokerConnection.open(address, options, timeout_ms)
