"""The groups of a cluster: listed by every broker, described and deleted at their coordinators, with as many requests as there are of them.

A group that fails, fails alone: each has its value, errors included.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.discovery.by_coordinator import ByCoordinator
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.discovery.group_calls import (
    ALL,
    CLASSIC,
    CONSUMER,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DESCRIBE_OTHERS,
    LEAVE_GROUP,
    LIST_GROUPS,
    SHARE,
    Deleted,
    Described,
    Dismissal,
    Dismissed,
    Listed,
    Listing,
)
from holdfast.kafka.discovery.group_offset_calls import OFFSET_FETCH, Offsets, Wanted
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import (
    COORDINATOR_LOST,
    GROUP_OFFSETS_RETRIABLE,
    NOT_COORDINATED,
    ErrorCode,
    error_name,
)

_RETRIABLE = NOT_COORDINATED | COORDINATOR_LOST
#: What a broker says of a group that is not of the type that a call is for, or where it knows no such type.
_OF_ANOTHER_TYPE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
#: The types, by Kafka's names, that one of the calls describes.
_DESCRIBABLE = frozenset({CLASSIC, CONSUMER, SHARE})


class AllGroups(NamedTuple):
    """The groups of a cluster, and why some may be missing."""

    #: By their ids.
    groups: tuple[Listed, ...]
    #: Broker to why its groups are not known.
    failures: Mapping[Address, str]


class Groups:
    """Calls about the groups of one cluster."""

    def __init__(self, links: Links[Any], timeout_ms: int) -> None:
        """Use connections that may have other users, too; `timeout_ms` bounds each call, with all its tries."""
        self._links = links
        self._timeout_s = timeout_ms / 1_000
        self._coordinators = Coordinators(links)
        self._calls = ByCoordinator(links, self._coordinators)

    async def list_all(self) -> AllGroups:
        """Return all groups, each broker queried for those that it coordinates.

        Raises:
            ConnectionFailed: no broker can be reached.
        """
        await self._links.any()
        addresses = self._links.learned or self._links.bootstrap
        listings = await asyncio.gather(*map(self._list, addresses))
        groups = {group.group: group for listing in listings for group in listing.groups}
        failures = {
            address: listing.reason or error_name(listing.error_code)
            for address, listing in zip(addresses, listings, strict=True)
            if listing.error_code
        }
        return AllGroups(tuple(group for _, group in sorted(groups.items())), failures)

    async def describe(self, groups: Sequence[str]) -> dict[str, Described]:
        """Return what each group is, in the order of `groups`: one request for each coordinator and type.

        A group that is not known as one of a type is looked for as one of the next; all tries together are bounded by the time-out.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timeout_s
        described = await self._calls.call(DESCRIBE_GROUPS, _key_of, groups, _RETRIABLE, self._timeout_s)
        for call in DESCRIBE_OTHERS:
            unknown = [group for group, each in described.items() if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND]
            if not unknown:
                break
            found = await self._calls.call(call, _key_of, unknown, _RETRIABLE, max(0.0, ends_s - loop.time()))
            described |= {group: each for group, each in found.items() if each.error_code not in _OF_ANOTHER_TYPE}
        return described

    async def describe_or_name(self, groups: Sequence[str]) -> dict[str, Described]:
        """Return what `describe` does, and of groups that no call knows and their coordinator lists all the same type, state and an error.

        Where no server says who coordinates a group, it ends at once; so a cluster that is gone is not waited for.
        A group that is in no list is missing only where its coordinator gave one, for which it has the whole time-out once more.

        Raises:
            ConnectionFailed: no server can be reached.
        """
        await self._coordinators.find_all([_key_of(group) for group in groups])
        described = await self.describe(groups)
        unknown = [group for group, each in described.items() if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND]
        if not unknown:
            return described
        coordinators = await self._coordinators.find_all([_key_of(group) for group in unknown])
        addresses = dict.fromkeys(each.address for each in coordinators)
        listings = dict(zip(addresses, await asyncio.gather(*map(self._list, addresses)), strict=True))
        for group, coordinator in zip(unknown, coordinators, strict=True):
            listing = listings[coordinator.address]
            listed = next((each for each in listing.groups if each.group == group), None)
            if listed is not None:
                described[group] = _named(listed)
            elif listing.error_code:
                reason = f"its coordinator does not list its groups: {listing.reason or error_name(listing.error_code)}"
                described[group] = Described(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, reason=reason)
        return described

    async def offsets(self, groups: Sequence[str]) -> dict[str, Offsets]:
        """Return what each group committed, in the order of `groups`: one request for each coordinator that can take it."""
        wanted = [Wanted(group) for group in groups]
        offsets = await self._calls.call(
            OFFSET_FETCH, lambda item: _key_of(item.group), wanted, GROUP_OFFSETS_RETRIABLE, self._timeout_s
        )
        return {item.group: each for item, each in offsets.items()}

    async def delete(self, groups: Sequence[str]) -> dict[str, Deleted]:
        """Delete groups, in one request for each coordinator; one that was deleted by a try whose answer was lost is unknown then."""
        return await self._calls.call(DELETE_GROUPS, _key_of, groups, _RETRIABLE, self._timeout_s)

    async def dismiss(self, dismissals: Sequence[Dismissal]) -> dict[Dismissal, Dismissed]:
        """Take dynamic members out of their groups: one request for each group; one that is unknown there is out already."""
        return await self._calls.call(
            LEAVE_GROUP, lambda item: _key_of(item.group), dismissals, _RETRIABLE, self._timeout_s
        )

    def close(self) -> None:
        """Close the connections, for good."""
        self._links.close()

    async def _list(self, address: Address) -> Listing:
        try:
            async with asyncio.timeout(self._timeout_s):
                return (await self._links.call(address, LIST_GROUPS, [ALL]))[ALL]
        except ConnectionFailed as failure:
            return Listing((), ErrorCode.NETWORK_EXCEPTION, str(failure))
        except TimeoutError:
            return Listing((), ErrorCode.REQUEST_TIMED_OUT, f"no answer came from {format_address(*address)}")


def _named(listed: Listed) -> Described:
    """Return what is known of a group that is listed, and which no call described."""
    _, protocol_type, state, group_type = listed
    kind = f"a {group_type} group" if group_type else "listed without a type"
    # One of a type that can be described was made after the calls.
    problem = "was not described; try again" if group_type in _DESCRIBABLE else "cannot be described here"
    reason = f"it is {kind}, and {problem}"
    return Described(state, group_type, protocol_type, "", (), ErrorCode.UNSUPPORTED_VERSION, reason)


def _key_of(group: str) -> Key:
    return Key(KeyType.GROUP, group)
