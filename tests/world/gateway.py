"""A tenant that shows the topics of its Kafka cluster and coordinates share groups, and has no calls but those that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.admin.plans import Decide
from holdfast.daemon.maintenance.schedule import Duty
from holdfast.daemon.server.find_coordinator import GROUP
from holdfast.daemon.tenant import Answers, Host, LogParts, Tables, Tenant
from holdfast.gateway import refusals
from holdfast.gateway.leaders import GroupKeys, TopicLeaders
from holdfast.gateway.settings import COMPONENTS, GatewaySettings
from holdfast.gateway.topics import ClusterTopics, OfferedTopics, StartingTopics
from holdfast.runtime.settings import LogIdentity
from holdfast.share.tenant import SHARE_TENANT


class NodeTopics:
    """The tenant on one node (`daemon.tenant.NodeTenant`)."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def starting(self, authorizer: Authorizer) -> Answers:
        return Answers(refusals.ANSWERS, {GROUP: GroupKeys()}, {}, StartingTopics())

    def serve(self, log: LogParts, authorizer: Authorizer, access: object) -> ServingTopics:
        return ServingTopics(self._host, log)


class ServingTopics:
    """The tenant on a node that has found its log (`daemon.tenant.ServingTenant`)."""

    def __init__(self, host: Host, log: LogParts) -> None:
        settings, place = host.settings, log.place
        self._groups = GroupKeys()
        self.topics = OfferedTopics(
            settings.of(GatewaySettings).topics,
            settings.own_topics,
            ClusterTopics(log.cluster.shown),
            TopicLeaders(log.leadership, place.topic.partition_count),
            host.context,
            cluster_id=place.cluster_id,
            refresh_interval_ms=settings.metadata.metadata_refresh_interval_ms,
            random=Random(),
        )
        self.answers = Answers(refusals.ANSWERS, {GROUP: self._groups}, {}, self.topics)
        self.decisions: Mapping[str, Decide] = {}
        self.duties: tuple[Duty, ...] = ()
        self._running: asyncio.Task[None] | None = None

    def start_up(self, log: LogIdentity) -> None:
        self._groups.log_partitions = log.partition_count
        self._running = asyncio.create_task(self.topics.run())

    def shut_down(self) -> None:
        self._groups.log_partitions = 0
        if self._running is not None:
            self._running.cancel()

    async def close(self) -> None:
        pass


TOPICS: Final[Tenant[NodeTopics]] = Tenant(
    "topics",
    refusals.CALLS,
    {},
    (),
    (),
    NodeTopics,
    is_on=lambda settings: bool(settings.of(GatewaySettings).topics),
    settings=COMPONENTS,
)
TABLES: Final = Tables(SHARE_TENANT, [TOPICS])
