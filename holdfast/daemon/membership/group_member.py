"""A node as a member of its group: kept there, and its assigned work done, from `start` to `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.context import NodeContext
from holdfast.daemon.membership.coordinator import ConfigSource, CoordinatorPorts, NodeCoordinator, NodeProtocolConfig
from holdfast.daemon.membership.division.machine import find_machine
from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.membership.former_member import FormerMember, name_place
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.membership.handover.node_queries import NodeQueries
from holdfast.daemon.membership.handover.polls import Polls
from holdfast.daemon.membership.holdings import Holdings, Takers
from holdfast.daemon.membership.map_view import MapView, OwnTasks
from holdfast.daemon.membership.metrics import AssignmentMetrics
from holdfast.daemon.membership.rebalance_watch import RebalanceWatch
from holdfast.daemon.membership.rejoins import Rejoins
from holdfast.daemon.partitions.identity import NodeIdentity
from holdfast.daemon.partitions.own_view import find_owner_epoch
from holdfast.daemon.partitions.owners import ANSWER_TIMEOUT_MS, query_status_at
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.other_nodes import OtherNodes
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.topic_memory import RememberedTopic, TopicMemory, places_of
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.group_offset_calls import Committer
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.exchange import broker_links
from holdfast.kafka.group_offsets import GroupOffsets
from holdfast.membership import MemberClosed, MembershipError, MembershipFailed, MembershipSettings
from holdfast.membership.kafka_group import Member
from holdfast.runtime.deadlines import rest_tick_ms
from holdfast.runtime.partition.states import State

_log = structlog.get_logger(__name__)

#: Pauses before a node joins its group again: brokers of many nodes that come back at once are not flooded.
_REJOIN_BACKOFF_MS: Final = 100
_REJOIN_BACKOFF_MAX_MS: Final = 30_000
#: How often a former owner is queried: its clients learn so soon that it has given up.
_POLL_INTERVAL_MS: Final = 200
#: A node that takes longer to answer is frozen or gone, and clients should not be sent to it.
_POLL_TIMEOUT_MS: Final = 1_000

#: Longest pause before a request to the group coordinator is sent again.
_RETRY_BACKOFF_MAX_MS: Final = 1_000
#: A leading broker that is silent for this part of a session leaves the rest of it to the rebalance and the loads of others.
_REACH_PER_SESSION: Final = 2 / 3
#: And never for less than two queries of the watch over brokers take.
_REACH_PER_SILENCE: Final = 0.4


class GroupMember:
    """The allotment of a member (`Allotment`): what the leader of its group assigns."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        partitions: Partitions,
        duties: Duties,
        identity: NodeIdentity,
        config: ConfigSource,
        context: NodeContext,
    ) -> None:
        """Belong to no group yet.

        Args:
            settings: of the node.
            group: its id.
            partitions: know where the log is, and serve the log partitions that are assigned.
            duties: do those that are assigned.
            identity: of this process; its known members learn of everybody who was one.
            config: the config topic, which all members are to have read as far as their leader.
            context: of the node.
        """
        members, log = settings.members, partitions.place
        this_node = log.node
        self._settings = settings
        self._group = group
        self._connection = log.connection
        self._partitions = partitions
        self._duties = duties
        self._internal_errors = context.internal_errors
        self._refused = identity.refused
        self._limiter = context.limiter
        random = Random()
        holdings = self._holdings = Holdings(self, members.handover_timeout_ms)
        metrics = AssignmentMetrics(context.registry, holdings)
        former = FormerOwners(
            this_node,
            self.serves,
            word_age_max_ms=_POLL_INTERVAL_MS + 2 * _POLL_TIMEOUT_MS,
            now_ms=context.now_ms,
            changed=partitions.note_served_elsewhere,
        )
        self._polls = Polls(
            former,
            NodeQueries(log.topic.name, settings.security.client_properties_file, _POLL_TIMEOUT_MS),
            self._run_poll,
            lambda pause_ms: asyncio.sleep(pause_ms / 1_000),
            context.now_ms,
            interval_ms=_POLL_INTERVAL_MS,
        )
        self._polling: set[asyncio.Task[None]] = set()
        self._other_nodes = OtherNodes(context.limiter, settings.security.client_properties_file)
        self._run_id = identity.run_id
        self._leader_quiet_s: Callable[[int], float] = lambda _: 0.0
        self._partition_count = log.topic.partition_count
        self._reach_max_s = (
            max(
                _REACH_PER_SESSION * members.session_timeout_ms, _REACH_PER_SILENCE * settings.log.broker_silence_max_ms
            )
            / 1_000
        )
        self._out_of_reach: frozenset[int] = frozenset()
        self.view = MapView(
            log,
            OwnTasks(self.serves, self._is_alarmed, lambda index: find_owner_epoch(partitions.find(index))),
            former,
            handover_timeout_ms=members.handover_timeout_ms,
            now_ms=context.now_ms,
        )
        self._coordinator = NodeCoordinator(
            configure(
                NodeProtocolConfig,
                members,
                partition_count=log.topic.partition_count,
                machine=find_machine(this_node.host),
                duties_offered=duties.offered,
                keeps_place=bool(members.group_instance_id),
            ),
            self._holdings,
            self.view,
            config,
            Rejoins(
                Backoff(_REJOIN_BACKOFF_MS, _REJOIN_BACKOFF_MAX_MS, random.random),
                2 * _REJOIN_BACKOFF_MAX_MS,
            ),
            RebalanceWatch(metrics.rebalance_alarms),
            CoordinatorPorts(
                context.now_ms,
                identity.known_members.add,
                self._look_for_twin,
                lambda: partitions.runtime.config.log.placement,
            ),
        )
        self._member = Member(
            self._coordinator,
            replace(log.connection, client_id=name_place(log.connection.client_id, this_node)),
            configure(
                MembershipSettings,
                members,
                group_id=group,
                group_instance_id=members.group_instance_id or None,
                retry_backoff_ms=_REJOIN_BACKOFF_MS,
                retry_backoff_max_ms=_RETRY_BACKOFF_MAX_MS,
                request_timeout_ms=settings.log.request_timeout_ms,
            ),
            random=random,
            registry=context.registry,
            note=self._note,
        )
        self._takers = Takers(holdings)
        self._topic = RememberedTopic(log.topic.name, log.topic.topic_id)
        self._running: asyncio.Task[None] | None = None

    # ---- the allotment ---------------------------------------------------------------------------------------------

    def start(self, leader_quiet_s: Callable[[int], float]) -> None:
        """Join the group; see `Allotment.start`."""
        self._leader_quiet_s = leader_quiet_s
        self._running = asyncio.create_task(self._run(), name="holdfast-membership")

    async def stop(self) -> None:
        """Leave the group, and serve until the other members have taken over, or are not going to."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        try:
            await self._member.close(self._settings.shutdown.shutdown_step_timeout_ms)
            await self._wait_for_takers()
        finally:
            await self._stop_polls()
            await self._duties.stop()

    async def _wait_for_takers(self) -> None:
        members = self._settings.members
        wait_ms = min(members.handover_timeout_ms, self._settings.shutdown.drain_timeout_ms)
        with self._group_calls() as groups:
            await self._takers.wait(partial(self._has_members, groups), wait_ms, _REJOIN_BACKOFF_MS)

    @contextmanager
    def _group_calls(self) -> Iterator[Groups]:
        timeout_ms = self._settings.log.request_timeout_ms
        with closing(Groups(broker_links(self._connection, timeout_ms), timeout_ms)) as groups:
            yield groups

    async def _has_members(self, groups: Groups) -> bool:
        """Return whether our group has members, as far as its coordinator says; it counts those that died for their session."""
        return not (await groups.describe([self._group]))[self._group].is_empty

    def why_not_ready(self) -> str:
        """Return what keeps this node from working by an assignment; empty where it does, and before it is to join."""
        return "" if self._running is None else self._coordinator.why_not_ready()

    def taken_over(self, index: int, generation: int) -> bool:
        """Take in that a log partition was taken under an ownership generation; returns whether the group has planned it."""
        was_ours = self._coordinator.superseded(index, generation)
        self._takers.taken()
        return not was_ours

    def refuse_take(self) -> str:
        """Return why no admin lets a member take log partitions."""
        return (
            "The group of nodes divides the log partitions, and a node that takes one by itself would shut the others out of it; "
            "stop the node that has it, and the group gives it to another one."
        )

    def describe_elsewhere(self) -> list[dict[str, Any]]:
        """Return the log partitions of which other members know more, for people: by the last map of the group."""
        return self._coordinator.describe_elsewhere()

    def describe_members(self) -> list[dict[str, Any]]:
        """Return the members of the group for people, absent nodes included."""
        return self._coordinator.describe_members()

    def describe_membership(self) -> dict[str, Any]:
        """Return what this node says of itself as a member; see `Allotment`."""
        is_joined = self._member.generation.is_joined
        return {
            "config_offset": self._coordinator.config_offset,
            "group_instance_id": self._settings.members.group_instance_id or None,
            "heartbeat_age_ms": round(self._member.heartbeat_age_s * 1_000) if is_joined else None,
        }

    # ---- the work (Workplace) --------------------------------------------------------------------------------------

    def begin_tasks(self, tasks: Collection[int], generation: int) -> None:
        """See `Workplace.begin_tasks`."""
        if self.view.why_divided:
            self._partitions.hand_overs.divided(generation, self.view.why_divided)
        self._partitions.load(tasks, generation)

    def release_tasks(self, tasks: Collection[int]) -> None:
        """See `Workplace.release_tasks`."""
        self._partitions.release(tasks)

    def end_tasks(self, tasks: Collection[int]) -> None:
        """See `Workplace.end_tasks`."""
        self._partitions.unload(tasks)

    def serves(self, task: int) -> bool:
        """See `Workplace.serves`; nothing is served that is out of reach."""
        found = self._partitions.find(task)
        return found is not None and found.state is State.ACTIVE and task not in self._out_of_reach

    def set_duties(self, duties: Collection[str]) -> None:
        """See `Workplace.set_duties`."""
        self._duties.set(duties)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _is_alarmed(self, task: int) -> bool:
        found = self._partitions.find(task)
        return task in self._out_of_reach or (found is not None and found.is_alarmed)

    def _look_at_reach(self) -> None:
        """Stop serving what is out of reach, and have the group give it to a member that reaches it.

        Nothing proves that this node still owns a log partition whose leading broker does not answer: others may have taken it.
        A word to the group waits until its coordinator answers: a member that begins to join again sends no heartbeats meanwhile.
        """
        quiet_s, max_s = self._leader_quiet_s, self._reach_max_s
        found = frozenset(task for task in range(self._partition_count) if quiet_s(task) > max_s)
        if found != self._out_of_reach:
            self._out_of_reach = found
            self._partitions.note_out_of_reach(found)
        heard_max_s = 2 * self._settings.members.heartbeat_interval_ms / 1_000
        if found != self._coordinator.out_of_reach and self._member.heartbeat_age_s <= heard_max_s:
            self._coordinator.reach_changed(found)

    async def _run(self) -> None:
        """Be a member in the place of the one that this node was before it was killed."""
        members = self._settings.members
        times = {"session_timeout_ms": members.session_timeout_ms, "pause_ms": _REJOIN_BACKOFF_MS}
        with self._group_calls() as groups:
            former = FormerMember(groups, self._group, lambda: self._member.member_id, self._internal_errors, **times)
            beside = [
                asyncio.create_task(former.dismiss(), name="holdfast-former-member"),
                asyncio.create_task(self._remember(), name="holdfast-topic-memory"),
            ]
            try:
                await self._keep()
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)

    async def _remember(self) -> None:
        """Have the group keep the id of the state topic."""
        settings, random = self._settings, Random()
        try:
            with closing(GroupOffsets(self._connection, settings.log.request_timeout_ms)) as offsets:
                memory = TopicMemory(offsets, self._group, places_of(settings), self._topic, random)
                await memory.keep(self._committer)
        except Exception as bug:  # a node serves without it
            self._internal_errors.note_bug("topic_memory_failed", bug)

    def _committer(self) -> Committer | None:
        generation = self._member.generation_if_stable
        if generation is None:
            return None
        return Committer(generation.member_id, generation.id, self._settings.members.group_instance_id or None)

    async def _keep(self) -> None:
        """Keep the member in its group, until it is refused for good."""
        while True:
            try:
                self._polls.begin()
                self._coordinator.tick()
                self._look_at_reach()
                reason = self._coordinator.take_rejoin()
                if reason:
                    _log.info("rejoin_requested", why=reason)
                    self._member.request_rejoin(reason)
                is_at_rest = self._coordinator.is_at_rest and not self._polling
                tick_ms = self._settings.load.tick_ms
                await self._member.poll(rest_tick_ms(tick_ms) if is_at_rest else tick_ms)
            except MembershipFailed as failure:
                why = str(failure)
                _log.error("membership_refused", why=why)
                self._refused(why, is_setting_wrong=True)
                return
            except MemberClosed:
                return
            except (
                MembershipError
            ) as error:  # the member has noted its traceback; the next poll goes on after a back-off
                _log.error("membership_callback_failed", why=str(error))
            except Exception as bug:
                self._internal_errors.note_bug("membership_failed", bug)
                self._refused(f"the membership ended: {bug!r}", is_setting_wrong=False)
                return

    def _look_for_twin(self, why: str, place: Node | None) -> None:
        """End this node if the one that keeps its id answers there; a member that only says so keeps nobody from starting.

        Until then this node is a member without work, and joins again.
        """
        if place is not None:
            self._run_poll(self._end_if_twin(why, format_address(place.host, place.port), place.node_id))

    async def _end_if_twin(self, why: str, address: str, node_id: int) -> None:
        timeout_ms = ANSWER_TIMEOUT_MS
        status = await query_status_at(self._other_nodes, address, timeout_ms=timeout_ms)
        is_twin = (
            status is not None and status.get("node_id") == node_id and status.get("run_id") not in (None, self._run_id)
        )
        if is_twin:
            self._refused(why, is_setting_wrong=True)
        else:
            _log.warning("twin_unproven", address=address, why=why)

    def _run_poll(self, poll: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(poll, name="holdfast-former-owners")
        self._polling.add(task)
        task.add_done_callback(self._end_poll)

    def _end_poll(self, task: asyncio.Task[None]) -> None:
        self._polling.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._internal_errors.note_bug("former_owner_poll_failed", bug)

    async def _stop_polls(self) -> None:
        for task in self._polling:
            task.cancel()
        await asyncio.gather(*self._polling, return_exceptions=True)

    def _note(self, level: str, event: str, fields: dict[str, object]) -> None:
        if isinstance(bug := fields.get("exc_info"), Exception):
            self._internal_errors.note_bug(event, bug, **{name: fields[name] for name in fields.keys() - {"exc_info"}})
            return
        is_effect = level == "warning" and self._limiter.leave_out()
        getattr(_log, "debug" if is_effect else level)(event, **fields)
