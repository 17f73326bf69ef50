"""Calls about keys, each made to the server that coordinates its key: one request for each of them, where its version allows.

A server that fails, fails its own keys only. Keys whose coordinator moved are looked up again, and what may succeed later is tried again
until the time is over; then each key has its latest value, errors included.

Source: KIP-699; `AdminApiDriver` of Apache Kafka's admin client.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Call, I, V
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import COORDINATOR_LOST, ErrorCode, error_name

_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


class ByCoordinator:
    """Calls to the coordinators of one cluster."""

    def __init__(self, links: Links[Any], coordinators: Coordinators) -> None:
        """Use connections and look-ups that may have other users, too."""
        self._links = links
        self._coordinators = coordinators

    async def call(
        self,
        call: Call[I, V],
        key_of: Callable[[I], Key],
        items: Sequence[I],
        retriable: Collection[int],
        timeout_s: float,
    ) -> dict[I, V]:
        """Make a call about some items and return the value of each, in the order of `items`.

        Args:
            call: the row of the API.
            key_of: returns what coordinates an item.
            items: what the call is about.
            retriable: error codes after which an item is tried again.
            timeout_s: bounds all tries and waits; what has no answer by then is an error, REQUEST_TIMED_OUT.
        """
        no_answer = call.refuse(ErrorCode.REQUEST_TIMED_OUT, "no answer came")
        values = dict.fromkeys(items, no_answer)
        left, pause_s = list(values), _PAUSE_FIRST_S
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._try(call, key_of, left, values)
                    left = [item for item in left if call.error_of(values[item]) in retriable]
                    if not left:
                        return values
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        except TimeoutError:
            self._coordinators.forget(key_of(item) for item in left)
        return values

    async def _try(self, call: Call[I, V], key_of: Callable[[I], Key], items: Sequence[I], values: dict[I, V]) -> None:
        """Send a request to each coordinator, and put what came of it into `values`."""
        keys = {item: key_of(item) for item in items}
        try:
            found = await self._coordinators.find_all(list(keys.values()))
        except ConnectionFailed as failure:
            values.update(dict.fromkeys(items, call.refuse(ErrorCode.NETWORK_EXCEPTION, str(failure))))
            return
        by_address: dict[Address, list[I]] = {}
        for item, each in zip(keys, found, strict=True):
            if each.error_code:
                text = f"{error_name(each.error_code)} {each.error_message or ''}".strip()
                values[item] = call.refuse(each.error_code, f"no coordinator is named: {text}")
            else:
                by_address.setdefault(each.address, []).append(item)
        await asyncio.gather(*(self._send(call, address, some, values) for address, some in by_address.items()))
        self._coordinators.forget(keys[item] for item in items if call.error_of(values[item]) in COORDINATOR_LOST)

    async def _send(self, call: Call[I, V], address: Address, items: Sequence[I], values: dict[I, V]) -> None:
        try:
            connection = await self._links.to(address)
            values.update(await self._links.sender.send(address, connection, call, items))
        except ConnectionFailed as failure:
            values.update(dict.fromkeys(items, call.refuse(ErrorCode.NETWORK_EXCEPTION, str(failure))))
