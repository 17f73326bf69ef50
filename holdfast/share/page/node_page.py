"""The source of the page of a node."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.http.queries import Ask, CommandRefused
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.tenant import LogParts
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.page.moment import Moment, Place, ranges_of
from holdfast.page.moment_page import MomentPage
from holdfast.page.source import (
    ClusterView,
    GroupView,
    HeldRange,
    HoldingsView,
    MemberView,
    PageRefused,
    TimelineView,
    WindowView,
)
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.page.cluster import describe_cluster
from holdfast.share.page.kept_answers import Version
from holdfast.share.page.moments import Moments
from holdfast.share.page.others import OtherStates, Query
from holdfast.share.page.paced_looks import PacedLooks
from holdfast.share.page.purse import Purse
from holdfast.share.page.rights import Rights
from holdfast.share.page.states import OwnStates

_STARTING: Final = "The node is starting and has no log partition yet; look again in some seconds."


class NodePage(MomentPage):
    """A `PageSource` of a node: what it has in memory, and single looks into the log and the topics of users."""

    def __init__(
        self,
        log: LogParts,
        authorizer: Authorizer,
        query: Query,
        ask: Ask,
        purse: Purse,
        now_ms: Callable[[], int],
    ) -> None:
        """Look at nothing yet.

        Args:
            log: the parts of the node.
            authorizer: decides what readers may see.
            query: asks another node.
            ask: runs commands of the node.
            purse: pays for what is done.
            now_ms: the time, in ms since 1970.
        """
        super().__init__(PacedLooks(log.place.connection, purse), now_ms)
        self._log = log
        self._ask = ask
        self._authorizer = authorizer
        self._rights = Rights(authorizer)
        self._others = OtherStates(query, log.describe_elsewhere)
        self._moments = Moments(
            OwnStates(log.partitions),
            self._others,
            log.place.topic.topic_id,
            log.cluster,
            purse,
            now_ms,
            secrets.token_hex(4),
        )

    async def moment(self) -> Moment:
        """See `MomentPage`; it has those groups alone that the reader may see."""
        if not len(self._log.partitions):
            raise PageRefused(503, _STARTING)
        return await self._rights.see(await self._moments.moment())

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """See `PageSource`."""
        self._rights.check_group(group)
        view = await super().group(group, after)
        return view._replace(holdings=await self._holdings({"group": group}))

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """See `PageSource`."""
        self._rights.check_group(group)
        view = await super().window(group, topic, partition)
        key = SharePartitionKey(group, parse_topic_id(view.topic_id), partition)
        if (address := self._moments.address_of(key)) is not None:
            view = await self._of_other(address, key, view)
        place = {"group": group, "topic_id": view.topic_id, "partition": partition}
        return view._replace(holdings=await self._holdings(place))

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        """See `PageSource`."""
        self._rights.check_group(group)
        return await super().timeline(group, topic, partition, offset)

    def check_records(self, topic: str, places: Sequence[Place]) -> None:
        """See `MomentPage`; the id of a topic may be the name of another, so that the reader needs the right to both."""
        if self._authorizer.is_open:
            return
        names = {place.end.topic for place in places}
        for name in sorted(filter(None, names)) or ([] if names else [topic]):
            self._rights.check_records(name)
        if None in names:
            text = f"The name of the topic {topic!r} is not known now, or it was deleted; so it is not known who may READ it."
            raise PageRefused(503, text)

    @property
    def log_topic(self) -> str:
        """See `MomentPage`."""
        return self._log.place.topic.name

    def log_end(self, log_partition: int) -> int | None:
        """See `MomentPage`."""
        return self._moments.log_end(log_partition)

    async def cluster(self) -> ClusterView:
        """See `PageSource`."""
        self._rights.check_cluster()
        moment = await self.moment()
        return await describe_cluster(self._log, self._ask, self._now_ms(), moment.unknown)

    async def _of_other(self, address: str, key: SharePartitionKey, view: WindowView) -> WindowView:
        """Return a window with the ranges that another node has of it now."""
        try:
            state = await self._others.window(address, key, view.topic_id)
        except NodeSilent as silence:
            raise PageRefused(
                502, f"The node at {address} has the share partition, and does not answer: {silence}"
            ) from None
        if state is None:
            raise PageRefused(404, f"The node at {address} has no state of the share partition any more.")
        return view._replace(ranges=ranges_of(state))

    async def _holdings(self, place: Mapping[str, Any]) -> HoldingsView | None:
        """Return the members of a group and what they hold; None: the node is no gateway of it."""
        try:
            found = await self._ask("group-members", place)
        except CommandRefused:  # no tenant of this node has members
            return None
        if not found["members"] and not found["held"]:
            return None
        return HoldingsView(
            as_of_ms=found["as_of_ms"],
            members=tuple(MemberView(**each | {"topics": tuple(each["topics"])}) for each in found["members"]),
            members_in_all=found["members_in_all"],
            held=tuple(HeldRange(**each) for each in found["held"]),
            held_in_all=found["held_in_all"],
            records_held=found["records_held"],
        )

    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""
        return self._moments.changed()

    async def version(self) -> Version | None:
        """Return what answers are cut from now; None: from nothing."""
        if not len(self._log.partitions):
            return None
        return Version(await self._moments.moment(), self._authorizer.rules)

    def forget(self) -> None:
        """Keep nothing: nobody looks."""
        self._rights.forget()
        self._moments.forget()

    async def close(self) -> None:
        """End what is being made."""
        await self._looks.close()
        await self._moments.close()
