"""Who coordinates what: looked up in batches at any server, and remembered until a coordinator says that it is another one.

Source: KIP-699; what Apache Kafka's clients do about the errors of a look-up.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.find_coordinator import FIND_COORDINATOR, Found, Key, KeyType
from holdfast.kafka.discovery.links import OTHER_SERVER_AFTER_MS, Links
from holdfast.kafka.errors import ConnectionFailed, all_failed
from holdfast.kafka.protocol.error_codes import LOOK_UP_ELSEWHERE, SHARE_STATE_RETRIABLE

#: Between two tries of what may succeed later; the first, and the longest as they double.
PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
#: Keys whose coordinator is remembered.
CACHED_MAX: Final = 100_000


class Coordinators:
    """The coordinators of groups, transactions and share partitions of one cluster, looked up and remembered."""

    def __init__(
        self,
        links: Links[Any],
        *,
        other_server_after_ms: int = OTHER_SERVER_AFTER_MS,
        cached_max: int = CACHED_MAX,
    ) -> None:
        """Begin with none.

        Args:
            links: connections to the cluster.
            other_server_after_ms: how long a server may be silent before another is queried as well.
            cached_max: keys whose coordinator is remembered.
        """
        self._links = links
        self._other_server_after_s = other_server_after_ms / 1_000
        self._cached_max = cached_max
        self._known: dict[Key, Found] = {}
        #: Which server named a coordinator.
        self._named_by: dict[Address, Address] = {}
        #: Look-ups in flight, so that callers who miss the same key share one.
        self._under_way: dict[Key, asyncio.Task[dict[Key, Found]]] = {}

    async def find(self, key_type: KeyType, keys: Iterable[str]) -> list[Found]:
        """Return who coordinates each key, or why none is known, in the order of `keys`, duplicates included.

        Raises:
            ConnectionFailed: no server answered.
        """
        return await self.find_all([Key(key_type, key) for key in keys])

    async def find_all(self, keys: Sequence[Key]) -> list[Found]:
        """Return who coordinates each of some keys of any types; see `find`.

        Where a server knows none now, or is silent for a while, another one is queried as well.

        Raises:
            ConnectionFailed: no server answered.
        """
        found = {key: known for key in keys if (known := self._known.get(key)) is not None}
        if missing := [key for key in dict.fromkeys(keys) if key not in found]:
            if unasked := [key for key in missing if key not in self._under_way]:
                look_up = asyncio.create_task(self._look_up(unasked), name="holdfast-coordinators")
                self._under_way.update(dict.fromkeys(unasked, look_up))
                look_up.add_done_callback(self._settle)
            look_ups = {key: self._under_way[key] for key in missing}
            # Shielded, because others may wait for them too.
            await asyncio.gather(*map(asyncio.shield, dict.fromkeys(look_ups.values())))
            found |= {key: look_up.result()[key] for key, look_up in look_ups.items()}
        return [found[key] for key in keys]

    async def find_within(self, keys: Sequence[Key], timeout_s: float) -> list[Found]:
        """Return who coordinates each key, see `find_all`; where none is known now, it is looked up again until the time is over.

        Raises:
            ConnectionFailed: no server answered.
        """
        loop = asyncio.get_running_loop()
        ends_s, pause_s = loop.time() + timeout_s, PAUSE_FIRST_S
        while True:
            found = await self.find_all(keys)
            is_final = all(each.error_code not in SHARE_STATE_RETRIABLE for each in found)
            if is_final or loop.time() + pause_s >= ends_s:
                return found
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def forget(self, keys: Iterable[Key]) -> None:
        """Look these keys up again the next time, and last at the server whose answer led nowhere and at the one that it named."""
        for key in keys:
            known = self._known.pop(key, None)
            if known is None:
                continue
            if (named_by := self._named_by.pop(known.address, None)) is not None:
                self._links.put_last(named_by)
                self._links.put_last(known.address)

    def addresses(self) -> set[Address]:
        """Return where the coordinators of all keys are that are remembered."""
        return {found.address for found in self._known.values()}

    def _settle(self, done: "asyncio.Task[dict[Key, Found]]") -> None:
        for key in [key for key, look_up in self._under_way.items() if look_up is done]:
            del self._under_way[key]
        # Also asked for where nobody waits any more: what was not looked at would be reported as lost.
        if done.cancelled() or done.exception() is not None:
            return
        self._known.update((key, found) for key, found in done.result().items() if not found.error_code)
        for key in list(islice(self._known, max(0, len(self._known) - self._cached_max))):
            del self._known[key]

    async def _look_up(self, keys: Sequence[Key]) -> dict[Key, Found]:
        """Query one server after the other, and the next one as well where one is silent, until each key has a coordinator."""
        found: dict[Key, Found] = {}
        failures: list[ConnectionFailed] = []
        missing = list(keys)
        unqueried = deque(self._links.in_turn())
        queries: dict[asyncio.Task[dict[Key, Found]], Address] = {}
        try:
            while missing and (unqueried or queries):
                if unqueried:
                    address = unqueried.popleft()
                    queries[asyncio.create_task(self._query(address, missing), name="holdfast-coordinator")] = address
                patience_s = self._other_server_after_s if unqueried else None
                done, silent = await asyncio.wait(queries, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for query in silent if not done else ():
                    self._links.put_last(queries[query])
                for query in done:
                    address = queries.pop(query)
                    failure = query.exception()
                    if failure is None:
                        self._take(query.result(), address, found)
                    elif isinstance(failure, ConnectionFailed):
                        failures.append(failure)
                        self._links.put_last(address)
                    else:
                        raise failure
                missing = [key for key in keys if key not in found or found[key].error_code in LOOK_UP_ELSEWHERE]
        finally:
            for query in queries:
                query.cancel()
            # Awaited, for how one ends that nobody looks at would be reported as lost.
            await asyncio.gather(*queries, return_exceptions=True)
        if not found:
            raise all_failed(failures)
        return found

    def _take(self, answers: dict[Key, Found], address: Address, found: dict[Key, Found]) -> None:
        """Add what a server answered to what is found; a refusal replaces no coordinator."""
        for key, answer in answers.items():
            if not answer.error_code:
                self._named_by[answer.address] = address
            elif key in found and not found[key].error_code:
                continue
            found[key] = answer
        for named in list(islice(self._named_by, max(0, len(self._named_by) - self._cached_max))):
            del self._named_by[named]

    async def _query(self, address: Address, keys: Sequence[Key]) -> dict[Key, Found]:
        return await self._links.call(address, FIND_COORDINATOR, keys)
