"""The share partitions of other nodes, as those describe them to this one: pages of their own, and one state where it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.page.book import Described
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

#: Another node of the cluster answers a page in some milliseconds.
TIMEOUT_MS: Final = 2_000


class Query(Protocol):
    """The way to other nodes; see `OtherNodes.query`."""

    async def __call__(self, address: str, command: str, timeout_ms: int, **arguments: object) -> Any:  # noqa: ANN401
        """Return what the node at an address answers; raises NodeSilent."""


class Elsewhere(NamedTuple):
    """The share partitions that other nodes described."""

    described: dict[SharePartitionKey, Described]
    #: The address of the node that has a share partition.
    addresses: dict[SharePartitionKey, str]
    #: By log partition, why it is not shown, as a clause.
    missing: dict[int, str]
    #: Time of their loops that the answers took, in seconds.
    spent_s: list[float]


class OtherStates:
    """The other nodes that serve log partitions.

    Args:
        query: asks another node.
        describe_elsewhere: returns the log partitions of other nodes, as `partitions.description` has them.
    """

    def __init__(self, query: Query, describe_elsewhere: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._query = query
        self._describe_elsewhere = describe_elsewhere

    async def collect(self) -> Elsewhere:
        """Ask all nodes that serve a log partition."""
        found = Elsewhere({}, {}, {}, [])
        by_address: dict[str, list[int]] = {}
        for row in self._describe_elsewhere():
            if row["owner_address"] is None:
                found.missing[row["partition"]] = "no node has it"
            else:
                by_address.setdefault(row["owner_address"], []).append(row["partition"])
        for address, log_partitions in by_address.items():
            try:
                shown = await self._ask(address, found)
            except NodeSilent as silence:
                why = f"the node at {address}, which has it, does not say what is in it ({str(silence).rstrip('.')})"
                found.missing.update(dict.fromkeys(log_partitions, why))
            else:
                why = f"the node at {address} does not serve it yet"
                found.missing.update({number: why for number in log_partitions if number in shown})
        return found

    async def window(self, address: str, key: SharePartitionKey, topic_id: str) -> ShareState | None:
        """Return the state of a share partition; None: that node has none now.

        Raises:
            NodeSilent: it does not answer, or may not be asked.
        """
        place = {"group": key.group_id, "topic_id": topic_id, "partition": key.partition}
        answer = await self._query(address, "page-state", TIMEOUT_MS, **place)
        if not isinstance(answer, dict) or answer.get("row") is None:
            return None
        return _state_of(answer["row"], tuple(StateBatch(*each) for each in answer["state_batches"]))

    async def _ask(self, address: str, found: Elsewhere) -> set[int]:
        """Take the pages of a node; return the log partitions that are not on them."""
        after: object = None
        while True:
            page = await self._query(address, "page-states", TIMEOUT_MS, after=after)
            if not isinstance(page, dict):
                raise NodeSilent("it knows no page")
            found.spent_s.append(page.get("spent_s", 0.0))  # none of a version that does not tell
            for row in page["share_partitions"]:
                given_up = row.pop("given_up")
                key = SharePartitionKey(row["group"], parse_topic_id(row["topic_id"]), row["partition"])
                found.described[key] = Described(_state_of(row), row["owner"], row, given_up)
                found.addresses[key] = address
            after = page["next"]
            if after is None:
                return {each["log_partition"] for each in page["not_listed"]}


def _state_of(row: Mapping[str, Any], batches: tuple[StateBatch, ...] = ()) -> ShareState:
    """Return a state as far as its description tells of it."""
    start, complete = (-1 if row[name] is None else row[name] for name in ("start_offset", "delivery_complete_count"))
    epoch, leader_epoch = row["state_epoch"], row["leader_epoch"]
    return ShareState(0, epoch, leader_epoch, start, complete, 0, 0, batches, leader_epoch, epoch, 0)
