"""A second tenant: it counts ticks in memory, and has a row of each kind that a node takes, but no shards.

A timer whose name begins with `STATE` is a group of share state: each of its ticks is a Write, made by calls within the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.api.share_state_access import ShareStateAccess
from holdfast.daemon.access.acl import Operation
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import LOOKS, Command
from holdfast.daemon.admin.plans import Decide
from holdfast.daemon.http.queries import Ask, Page, Query
from holdfast.daemon.maintenance.schedule import Duty
from holdfast.daemon.server.admin import NodeStarting
from holdfast.daemon.server.find_coordinator import GROUP
from holdfast.daemon.server.wire.requests import Api, Request, Respond, Steps
from holdfast.daemon.settings.declarations import Component, count
from holdfast.daemon.tenant import Answers, Call, Host, LogParts, Tenant
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.settings import LogIdentity
from tests.world.samples import TOPIC

TICK: Final = 19_999
DENIED: Final = b"denied"
STARTS: Final = b"starts"
STOPPED: Final = b"stopped"
STATE: Final = "state-"
#: The state of such a timer begins at it.
FIRST_OFFSET: Final = 7


class TimerSettings(Component):
    """The settings of timers."""

    name_prefix = "timers."

    ticks_max: int = count(10, "Ticks of all timers.", most=1_000)


class TimerKeys:
    """Keys of timers, of Kafka's type for groups: all of them lie in one log partition."""

    first_version = 0
    state_name = "timers"

    def __init__(self, partition: int = 0) -> None:
        self._partition = partition

    def parse(self, text: str) -> tuple[str, str]:
        return text, text

    def partition_for(self, key: str) -> int:
        return self._partition


class NodeTimers:
    """Timers on one node (`daemon.tenant.NodeTenant`)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        #: None until the node has found its log.
        self.serving: ServingTimers | None = None

    def starting(self, authorizer: Authorizer) -> Answers:
        def tick(request: Request, respond: Respond) -> Steps | None:
            respond(STARTS)
            return None

        def refuse(arguments: dict[str, Any]) -> object:
            raise NodeStarting

        return Answers({TICK: tick}, {GROUP: TimerKeys()}, {"ticks": refuse})

    def serve(self, log: LogParts, authorizer: Authorizer, access: ShareStateAccess) -> ServingTimers:
        self.serving = ServingTimers(self._host, log, authorizer, access)
        return self.serving


class ServingTimers:
    """Timers on a node that has found its log (`daemon.tenant.ServingTenant`)."""

    def __init__(self, host: Host, log: LogParts, authorizer: Authorizer, access: ShareStateAccess) -> None:
        self._leadership = log.leadership
        self._access = access
        #: (log partition, whether this node serves it from now on) of each change.
        self.changes: list[tuple[int, bool]] = []
        log.leadership.watch(lambda index: self.changes.append((index, log.leadership.leader(index).serves_here)))
        self._node_id = host.settings.node_id
        self._ticks_max = host.settings.of(TimerSettings).ticks_max
        self._authorizer = authorizer
        self.log_partitions = 0
        self._ticks = 0
        #: How often its duty was done.
        self.rounds = 0
        self.answers = Answers({TICK: self._tick}, {GROUP: TimerKeys()}, {"ticks": self._describe})
        self.decisions: Mapping[str, Decide] = {}
        self.duties = (Duty(1, self._count_round),)

    def start_up(self, log: LogIdentity) -> None:
        self.log_partitions = log.partition_count

    def shut_down(self) -> None:
        self.log_partitions = 0

    async def close(self) -> None:
        pass

    async def _count_round(self) -> None:
        self.rounds += 1

    def _tick(self, request: Request, respond: Respond) -> Steps | None:
        """Count a tick of a timer; the body of a request is its name."""
        name = request.frame[request.body_offset :].decode()
        if not self._authorizer.may_call(request, TICK, name):
            respond(DENIED)
        elif not self.log_partitions:
            respond(STOPPED)
        elif name.startswith(STATE):
            self._tick_state(name, respond)
        else:
            self._ticks += 1
            respond(b"%b: %d" % (name.encode(), self._ticks))
        return None

    def _tick_state(self, name: str, respond: Respond) -> None:
        """Move the start offset of a timer's state by one, as its leader."""
        leader_epoch = self._leadership.leader(0).epoch

        def take(state: ReadOrInitializeResult) -> None:
            if state.error_code:
                respond(b"error %d" % state.error_code)
                return
            start_offset = state.start_offset + 1
            write = WritePartition(0, state.state_epoch, leader_epoch, start_offset, -1, ())
            done = partial(finish, start_offset)
            self._access.write(name, TOPIC, write, done)

        def finish(start_offset: int, written: WriteResult) -> None:
            respond(b"%b at %d: %d" % (name.encode(), start_offset, written.error_code))

        self._access.read_or_initialize(SharePartitionKey(name, TOPIC, 0), leader_epoch, FIRST_OFFSET, take)

    def _describe(self, arguments: dict[str, Any]) -> object:
        return {"node_id": self._node_id, "ticks": self._ticks, "ticks_max": self._ticks_max}


async def _clock(ask: Ask, names: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"clock": (await ask("ticks", {}))["ticks"]}


TIMERS: Final[Tenant[NodeTimers]] = Tenant(
    "timers",
    {TICK: Call(Api("Tick", 0, 1), Operation.READ)},
    {"ticks": Command(LOOKS, ("since",))},
    (Query("ticks", "Ticks.", "object"),),
    (Page(Query("clock", "The clock.", "object"), _clock),),
    NodeTimers,
    settings={"timers": TimerSettings},
)
