"""What a node answers while it starts: it listens first, so that each client connection gets an answer at once.

It owns no log partition yet; commands that need neither work already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.admin.commands import NodeCommands, NodeView, StartingCommands
from holdfast.daemon.server.admin import AdminCommand
from holdfast.daemon.server.cluster_view import Node, StateTopicView
from holdfast.daemon.topics.cluster_queries import TopicLookUps
from holdfast.kafka.errors import ConnectionFailed, SetupRefused, VersionUnsupported

_log = structlog.get_logger(__name__)

T = TypeVar("T")

#: While brokers are awaited, that is logged so often.
_REPORT_INTERVAL_S: Final = 60.0
#: Pauses between two tries: brokers that start beside the node need the processor.
_PAUSE_FIRST_MS: Final = 500
_PAUSE_MAX_MS: Final = 5_000


class BrokerWait:
    """The wait of a node that starts for brokers, as long as it takes: a node that runs waits as long.

    What a broker refuses, such as a password or a right, ends the start at once.
    """

    def __init__(self) -> None:
        #: For what the node waits, a clause; empty: for nothing.
        self.why = ""

    async def patiently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a step of the start gives, tried again for as long as brokers do not answer.

        Raises: what the step raises, but for ConnectionFailed of which another try may get another answer.
        """
        now_s = asyncio.get_running_loop().time
        backoff = Backoff(_PAUSE_FIRST_MS, _PAUSE_MAX_MS, Random().random)
        began_s, reported_s = now_s(), 0.0
        while True:
            try:
                result = await work()
            except (SetupRefused, VersionUnsupported):
                raise
            except ConnectionFailed as failure:
                is_first, self.why = not self.why, f"the node waits for brokers: {failure}"
                if is_first or now_s() - reported_s >= _REPORT_INTERVAL_S:
                    reported_s = now_s()
                    _log.warning("brokers_awaited", why=str(failure), seconds=round(reported_s - began_s))
                await asyncio.sleep(backoff.next_pause_ms() / 1_000)
            else:
                if self.why:
                    self.why = ""
                    _log.info("brokers_found", seconds=round(now_s() - began_s))
                return result


class StartingView:
    """The cluster while this node starts (`server.cluster_view.ClusterView`): nothing of it is known but this node."""

    cluster_id: str | None = None
    state_topic: StateTopicView | None = None

    def __init__(self, find_this_node: Callable[[], Node]) -> None:
        """Show where clients reach this node, which is known once it listens."""
        self._find_this_node = find_this_node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """This node."""
        return (self._find_this_node(),)

    def owner(self, partition: int) -> Node | None:
        """Return None: no log partition is owned."""
        return None

    def owner_epoch(self, partition: int) -> int:
        """Return -1: none is known."""
        return -1


def starting_commands(
    node: NodeView, look_ups: TopicLookUps, tenants: Iterable[Mapping[str, AdminCommand]]
) -> Mapping[str, AdminCommand]:
    """Return the admin commands of a node that starts, by name; `tenants` are those of its tenants."""
    own = {**NodeCommands(node, *look_ups).table(), **StartingCommands().table()}
    return own | {name: command for each in tenants for name, command in each.items()}
