"""The state of a node, share partition by share partition, for people: one page at a time, and each in steps.

A page is made of the keys after a cursor in the order of group, topic id and partition, over all log partitions.
So one that is there all the time is listed once, and nothing is kept between two pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.admin import AdminError, NodeStarting, topic_id_of
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.deliveries import describe_state, sum_up_deliveries
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.share.decisions import ShareShard
from holdfast.share.shard_kind import serving

#: Work of each step, so that one takes a millisecond or two; a state is counted by its state batches.
_KEYS_PER_STEP: Final = 1_000
_BATCHES_PER_STEP: Final = 2_000
#: Work of each share partition in addition to its batches.
_BATCHES_PER_STATE: Final = 40
#: Bytes of a share partition in an answer without its group id, and of each character of the group id at most.
_ROW_BYTES: Final = 900
_CHARACTER_BYTES: Final = 6

#: Time that it takes to encode a share partition as JSON, in seconds.
_ENCODED_ROW_S: Final = 2.5e-6

#: A share partition, and the log partition that holds it.
_Place = tuple[SharePartitionKey, int]
_Shards = dict[int, tuple[Partition, ShareShard]]


class _Wanted(NamedTuple):
    #: None: all.
    group: str | None
    #: None: all.
    topic_id: bytes | None
    #: The last one of the page before; None: this is the first page.
    after: SharePartitionKey | None
    limit: int


#: Share partitions in one page: some milliseconds' work, and further ones take another request.
ROWS_PER_PAGE_MAX: Final = 1_000


class StateListing:
    """The share partitions of the shards of a node, as the log has committed them."""

    def __init__(
        self,
        partitions: Partitions,
        limits: LimitSettings,
        elsewhere: Sequence[Mapping[str, Any]] = (),
        rows_max: int = ROWS_PER_PAGE_MAX,
        *,
        counts_given_up: bool = False,
    ) -> None:
        """Bound a page by the number of its rows, and by an upper estimate of its bytes.

        With `counts_given_up` each row has that, too.

        `elsewhere` are the log partitions of other members, as `partitions.description` has them.
        """
        self._partitions = partitions
        self._elsewhere = elsewhere
        self._rows_max = rows_max
        self._counts_given_up = counts_given_up
        self._bytes_max = limits.answer_size_bytes_max

    def page(self, arguments: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
        """Make a page; between two steps the shards may change.

        Args:
            arguments: `group` and `topic_id` to list these alone, `after` as the `next` of the page before, and `limit`.

        Raises:
            AdminError: an argument is wrong, or the node has not started.
        """
        wanted = self._parse(arguments)
        if not len(self._partitions):
            raise NodeStarting
        shards = {partition.index: (partition, shard) for partition, shard in serving(self._partitions.active())}
        places = yield from self._choose(shards, wanted)
        rows: list[dict[str, Any]] = []
        size_bytes = taken = work = 0
        for key, index in places[: wanted.limit]:
            if rows and size_bytes >= self._bytes_max:
                break
            taken += 1
            if work >= _BATCHES_PER_STEP:
                work = 0
                yield
            partition, shard = shards[index]
            state = shard.state.at(partition.committed_sequence, key) if _serves(partition, shard) else None
            work += _BATCHES_PER_STATE + (0 if state is None else len(state.state_batches))
            if state is not None:
                winner = partition.ownership.winner
                deliveries = sum_up_deliveries(state.start_offset, state.state_batches)
                owner = None if winner is None else winner.node_id
                row = describe_state(key, state, index, owner, deliveries)
                rows.append(row | {"given_up": deliveries.archived} if self._counts_given_up else row)
                size_bytes += _ROW_BYTES + _CHARACTER_BYTES * len(key.group_id)
        return {
            "share_partitions": rows,
            "next": _to_cursor(places[taken - 1][0]) if taken < len(places) else None,
            "not_listed": self._not_listed(shards),
        }

    def _not_listed(self, shards: _Shards) -> list[dict[str, Any]]:
        """Return the log partitions whose share partitions are on no page of this node, and why."""
        missing = {
            each.index: {"log_partition": each.index, "state": each.state.value, "why": each.failure or None}
            for each in self._partitions
            if each.index not in shards or not _serves(*shards[each.index])
        }
        for row in self._elsewhere:
            why = f"node {row['owner']} has it" if row["owner"] is not None else "no node has it"
            missing[row["partition"]] = {"log_partition": row["partition"], "state": row["state"], "why": why}
        return [each for _, each in sorted(missing.items())]

    def _choose(self, shards: _Shards, wanted: _Wanted) -> Generator[None, None, list[_Place]]:
        """Return the first places after the cursor in their order, one more than the page may have."""
        group, after, count = wanted.group, wanted.after, wanted.limit + 1
        found: list[_Place] = []
        #: The last of so many that no later one is needed.
        last: SharePartitionKey | None = None
        for index, (_, shard) in shards.items():
            keys = shard.state.keys(wanted.topic_id)
            for start in range(0, len(keys), _KEYS_PER_STEP):
                found += [
                    (key, index)
                    for key in keys[start : start + _KEYS_PER_STEP]
                    if (after is None or key > after)
                    and (last is None or key < last)
                    and (group is None or key.group_id == group)
                ]
                if len(found) > 2 * count:
                    found = sorted(found)[:count]
                    last = found[-1][0]
                yield
        return sorted(found)[:count]

    def _parse(self, arguments: dict[str, Any]) -> _Wanted:
        group, topic_id, after = (arguments.get(name) for name in ("group", "topic_id", "after"))
        limit = arguments.get("limit", self._rows_max)
        if type(limit) is not int or limit < 1:
            raise AdminError("The `limit` must be a whole number from 1 on.")
        if not isinstance(group, str | None):
            raise AdminError("The `group` must be a text.")
        return _Wanted(
            group,
            None if topic_id is None else topic_id_of(topic_id),
            None if after is None else _from_cursor(after),
            min(limit, self._rows_max),
        )


def with_time(
    steps: Generator[None, None, dict[str, Any]], used_s: Callable[[], float] = time.thread_time
) -> Generator[None, None, dict[str, Any]]:
    """Make the same page, with the time of the loop that it took, `spent_s`: the purse of the node that asks pays for it.

    Args:
        steps: make the page.
        used_s: the time that the thread of the loop has worked.
    """
    spent_s = 0.0
    while True:
        began_s = used_s()
        try:
            next(steps)
        except StopIteration as end:
            spent_s += used_s() - began_s + _ENCODED_ROW_S * len(end.value["share_partitions"])
            return {**end.value, "spent_s": spent_s}
        spent_s += used_s() - began_s
        yield


def describe_one(partitions: Partitions, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a share partition with its state batches; its `row` is None where this node has no state of it.

    Args:
        partitions: the log partitions of the node.
        arguments: `group`, `topic_id` and `partition`.

    Raises:
        AdminError: an argument is wrong.
    """
    group, number = arguments.get("group"), arguments.get("partition")
    if not isinstance(group, str) or type(number) is not int:
        raise AdminError("page-state needs a `group`, a `topic_id` and a `partition`.")
    key = SharePartitionKey(group, topic_id_of(arguments.get("topic_id")), number)
    for partition, shard in serving(partitions.active()):
        state = shard.state.at(partition.committed_sequence, key)
        if state is not None:
            winner = partition.ownership.winner
            row = describe_state(key, state, partition.index, None if winner is None else winner.node_id)
            return {"row": row, "state_batches": [list(each) for each in state.state_batches]}
    return {"row": None, "state_batches": []}


def _to_cursor(key: SharePartitionKey) -> list[object]:
    return [key.group_id, format_topic_id(key.topic_id), key.partition]


def _from_cursor(cursor: object) -> SharePartitionKey:
    match cursor:
        case [str(group), topic_id, int(partition)]:
            return SharePartitionKey(group, topic_id_of(topic_id), partition)
    raise AdminError("The place to go on `after` must be the `next` of the page before.")


def _serves(partition: Partition, shard: ShareShard) -> bool:
    return partition.state is State.ACTIVE and partition.machine is shard
