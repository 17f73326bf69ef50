"""The condition of a node for whoever looks after its process (`service.notifier`, `workers.reports`), seen from outside the node."""

from __future__ import annotations

from typing import Final, final

from holdfast.daemon.node import Node
from holdfast.daemon.partitions.own_view import find_winner
from holdfast.daemon.settings.models import Settings
from holdfast.runtime.partition.states import State
from holdfast.service.condition import Condition

#: States in which the first load of a log partition is over, whatever became of it.
_LOADED: Final = (State.ACTIVE, State.FAILED)
#: Steps of a stop that may take `shutdown_step_timeout_ms` each, those that may take several counted as such.
_STOP_STEPS: Final = 15


@final
class NodeWatch:
    """A look at a node, and what it has shown before."""

    def __init__(self, node: Node) -> None:
        """Begin with a node that has not run yet."""
        self._node = node
        self._has_started = False
        #: Log partitions whose first load is over.
        self._tried: set[int] = set()
        self._looks = 0
        self._condition = Condition(
            has_started=False,
            is_ready=False,
            is_stopping=False,
            is_reloading=False,
            status="starting",
            progress=0,
            turns=0,
        )

    def condition(self) -> Condition:
        """Return the condition of the node now; where a bug hides it, the last one, for the loop turns all the same.

        Its start is over when it is ready, and also when every log partition that it is to serve serves, or has failed once, or is kept
        by another node: the node goes on to try, and a new start would mend none of that.
        """
        self._looks += 1
        try:
            self._condition = self._read()
        except Exception as bug:
            self._node.context.internal_errors.note_bug("node_condition_failed", bug)
            self._condition = self._condition._replace(turns=self._condition.turns + 1)
        return self._condition

    def _read(self) -> Condition:
        node, why = self._node, self._node.why_not_ready()
        is_stopping = bool(node.why_stopped)
        parts = node.parts
        if parts is not None and not is_stopping:
            self._tried.update(
                each.index for each in parts.partitions if each.state in _LOADED or find_winner(each) is not None
            )
            wanted = parts.partitions.wanted
            self._has_started = self._has_started or not why or (bool(wanted) and wanted.keys() <= self._tried)
        elif node.brokers_awaited.why:  # another start would wait for the same
            self._has_started = True
        if is_stopping:
            status = f"stopping: {node.why_stopped}"
        elif why:
            status = f"{'not ready' if self._has_started else 'starting'}: {why}"
        else:
            status = "ready" if parts is None else f"ready: {parts.partitions.held_count()} log partitions"
        return Condition(
            has_started=self._has_started,
            is_ready=not why,
            is_stopping=is_stopping,
            is_reloading=False,
            status=status,
            progress=len(self._tried) + (parts is not None),
            # Once it has log partitions, it is their tick that must come; the loop turns without it, too.
            turns=self._looks if parts is None or is_stopping else parts.partitions.ticks,
        )


def stop_timeout_ms(settings: Settings) -> int:
    """Return how long a stop may take in all, each of its steps to the end of its time, in ms."""
    shutdown = settings.shutdown
    steps_ms = (_STOP_STEPS + bool(settings.http.listen)) * shutdown.shutdown_step_timeout_ms
    # One drain of its own requests, and one while others take over.
    return steps_ms + 2 * shutdown.drain_timeout_ms + settings.compaction.stop_timeout_ms
