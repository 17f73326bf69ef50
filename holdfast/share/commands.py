"""The commands of an admin about share state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import structlog

from holdfast.daemon.admin.plans import Arguments, Decide, Plan, reason_of
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.admin import AdminCommand, AdminError, NodeStarting
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.share.calls import ShareCalls
from holdfast.share.deleted_state import DeletedState
from holdfast.share.previews import preview
from holdfast.share.state_listing import StateListing, describe_one, with_time

_log = structlog.get_logger(__name__)

#: Topic ids that are named where state goes; the log line has all of them.
_TOPICS_SHOWN_MAX: Final = 10


class ShareCommands:
    """The commands of a node that serves share state.

    Args:
        calls: comes before the shards; looks up a topic that the node does not know yet.
        partitions: the log partitions of the node.
        deleted_state: the clean-up of the state of deleted topics.
        limits: of a page of share partitions.
        describe_elsewhere: returns the log partitions of other members.
    """

    def __init__(
        self,
        calls: ShareCalls,
        partitions: Partitions,
        deleted_state: DeletedState,
        limits: LimitSettings,
        describe_elsewhere: Callable[[], Sequence[Mapping[str, Any]]],
    ) -> None:
        self._calls = calls
        self._partitions = partitions
        self._deleted_state = deleted_state
        self._limits = limits
        self._describe_elsewhere = describe_elsewhere

    def table(self) -> Mapping[str, AdminCommand]:
        """Return the commands by name."""
        return {
            "share-partitions": lambda arguments: self._listing().page(arguments),
            "page-states": lambda arguments: with_time(self._listing(counts_given_up=True).page(arguments)),
            "page-state": lambda arguments: describe_one(self._partitions, arguments),
            "state-preview": partial(preview, self._calls),
        }

    def decisions(self) -> Mapping[str, Decide]:
        """Return the decisions by the name of their command."""
        return {"topics-accept-deleted": self._accept_deleted}

    def _listing(self, *, counts_given_up: bool = False) -> StateListing:
        elsewhere = self._describe_elsewhere()
        return StateListing(self._partitions, self._limits, elsewhere, counts_given_up=counts_given_up)

    def _accept_deleted(self, arguments: Arguments) -> Plan:
        reason = reason_of(arguments)
        alarm, deleted = self._deleted_state.alarm, self._deleted_state.deleted
        if alarm is None:
            raise AdminError("No clean-up of deleted topics waits for an admin.")
        topic_ids = [format_topic_id(topic_id) for topic_id in sorted(alarm.topic_ids)]

        def carry_out() -> str:
            deleted.accept(alarm.topic_ids)
            _log.warning("deleted_topics_accepted", reason=reason, topics=topic_ids, keys=alarm.key_count)
            return f"the state of {len(topic_ids)} deleted topics ({alarm.key_count} share partitions) may go"

        shown = ", ".join(topic_ids[:_TOPICS_SHOWN_MAX]) + (", …" if len(topic_ids) > _TOPICS_SHOWN_MAX else "")
        return Plan(
            carry_out,
            {"deleted_topics": len(topic_ids), "share_partitions": alarm.key_count},
            {"deleted_topics": 0, "share_partitions": 0},
            (f"the state of {alarm.key_count} share partitions of {len(topic_ids)} topics ({shown})",),
        )


class StartingShareCommands:
    """The commands while the node starts: those that need a log partition are refused."""

    def __init__(self, calls: ShareCalls) -> None:
        self._calls = calls

    def table(self) -> Mapping[str, AdminCommand]:
        """Return the commands by name."""
        return {
            "share-partitions": self._refuse,
            "page-states": self._refuse,
            "page-state": self._refuse,
            "state-preview": partial(preview, self._calls),
            "topics-accept-deleted": self._refuse,
        }

    def _refuse(self, arguments: Arguments) -> NoReturn:
        raise NodeStarting
