"""Links to Kafka's brokers, over the connections that the log uses: TLS and SASL as the client properties say."""

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.kafka.addresses import Address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.links import Links
from holdfast.metrics.instruments import Counter


async def _open(options: ConnectionOptions, timeout_ms: int, address: Address) -> BrokerConnection:
    return await BrokerConnection.open(address, options, timeout_ms)


def broker_links(
    options: ConnectionOptions,
    timeout_ms: int,
    limits: CallLimits | None = None,
    throttle_time_ms: Counter | None = None,
    open_broker: Callable[[ConnectionOptions, int, Address], Awaitable[BrokerConnection]] = _open,
) -> Links[BrokerConnection]:
    """Return links to the brokers of a cluster.

    Args:
        options: how to connect.
        timeout_ms: bounds connecting, and each answer.
        limits: bounds of each call.
        throttle_time_ms: counts the pauses that brokers ask for.
        open_broker: connects to one of them.
    """
    return Links(options.bootstrap, partial(open_broker, options, timeout_ms), Sender(limits, throttle_time_ms))
