"""A node as a member of its group: the real membership core and the real protocol of nodes, stepped as `kafka_group.Member` steps them."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.backoff import Backoff
from holdfast.daemon.membership.coordinator import CoordinatorPorts, NodeCoordinator, NodeProtocolConfig
from holdfast.daemon.membership.division.assignment import decode_assignment
from holdfast.daemon.membership.division.metadata import decode_metadata
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.membership.handover.polls import Polls
from holdfast.daemon.membership.holdings import Holdings
from holdfast.daemon.membership.map_view import MapView, OwnTasks
from holdfast.daemon.membership.metrics import AssignmentMetrics
from holdfast.daemon.membership.rebalance_watch import RebalanceWatch
from holdfast.daemon.membership.rejoins import Rejoins
from holdfast.daemon.partitions.own_view import find_owner_epoch
from holdfast.daemon.server.cluster_view import Node as Place
from holdfast.membership import CallbackFailed, MembershipSettings
from holdfast.membership.effects import (
    METHODS,
    Callback,
    Complete,
    Effect,
    ForgetCoordinator,
    LeavePrepare,
    Note,
    Perform,
    Report,
    Run,
    Send,
)
from holdfast.membership.lifecycle import MemberLifecycle
from holdfast.membership.metrics import MembershipMetrics
from holdfast.membership.requests import Answer, JoinGroup, Request
from holdfast.metrics.registry import Registry
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.config import ConfigReader
from tests.simulated.group.link import Link
from tests.simulated.group.network import Pause
from tests.simulated.group.node import POLL_TIMEOUT_MS
from tests.simulated.group.watch import MemberWatch
from tests.simulated.parts.machine import Fault

if TYPE_CHECKING:
    from tests.simulated.group.node import GroupNode
    from tests.simulated.group.world import GroupWorld

HANDOVER_MS = 4_000
STALE_MAP_MAX_MS = 3_000
CONFIG_TIMEOUT_MS = 800
POLL_INTERVAL_MS = 200
#: For so long what a node says of a log partition on its way counts.
WORD_AGE_MAX_MS = POLL_INTERVAL_MS + 2 * POLL_TIMEOUT_MS
#: What a node that stops waits for LeaveGroup.
CLOSE_MS = 2_000


class GroupMember:
    """The membership of one process."""

    def __init__(
        self, world: GroupWorld, node: GroupNode, settings: MembershipSettings, rebalance_protocol: str
    ) -> None:
        self.world = world
        self.node = node
        #: What its clock is ahead of the world's, in ms: that of a process that is started again may be behind the one before.
        self.ahead_ms = world.random.choice((0, 0, 7_000, 3_600_000))
        self.place = Place(ord(node.name), f"host-{node.name}", 9_092)
        self.config = ConfigReader(world, node, self.now_ms)
        self.watch = MemberWatch(self)
        self.holdings = Holdings(self, HANDOVER_MS)
        partition_count = len(world.topic.partitions)
        self.former = FormerOwners(
            self.place,
            node.serves,
            word_age_max_ms=WORD_AGE_MAX_MS,
            now_ms=self.now_ms,
            changed=node.partitions.note_served_elsewhere,
        )
        self.polls = Polls(self.former, node, node.drive, Pause, self.now_ms, interval_ms=POLL_INTERVAL_MS)
        self.view = MapView(
            node.partitions.place,
            OwnTasks(node.serves, lambda _: False, lambda index: find_owner_epoch(node.partition(index))),
            self.former,
            handover_timeout_ms=HANDOVER_MS,
            stale_map_max_ms=STALE_MAP_MAX_MS,
            now_ms=self.now_ms,
        )
        self.coordinator = NodeCoordinator(
            NodeProtocolConfig(
                partition_count=partition_count,
                machine=f"machine-{node.name}",
                duties_offered=tuple(sorted(world.duties)),
                rebalance_protocol=rebalance_protocol,
                rebalance_delay_ms=world.rebalance_delay_ms,
                handover_timeout_ms=HANDOVER_MS,
                config_timeout_ms=CONFIG_TIMEOUT_MS,
                keeps_place=settings.group_instance_id is not None,
            ),
            self.holdings,
            self.view,
            self.config,
            Rejoins(Backoff(100, 2_000, world.random.random), 4_000),
            RebalanceWatch(AssignmentMetrics(Registry(), self.holdings).rebalance_alarms, 1_000),
            CoordinatorPorts(
                self.now_ms,
                node.known.add,
                lambda why, _: violate(Invariant.NOBODY_IS_REFUSED, f"{node.name}: {why}"),
                lambda: node.runtime.config.log.placement,
            ),
        )
        metrics = MembershipMetrics(Registry())
        self.life = MemberLifecycle(settings, self.coordinator.metadata, world.random.random, metrics)
        self.run = node.run
        self.link = Link(world, node.name, settings, self.run, self._answered)
        #: The next callback of this name raises.
        self.planted = ""
        #: Somebody wishes for a rejoin while the next JoinGroup is in flight.
        self.wishes_while_joining = False
        self.handover_ms = HANDOVER_MS
        self.stale_map_max_ms = STALE_MAP_MAX_MS
        self.word_age_max_ms = WORD_AGE_MAX_MS
        self.is_leaving = False
        self._leave_until_ms = 0
        node.member = self

    def now_ms(self) -> int:
        """Return the time of this process."""
        return self.world.now_ms + self.ahead_ms

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self.node.is_alive

    # ---- by the clock ------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due before the next heartbeat, unless something happens."""
        life, coordinator, divided = self.life, self.coordinator, self.view.map
        next_tick_ms = life.next_tick_ms
        return (
            life.is_active
            and (next_tick_ms is None or self.now_ms() < next_tick_ms)
            and not (self.is_leaving or coordinator.needs_rejoin or coordinator.why_not_ready())
            and not self.holdings.released
            and not self.former.to_query()
            and divided is not None
            and not divided.absent
            and self.config.is_at_end
        )

    def beat(self) -> None:
        """Do what `GroupMember._run` of the daemon does in each of its rounds, and what is due."""
        self.config.follow()
        if self.is_leaving:
            self._go_on_leaving()
            return
        self.polls.begin()
        self.coordinator.tick()
        reason = self.coordinator.take_rejoin()
        if reason:
            self.request_rejoin(reason)
        self._take_turn()
        self.watch.check()

    def request_rejoin(self, reason: str) -> None:
        """Wish for a rejoin."""
        self.watch.wished()
        self._carry_out(self.life.request_rejoin(reason, self.now_ms()))

    def _take_turn(self) -> None:
        if self.is_leaving:
            return
        self._carry_out(self.life.turn(self.now_ms()))
        self._carry_out(self.life.tick(self.now_ms()))
        failure = self.life.failure
        if failure is not None:
            self.watch.failed(failure)
            self.world.count("membership refused")
            self.node.close()

    def stop(self) -> None:
        """Begin to leave, and end when others have taken over, or in time."""
        self.is_leaving = True
        self._leave_until_ms = self.now_ms() + CLOSE_MS
        self._carry_out(self.life.leave(keeps_place=True))

    def _go_on_leaving(self) -> None:
        is_over = self.now_ms() >= self._leave_until_ms
        if self.life.is_busy and not is_over:
            return
        if not self.holdings.released or self.now_ms() >= self._leave_until_ms + HANDOVER_MS:
            self.world.count("left in time" if not self.holdings.released else "left too late")
            self.node.close()

    # ---- what the core wants done ------------------------------------------------------------------------------------

    def _answered(self, request: Request, answer: Answer) -> None:
        if self.world.is_tracing:
            self.world.trace(f"  {self.node.name}: {type(request).__name__} is answered {answer}")
        self.watch.before_answer(request, answer)
        effects = self.life.answered(request, answer, self.now_ms())
        self.watch.after_answer(effects)
        self._learn(effects)

    def _learn(self, effects: list[Effect]) -> None:
        self._carry_out(effects)
        self._take_turn()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(request):
                    self.watch.sent(request)
                    self.world.count(f"group: {type(request).__name__}")
                    self.link.exchange(request)
                    if isinstance(request, JoinGroup) and self.wishes_while_joining:
                        self.wishes_while_joining = False
                        self.world.network.after(1, partial(self.run, partial(self.request_rejoin, "it was too late")))
                case Run(callback):
                    self.watch.began(callback)
                    self.world.network.after(0, partial(self.run, partial(self._begin, callback)))
                case ForgetCoordinator():
                    self.link.forget()
                case Report(error):
                    if not (isinstance(error, CallbackFailed) and isinstance(error.error, Fault)):
                        violate(Invariant.BUGS_STAY_AT_HOME, f"{self.node.name}: {error!r}")
                case Note():
                    self._note(effect)

    def _note(self, note: Note) -> None:
        self.world.count(f"note: {note.event}")
        if self.world.is_tracing:
            fields = {name: value for name, value in note.fields.items() if name != "exc_info"}
            self.world.trace(f"  {self.node.name}: {note.level}: {note.event} {fields}")

    def _begin(self, callback: Callback) -> None:
        self._step(self._call(callback))

    def _step(self, coroutine: Coroutine[Any, Any, Mapping[str, bytes] | None]) -> None:
        """Let the callback run to where it waits, or to its end."""
        try:
            pause = coroutine.send(None)
        except StopIteration as end:
            self.watch.ended(None)
            self._learn(self.life.callback_returned(end.value, self.now_ms()))
        except Exception as error:  # whatever it raises
            self.watch.ended(error)
            self._learn(self.life.callback_raised(error, self.now_ms()))
        else:
            assert isinstance(pause, Pause)
            self.world.network.after(pause.ms, partial(self.run, partial(self._step, coroutine)))

    async def _call(self, callback: Callback) -> Mapping[str, bytes] | None:
        name = METHODS[type(callback)]
        if self.planted == name:
            self.planted = ""
            self.world.count(f"fault: {name} raises")
            raise Fault(name)
        if isinstance(callback, Complete):
            self.watch.delivered(callback)
        arguments = callback[:2] if isinstance(callback, LeavePrepare) else callback
        result: Mapping[str, bytes] | None = await getattr(self.coordinator, name)(*arguments)
        if isinstance(callback, Perform) and result:
            generations = {each.member_id: decode_metadata(each.metadata).generation for each in callback.members}
            self.watch.naming.handed_out(decode_assignment(next(iter(result.values()))).map, generations)
        return result

    # ---- the work (Workplace) ----------------------------------------------------------------------------------------

    def begin_tasks(self, tasks: Collection[int], generation: int) -> None:
        """See `Workplace.begin_tasks`."""
        self.watch.begins(tasks, generation)
        self.node.partitions.load(tasks, generation)

    def release_tasks(self, tasks: Collection[int]) -> None:
        """See `Workplace.release_tasks`."""
        self.watch.releases(tasks)
        self.node.partitions.release(tasks)

    def end_tasks(self, tasks: Collection[int]) -> None:
        """See `Workplace.end_tasks`."""
        self.watch.ends(tasks)
        self.node.partitions.unload(tasks)

    def led(self) -> dict[int, int]:
        """Return what Metadata says of the log partitions for which this node names itself."""
        view, count = self.view, len(self.world.topic.partitions)
        return {index: view.owner_epoch(index) for index in range(count) if view.owner(index) == self.place}

    def serves(self, task: int) -> bool:
        """See `Workplace.serves`."""
        return self.node.serves(task)

    def set_duties(self, duties: Collection[str]) -> None:
        """See `Workplace.set_duties`."""
        self.watch.duties = tuple(duties)

    def superseded(self, task: int, generation: int) -> bool:
        """Take in that another node has taken a log partition; returns whether this one was to keep it."""
        was_ours = self.coordinator.superseded(task, generation)
        self.watch.superseded(task, generation, was_ours=was_ours)
        return was_ours
