"""The way to the coordinator of one group: found, connected, and looked up again when it has moved.

A broker answers the requests of one connection in order, and keeps JoinGroup and SyncGroup until the whole group has come.
So there are two connections, and heartbeats never wait for such answers.
"""

import asyncio
from typing import Final

from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.calls import CallLimits
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.discovery.links import OTHER_SERVER_AFTER_MS
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.exchange import broker_links, exchange, to_ms
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership.kafka_group.messages import from_message, to_message
from holdfast.membership.requests import Answer, JoinGroup, Refused, Request, SyncGroup
from holdfast.membership.settings import HEARTBEATS_PER_SESSION, MembershipSettings
from holdfast.metrics.instruments import Counter

#: Requests that the group coordinator keeps until others have come.
_HELD: Final = (JoinGroup, SyncGroup)
#: Servers that are queried for the coordinator while the first of them may still answer.
_SERVERS_PER_LOOK_UP: Final = 4


class _Channel:
    """One connection to the coordinator; its requests go one after the other."""

    def __init__(self, answer_timeout_ms: int) -> None:
        self.answer_timeout_ms = answer_timeout_ms
        self.connection: BrokerConnection | None = None
        #: How often it was closed.
        self.closings = 0
        self.turn = asyncio.Lock()

    def close(self) -> None:
        """Close it, also where it is being opened; a later request opens another."""
        self.closings += 1
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class GroupLink:
    """Requests to the coordinator of one group; any failure on the way is an answer, too."""

    def __init__(
        self,
        options: ConnectionOptions,
        settings: MembershipSettings,
        protocol_type: str,
        throttle_time_ms: Counter | None = None,
    ) -> None:
        """Describe the way; nothing is connected before the first request.

        Args:
            options: how to connect to the cluster.
            settings: of the member.
            protocol_type: of the group.
            throttle_time_ms: counts the pauses that brokers ask for.
        """
        self._options = options
        self._settings = settings
        self._protocol_type = protocol_type
        # A part of the session, so that two lost heartbeats in a row do not end it.
        self._short_ms = min(settings.request_timeout_ms, settings.session_timeout_ms // HEARTBEATS_PER_SESSION)
        self._held = _Channel(settings.rebalance_timeout_ms + settings.request_timeout_ms)
        self._prompt = _Channel(self._short_ms)
        #: By channel: the broker throttles the one on which it said so (KIP-219).
        self._throttle: Throttle[_Channel] = Throttle(
            settings.session_timeout_ms, throttle_time_ms or Counter(), asyncio.get_running_loop().time
        )
        self._key = Key(KeyType.GROUP, settings.group_id)
        limits = CallLimits(throttle_max_ms=settings.session_timeout_ms)
        self._links = broker_links(options, self._short_ms, limits, throttle_time_ms)
        patience_ms = min(OTHER_SERVER_AFTER_MS, self._short_ms // _SERVERS_PER_LOOK_UP)
        self._coordinators = Coordinators(self._links, other_server_after_ms=patience_ms)

    async def exchange(self, request: Request) -> Answer:
        """Send a request and return its answer; an error of the look-up or of the connection is one."""
        message, response_type = to_message(request, self._settings, self._protocol_type)
        channel = self._held if isinstance(request, _HELD) else self._prompt
        try:
            async with channel.turn:
                found = await self._connect(channel)
                if isinstance(found, Refused):
                    return found
                response = await exchange(found, message, response_type)
                self._throttle.on_answer(channel, to_ms(response.throttle_time))
                return from_message(response)
        except VersionUnsupported as error:
            return Refused(ErrorCode.UNSUPPORTED_VERSION, str(error))
        except ConnectionFailed as error:
            channel.close()
            return Refused(ErrorCode.NETWORK_EXCEPTION, str(error))

    def forget(self) -> None:
        """Look the coordinator up again before the next request; what is in flight elsewhere fails."""
        self._coordinators.forget([self._key])
        self.disconnect()

    def disconnect(self) -> None:
        """Close both connections; requests in flight fail, a later one connects again."""
        self._held.close()
        self._prompt.close()

    def close(self) -> None:
        """Close every connection, for good."""
        self.forget()
        self._links.close()

    async def _connect(self, channel: _Channel) -> BrokerConnection | Refused:
        """Return the connection of a channel, open, or the error that brokers answered to the look-up.

        Raises:
            ConnectionFailed: it did not come about, or no broker answered.
        """
        closings = channel.closings
        await asyncio.sleep(self._throttle.wait_s(channel))
        if channel.connection is not None and channel.connection.is_open:
            return channel.connection
        [found] = await self._coordinators.find_all([self._key])
        if found.error_code:
            return Refused(found.error_code, found.error_message or "")
        connection = await self._open(found.address, channel.answer_timeout_ms)
        if channel.closings != closings:
            connection.close()
            raise ConnectionFailed("the connection was closed while it was opened")
        channel.connection = connection
        return connection

    async def _open(self, address: Address, answer_timeout_ms: int) -> BrokerConnection:
        """Return a new connection.

        Raises:
            ConnectionFailed: it did not come about.
        """
        try:
            # To connect must not take as long as an answer, and each of several addresses needs its part of that.
            async with asyncio.timeout(self._short_ms / 1_000):
                return await BrokerConnection.open(address, self._options, self._short_ms, answer_timeout_ms)
        except TimeoutError:
            raise ConnectionFailed(f"{format_address(*address)} let nobody in for {self._short_ms} ms") from None
