"""A Kafka-protocol client of the daemon: coordinator look-up and the five share-state calls.

    async with connect("127.0.0.1:9492") as client:
        await client.initialize("group", "orders", partition=0, state_epoch=1, start_offset=0)
        await client.write("group", "orders", partition=0, state_epoch=1, leader_epoch=0, start_offset=-1,
                           state_batches=[StateBatch(0, 9, ACKNOWLEDGED, 1)])
        state = await client.read("group", "orders", partition=0, leader_epoch=1)

It talks to Apache Kafka's own share coordinator as well.
"""

from holdfast.client.client import Client, connect
from holdfast.client.errors import (
    AdminRefused,
    ClientError,
    Disconnected,
    LoginRefused,
    RequestTimedOut,
    ShareStateError,
    Unsupported,
)
from holdfast.client.settings import ClientSettings

__all__ = [
    "AdminRefused",
    "Client",
    "ClientError",
    "ClientSettings",
    "Disconnected",
    "LoginRefused",
    "RequestTimedOut",
    "ShareStateError",
    "Unsupported",
    "connect",
]
