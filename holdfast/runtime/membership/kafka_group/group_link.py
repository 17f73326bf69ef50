"""The way to the coordinator of one group: found, connected, and looked up again when it has moved.

A broker answers the requests of one connection in order, and keeps JoinGroup and SyncGroup until the whole group has come.
So there are two connections, and heartbeats never wait behind those.
"""

import asyncio
from datetime import timedelta
from typing import Final

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.static.primitive import i8

from holdfast.kafka.connection import Address, BrokerConnection, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from holdfast.kafka.exchange import exchange, exchange_with_any
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.runtime.membership.kafka_group.messages import from_message, to_message
from holdfast.runtime.membership.requests import Answer, JoinGroup, Refused, Request, SyncGroup
from holdfast.runtime.membership.settings import HEARTBEATS_PER_SESSION, MembershipSettings

_GROUP_KEY: Final = i8(0)
#: What the group coordinator keeps until others have come.
_HELD: Final = (JoinGroup, SyncGroup)


class _Channel:
    """One connection to the coordinator; its requests go one after the other."""

    def __init__(self, answer_timeout_ms: int) -> None:
        self.answer_timeout_ms = answer_timeout_ms
        self.connection: BrokerConnection | None = None
        self.turn = asyncio.Lock()
        #: Until then the broker reads nothing on this connection (KIP-219), by the loop's clock.
        self.not_before_s = 0.0

    def close(self) -> None:
        """Close it; a later request opens another."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class GroupLink:
    """Requests to the coordinator of one group; whatever goes wrong on the way is an answer, too."""

    def __init__(self, options: ConnectionOptions, settings: MembershipSettings, protocol_type: str) -> None:
        """Describe the way; nothing is connected before the first request."""
        self._options = options
        self._settings = settings
        self._protocol_type = protocol_type
        # Of two lost heartbeats in a row the session outlives both.
        self._short_ms = min(settings.request_timeout_ms, settings.session_timeout_ms // HEARTBEATS_PER_SESSION)
        self._held = _Channel(settings.rebalance_timeout_ms + settings.request_timeout_ms)
        self._prompt = _Channel(self._short_ms)
        self._address: Address | None = None
        self._look_up = asyncio.Lock()

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
                self._heed(channel, response.throttle_time)
                return from_message(response)
        except VersionUnsupported as error:
            return Refused(ErrorCode.UNSUPPORTED_VERSION, str(error))
        except ConnectionFailed as error:
            channel.close()
            return Refused(ErrorCode.NETWORK_EXCEPTION, str(error))

    def forget(self) -> None:
        """Look the coordinator up again before the next request; what is in flight elsewhere fails."""
        self._address = None
        self.close()

    def close(self) -> None:
        """Close both connections; requests in flight fail, a later one connects again."""
        self._held.close()
        self._prompt.close()

    async def _connect(self, channel: _Channel) -> BrokerConnection | Refused:
        """Return the connection of a channel, open.

        Raises:
            ConnectionFailed: it did not come about.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, channel.not_before_s - loop.time()))
        if channel.connection is not None and channel.connection.is_open:
            return channel.connection
        async with self._look_up:
            if self._address is None:
                found = await self._find()
                if isinstance(found, Refused):
                    return found
                self._address = found
            address = self._address
        try:
            # The bound of answers is the connection's; to connect must not take that long.
            async with asyncio.timeout(self._short_ms / 1_000):
                channel.connection = await BrokerConnection.open(address, self._options, channel.answer_timeout_ms)
        except TimeoutError:
            raise ConnectionFailed(f"{address[0]}:{address[1]} let nobody in for {self._short_ms} ms") from None
        return channel.connection

    async def _find(self) -> Address | Refused:
        """Return where the coordinator is, or the error that brokers answer.

        Raises:
            ConnectionFailed: no broker answered.
        """
        request = FindCoordinatorRequest(key=self._settings.group_id, key_type=_GROUP_KEY)
        found = await exchange_with_any(
            self._options.bootstrap, self._options, self._short_ms, request, FindCoordinatorResponse
        )
        error_code = int(found.error_code.value)
        if error_code != ErrorCode.NONE:
            return Refused(error_code, found.error_message or "")
        return found.host, int(found.port)

    def _heed(self, channel: _Channel, throttle_time: timedelta) -> None:
        wait_s = min(throttle_time.total_seconds(), self._settings.session_timeout_ms / 1_000)
        if wait_s > 0:
            channel.not_before_s = asyncio.get_running_loop().time() + wait_s
