"""The source of the page of a node."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.http.queries import Ask, CommandRefused
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.tenant import LogParts
from holdfast.kafka.addresses import find_host
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.kafka.topics.topic_ends import NO_SUCH_ID
from holdfast.page.moment import Moment, Place, ranges_of
from holdfast.page.moment_page import MomentPage
from holdfast.page.past import History
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
from holdfast.share.page.moments import Moments, doubt
from holdfast.share.page.others import OtherStates, Query
from holdfast.share.page.paced_looks import PacedLooks
from holdfast.share.page.purse import Purse
from holdfast.share.page.rights import READER, Rights
from holdfast.share.page.samples import Samples
from holdfast.share.page.states import OwnStates
from holdfast.share.page.veil import VeiledPage

#: The setting by which the node knows the history.
HISTORY_OPTION: Final = "compaction.history.dir"
_STARTING: Final = "The node is starting and has no log partition yet; look again in some seconds."


class NodePage(MomentPage):
    """A `PageSource` of a node: what it has in memory, and single looks into the log and the topics of users."""

    history_option = HISTORY_OPTION

    def __init__(
        self,
        log: LogParts,
        authorizer: Authorizer,
        query: Query,
        ask: Ask,
        purse: Purse,
        now_ms: Callable[[], int],
        history: History | None = None,
        samples: Samples | None = None,
    ) -> None:
        """Look at nothing yet.

        Args:
            log: the parts of the node.
            authorizer: decides what readers may see.
            query: asks another node.
            ask: runs commands of the node.
            purse: pays for what is done.
            now_ms: the time, in ms since 1970.
            history: of the log; None: none is named.
            samples: know what the node finished before somebody looked; None: nobody knows.
        """
        run_id = secrets.token_hex(4)
        super().__init__(PacedLooks(log.place.connection, purse, history), now_ms, run_id)
        self._log = log
        self._ask = ask
        self._authorizer = authorizer
        self._rights = Rights(authorizer)
        self._purse = purse
        self._query = query
        self._others = OtherStates(query, log.describe_elsewhere)
        self._moments = Moments(
            OwnStates(log.partitions),
            self._others,
            log.place.topic.topic_id,
            log.cluster,
            purse,
            now_ms,
            run_id,
            samples,
            self._why_not_ready,
            log.leader_unheard_since_s,
        )

    def veiled(self) -> VeiledPage:
        """Return the page as its readers see it: without addresses for those who may not DESCRIBE the cluster."""
        return VeiledPage(self, self._rights.sees_cluster, self._hosts)

    def _hosts(self) -> set[str]:
        """Return the hosts of brokers and of other nodes, as far as they are known."""
        log = self._log
        nodes = {row["owner_address"] for row in log.describe_elsewhere()} - {None}
        brokers = (*log.cluster.client.addresses.values(), *log.place.connection.bootstrap)
        return {host for host, _ in brokers} | set(map(find_host, nodes))

    async def moment(self) -> Moment:
        """See `MomentPage`; it has those groups alone that the reader may see."""
        if not len(self._log.partitions):
            raise PageRefused(503, _STARTING)
        return await self._rights.see(await self._moments.moment())

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """See `PageSource`."""
        self._rights.check_group(group)
        moment = await self.moment()
        view = moment.group(group, after)
        return view._replace(holdings=await self._holdings({"group": group}, moment.topic_names(group)))

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """See `PageSource`."""
        self._rights.check_group(group)
        view = await super().window(group, topic, partition)
        key = SharePartitionKey(group, parse_topic_id(view.topic_id), partition)
        if (address := self._moments.address_of(key)) is not None:
            view = await self._of_other(address, key, view)
        place = {"group": group, "topic_id": view.topic_id, "partition": partition}
        why = await self._why_not_ready()
        unknown = (*view.unknown, *([doubt(why)] if why else ()))
        return view._replace(unknown=unknown, holdings=await self._holdings(place, {view.topic_id: view.topic}))

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
        nameless = [place.end.ends.problem for place in places if place.end.topic is None]
        if nameless and all(problem == NO_SUCH_ID for problem in nameless):
            raise PageRefused(410, f"The topic {topic!r} was deleted, and its records with it.")
        if nameless:
            text = f"The name of the topic {topic!r} is not known now, so that it is not known who may READ it; look again in a minute."
            raise PageRefused(503, text)

    @property
    def log_topic(self) -> str:
        """See `MomentPage`."""
        return self._log.place.topic.name

    @property
    def log_topic_id(self) -> bytes:
        """See `MomentPage`."""
        return self._log.place.topic.topic_id

    def log_end(self, log_partition: int) -> int | None:
        """See `MomentPage`."""
        return self._moments.log_end(log_partition)

    async def whole_cluster(self) -> ClusterView:
        """See `MomentPage`."""
        self._rights.check_cluster()
        moment = await self.moment()
        return await describe_cluster(self._log, self._ask, self._query, self._now_ms(), moment.unknown)

    async def _of_other(self, address: str, key: SharePartitionKey, view: WindowView) -> WindowView:
        """Return a window with the ranges that another node has of it now."""
        try:
            state = await self._others.window(address, key, view.topic_id)
        except NodeSilent as silence:
            raise PageRefused(
                502, f"The node at {address} has the share partition, and does not answer: {silence}"
            ) from None
        if state is None:
            raise PageRefused(404, "The node that had the share partition has no state of it any more.")
        return view._replace(ranges=ranges_of(state))

    async def _why_not_ready(self) -> str:
        why: str | None = (await self._ask("status", {}))["why_not_ready"]
        return why or ""

    async def _holdings(self, place: Mapping[str, Any], topics: Mapping[str, str | None]) -> HoldingsView | None:
        """Return the members of a group and what they hold of topics that ids name; None: the node is no gateway of it."""
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
            held=tuple(HeldRange(**each, topic=topics.get(each["topic_id"])) for each in found["held"]),
            held_in_all=found["held_in_all"],
            records_held=found["records_held"],
        )

    def audience(self) -> str:
        """See `PageSource`."""
        return self._rights.audience()

    async def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""
        shown: Moment | None = None
        account = self._purse.account(READER.get().principal)
        async for is_due in self._moments.changed():
            if not (is_due or self._authorizer.is_open):
                await account.wait()
                moment = await self._moments.moment()
                seen = await account.timed(self._rights.see(moment))
                if shown is not None and seen.shows_same(shown):
                    continue
                shown = seen
            yield

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
