"""Queries to the owner of log partitions, whether it still serves them, before this node takes them.

The log alone decides who owns a log partition, whatever the owner answers.
The query protects an admin who starts a node where another one serves already.
It delays a start by no more than the time that an answer may take.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import structlog

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.partitions.identity import NodeIdentity
from holdfast.daemon.server.other_nodes import NodeSilent, OtherNodes
from holdfast.daemon.settings.models import LoadSettings
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.coordinator import CoordinatorRuntime

_log = structlog.get_logger(__name__)

#: Queries the `status` of the node at an address (`host:port`); None: it did not answer in time.
QueryStatus: TypeAlias = Callable[[str], Awaitable[Mapping[str, Any] | None]]


#: How long an owner may take to answer a query whether it still serves: it is a node of the same cluster.
ANSWER_TIMEOUT_MS: Final = 2_000
#: How long an owner may be silent before a node that waits for it takes over; as long as a session of a group.
_SILENCE_MAX_MS: Final = 10_000


class Owner(NamedTuple):
    """Who wrote a checkpoint."""

    node_id: str
    #: `host:port`; empty where it is not known.
    address: str


class OwnersHost(Protocol):
    """The log partitions that are taken, or left to their owners."""

    #: Not before all of the node is made.
    runtime: CoordinatorRuntime

    def load(self, indexes: Collection[int]) -> None:
        """Load log partitions again that were left to their owner."""


class _Query(NamedTuple):
    partition: int
    instance: int
    checkpoint: Checkpoint


async def query_status_at(nodes: OtherNodes, address: str, *, timeout_ms: int) -> Mapping[str, Any] | None:
    """Return the `status` of the node at an address (`host:port`); None: there was no answer in time."""
    try:
        status = await nodes.query(address, "status", timeout_ms)
    except NodeSilent as silence:
        _log.debug("owner_query_unanswered", address=address, why=str(silence))
        return None
    return status if isinstance(status, Mapping) else None


class Owners:
    """The other owners of log partitions: queried, and left in place where they serve (`runtime.partition.ownership.Owners`)."""

    def __init__(
        self,
        settings: LoadSettings,
        identity: NodeIdentity,
        host: OwnersHost,
        internal_errors: InternalErrors,
        query_status: QueryStatus,
        *,
        answer_timeout_ms: int = ANSWER_TIMEOUT_MS,
        silence_max_ms: int = _SILENCE_MAX_MS,
    ) -> None:
        """Know no owner yet.

        Args:
            settings: whether to wait, and to take over.
            identity: of this process; an owner that is known as a member of our group is not queried.
            host: gets the answers.
            internal_errors: where its bugs go.
            query_status: queries a node that may be an owner.
            answer_timeout_ms: how long an owner may take to answer, and how often it is queried.
            silence_max_ms: how long an owner may be silent before its log partitions are loaded.
        """
        self._settings = settings
        self._answer_timeout_ms = answer_timeout_ms
        self._silence_max_ms = silence_max_ms
        self._run_id, self._group, self._known_members, self._refused = identity
        self._query_status = query_status
        self._host = host
        self._internal_errors = internal_errors
        #: Owners that did not serve when they were queried.
        self._silent: set[Owner] = set()
        #: Queries in flight, each with the log partitions that wait for it.
        self._in_flight: dict[Owner, list[_Query]] = {}
        #: Log partitions that were left to owners that serve.
        self._left: dict[Owner, set[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel all queries."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def query_owner(self, partition: int, instance: int, owner: Checkpoint) -> None:
        """Query the owner of a log partition, unless a query is in flight or it was silent before."""
        who = Owner(owner.node_id, owner.advertised_address)
        query = _Query(partition, instance, owner)
        if who in self._silent or not who.address or self._known_members.knows(*who):
            self._answer(query, is_serving=False)
        elif who in self._in_flight:
            self._in_flight[who].append(query)
        else:
            self._in_flight[who] = [query]
            self._run(self._decide(who))

    async def _decide(self, who: Owner) -> None:
        try:
            status = await self._find_serving(who)
            theirs = None if status is None else status.get("group")
        except Exception as bug:  # a start does not depend on what the other side answers
            self._internal_errors.note_bug("owner_query_failed", bug, node=who.node_id, address=who.address)
            status = theirs = None
        queries = self._in_flight.pop(who)
        is_left = False
        if status is None:
            _log.info("owner_found_absent", node=who.node_id, address=who.address)
        elif theirs != self._group:
            self._refuse_other_group(who, theirs)
            is_left = True
        elif self._group is None and not self._takes_over_from(who):
            self._leave(who, {query.partition for query in queries})
            is_left = True
        if not is_left:
            self._silent.add(who)
        for query in queries:
            self._answer(query, is_serving=is_left)

    async def _find_serving(self, who: Owner) -> Mapping[str, Any] | None:
        """Return the status of that node if it answers there, is not this process, and has log partitions of this very log."""
        status = await self._query_status(who.address)
        log = self._host.runtime.config.log
        is_serving = (
            status is not None
            and status.get("run_id") != self._run_id
            and str(status.get("node_id")) == who.node_id
            and status.get("cluster_id") == log.cluster_id
            and status.get("topic_id") == format_topic_id(log.topic_id)
            and bool(status.get("log_partitions_held"))
        )
        return status if is_serving else None

    def _refuse_other_group(self, who: Owner, theirs: str | None) -> None:
        they = "alone (membership=static)" if theirs is None else f"as a member of the group {theirs}"
        we = "would serve it alone (membership=static)" if self._group is None else f"is of the group {self._group}"
        self._refused(
            f"node {who.node_id} serves this log {they} and answers at {who.address}, and this node {we}: "
            "stop the one before the other starts, or let both have the same `membership` and `group.id`",
            is_setting_wrong=True,
        )

    def _takes_over_from(self, who: Owner) -> bool:
        if not self._settings.take_over or self._is_twin(who):
            return False
        _log.warning("owner_superseded", node=who.node_id, address=who.address)
        return True

    def _is_twin(self, who: Owner) -> bool:
        config = self._host.runtime.config
        return who.node_id == config.node_id and who.address != config.advertised_address

    def _leave(self, who: Owner, partitions: set[int]) -> None:
        node = f"node {who.node_id} serves this log and answers at {who.address}"
        if self._is_twin(who):
            text = f"{node}, and this node has the same id: give this one another `node_id`, or stop that one first"
            self._refused(text, is_setting_wrong=True)
        elif self._settings.when_superseded == "exit":
            text = f"{node}: stop it first, or let this node take its place with --take-over"
            self._refused(text, is_setting_wrong=False)
        elif who in self._left:
            self._left[who] |= partitions
        else:
            self._left[who] = partitions
            _log.warning(
                "owner_awaited",
                node=who.node_id,
                address=who.address,
                next_step=f"it takes over when that one is silent for {self._silence_max_ms} ms, "
                "or when it is started with --take-over",
            )
            self._run(self._wait(who))

    async def _wait(self, who: Owner) -> None:
        """Load what was left to an owner, once that one is silent or serves no more."""
        loop, interval_s = asyncio.get_running_loop(), self._answer_timeout_ms / 1_000
        answered_s = loop.time()
        while loop.time() - answered_s < self._silence_max_ms / 1_000:
            await asyncio.sleep(interval_s)
            if await self._find_serving(who) is not None:
                answered_s = loop.time()
        left = self._left.pop(who)
        _log.warning("owner_lost", node=who.node_id, address=who.address)
        self._host.load(left)

    def _answer(self, query: _Query, *, is_serving: bool) -> None:
        partition, instance, checkpoint = query
        self._host.runtime.owner_answered(partition, instance, checkpoint, is_serving)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        task.set_name("holdfast-owners")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
