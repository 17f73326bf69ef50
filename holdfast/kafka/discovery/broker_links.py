"""Links to Kafka's brokers, over the connections that the log uses: TLS and SASL as the client properties say."""

from functools import partial

from holdfast.kafka.addresses import Address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.links import Links
from holdfast.metrics.instruments import Counter


def broker_links(
    options: ConnectionOptions,
    timeout_ms: int,
    limits: CallLimits | None = None,
    throttle_time_ms: Counter | None = None,
) -> Links[BrokerConnection]:
    """Return links to the brokers of a cluster.

    Args:
        options: how to connect.
        timeout_ms: bounds connecting, and each answer.
        limits: bounds of each call.
        throttle_time_ms: counts the pauses that brokers ask for.
    """
    return Links(options.bootstrap, partial(_open, options, timeout_ms), Sender(limits, throttle_time_ms))


async def _open(options: ConnectionOptions, timeout_ms: int, address: Address) -> BrokerConnection:
    return await BrokerConnection.open(address, options, timeout_ms)
