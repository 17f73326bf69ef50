"""The members of a group and the records that each holds, for people: who has what under a lock, and until when.

Locks are in memory alone, so a node knows those of the share partitions that it leads, and no log tells of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.daemon.server.admin import AdminError, topic_id_of
from holdfast.delivery.share_group import Member
from holdfast.delivery.share_partition.batches import DeliveryRun
from holdfast.gateway.heartbeats import Heartbeats
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.kafka.topic_ids import format_topic_id

#: Rows of one answer: members, and ranges of offsets.
ROWS_MAX: Final = 1_000
#: Names of topics that are shown of a member.
_TOPICS_SHOWN_MAX: Final = 20
#: Batches of a slice of a millisecond or so.
_BATCHES_PER_STEP: Final = 500


class Holdings:
    """The command `group-members`.

    Args:
        heartbeats: know the members.
        leader: knows what they hold.
        clock_ms: the time, in ms since 1970.
    """

    def __init__(self, heartbeats: Heartbeats, leader: Leader, clock_ms: Callable[[], int]) -> None:
        self._heartbeats = heartbeats
        self._leader = leader
        self._clock_ms = clock_ms

    def describe(self, arguments: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
        """Return the members of a group, and the ranges of offsets that they hold.

        Args:
            arguments: `group`; `topic_id` and `partition` for the ranges of one share partition alone.

        Raises:
            AdminError: an argument is wrong.
        """
        group, topic_id, partition = (arguments.get(name) for name in ("group", "topic_id", "partition"))
        if not isinstance(group, str):
            raise AdminError("group-members needs a `group`.")
        if partition is not None and type(partition) is not int:
            raise AdminError("The `partition` must be a whole number.")
        wanted = None if topic_id is None else topic_id_of(topic_id)
        as_of_ms, since_ms = self._clock_ms(), self._leader.now_ms()
        held: list[dict[str, Any]] = []
        count = records = 0
        led = [
            each
            for each in self._leader.of_group(group)
            if wanted in (None, each.key.topic_id) and partition in (None, each.key.partition)
        ]
        for each in sorted(led, key=lambda each: each.key):
            for work, batch in enumerate(list(each.core.window.batches), start=1):
                if work % _BATCHES_PER_STEP == 0:
                    yield
                for run in batch.runs:
                    if run.lock_until_ms < 0 or run.is_lock_over:
                        continue
                    count += 1
                    records += run.last - run.first + 1
                    if len(held) < ROWS_MAX:
                        held.append(_describe_run(each, run, as_of_ms - since_ms))
            yield
        members = self._heartbeats.members_of(group)
        return {
            "as_of_ms": as_of_ms,
            "group": group,
            "members": [_describe_member(name, members[name]) for name in list(members)[:ROWS_MAX]],
            "members_in_all": len(members),
            "held": held,
            "held_in_all": count,
            "records_held": records,
        }


def _describe_run(led: LedPartition, run: DeliveryRun, epoch_ms: float) -> dict[str, Any]:
    return {
        "topic_id": format_topic_id(led.key.topic_id),
        "partition": led.key.partition,
        "first_offset": run.first,
        "last_offset": run.last,
        "member_id": run.member_id or (run.write.member_id if run.write is not None else None) or None,
        "delivery_count": run.count,
        "until_ms": round(run.lock_until_ms + epoch_ms),
        # An answer was given, and is on its way into the log.
        "is_answered": run.write is not None,
    }


def _describe_member(member_id: str, member: Member) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_epoch": member.epoch,
        "topics": list(member.topic_names[:_TOPICS_SHOWN_MAX]),
        "topics_in_all": len(member.topic_names),
        "partitions": len(member.assigned),
    }
