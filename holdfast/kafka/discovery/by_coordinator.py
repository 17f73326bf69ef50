"""Calls about keys, each made to the server that coordinates its key: one request for each of them, where its version allows.

A server that fails, fails its own keys only. Keys whose coordinator moved are looked up again, and what may succeed later is tried again
until the time is over; then each key has its latest value, errors included.

Source: KIP-699; `AdminApiDriver` of Apache Kafka's admin client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Call, I, V
from holdfast.kafka.discovery.coordinators import PAUSE_FIRST_S, PAUSE_MAX_S, Coordinators
from holdfast.kafka.discovery.find_coordinator import Key
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import COORDINATOR_LOST, ErrorCode, error_name


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
        run = _Run(call, key_of, retriable, dict.fromkeys(items, no_answer))
        try:
            async with asyncio.timeout(timeout_s):
                await self._finish(run, list(run.values), PAUSE_FIRST_S)
        except TimeoutError:
            unfinished = [item for item, value in run.values.items() if value is no_answer or run.is_open(item)]
            self._coordinators.forget(map(key_of, unfinished))
        return run.values

    async def _finish(self, run: _Run[I, V], items: Sequence[I], pause_s: float) -> None:
        """Send a request to each coordinator, and go on with each until its items have values that are final."""
        try:
            found = await self._coordinators.find_all([run.key_of(item) for item in items])
        except ConnectionFailed as failure:
            run.refuse(items, ErrorCode.NETWORK_EXCEPTION, str(failure))
            await self._finish_later(run, items, pause_s)
            return
        by_address: dict[Address, list[I]] = {}
        unplaced: list[I] = []
        for item, each in zip(items, found, strict=True):
            if each.error_code:
                text = f"{error_name(each.error_code)} {each.error_message or ''}".strip()
                run.refuse([item], each.error_code, f"no coordinator is named: {text}")
                unplaced.append(item)
            else:
                by_address.setdefault(each.address, []).append(item)
        at_servers = [self._finish_at(run, address, some, pause_s) for address, some in by_address.items()]
        await asyncio.gather(*at_servers, self._finish_later(run, unplaced, pause_s))

    async def _finish_at(self, run: _Run[I, V], address: Address, items: Sequence[I], pause_s: float) -> None:
        try:
            run.values.update(await self._links.call(address, run.call, items))
        except ConnectionFailed as failure:
            run.refuse(items, ErrorCode.NETWORK_EXCEPTION, str(failure))
        await self._finish_later(run, items, pause_s)

    async def _finish_later(self, run: _Run[I, V], items: Sequence[I], pause_s: float) -> None:
        """Try again what may succeed later; other servers are not waited for."""
        lost = [item for item in items if run.call.error_of(run.values[item]) in COORDINATOR_LOST]
        self._coordinators.forget(map(run.key_of, lost))
        if left := [item for item in items if run.is_open(item)]:
            await asyncio.sleep(pause_s)
            await self._finish(run, left, min(2 * pause_s, PAUSE_MAX_S))


@dataclass(frozen=True, slots=True)
class _Run(Generic[I, V]):
    """One call: what it is about, and the latest value of each item."""

    call: Call[I, V]
    key_of: Callable[[I], Key]
    retriable: Collection[int]
    values: dict[I, V]

    def is_open(self, item: I) -> bool:
        """Tell whether another try may give a better value."""
        return self.call.error_of(self.values[item]) in self.retriable

    def refuse(self, items: Sequence[I], error_code: int, reason: str) -> None:
        """Take an error for some items."""
        self.values.update(dict.fromkeys(items, self.call.refuse(error_code, reason)))
