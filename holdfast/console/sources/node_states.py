"""The share partitions of a node, queried page by page."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby, islice
from typing import Any, Final

from holdfast.console.options import admin, find_topic_id, query_node
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_lag import GroupFilter
from holdfast.console.sources.group_nodes import OtherNode, other_nodes
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.records.share.group_lag import Place, Row, TopicEnd

#: Partitions that one query names; a node takes some thousands, and this number fits into the arguments of a command.
_PLACES_PER_QUERY: Final = 1_000
#: Share partitions of a page that is made of those of several nodes.
_ROWS_PER_PAGE: Final = 1_000


class NodeSource:
    """The share partitions of the node at an address, and of the other members of its group."""

    def __init__(self, address: str) -> None:
        self._address = address
        #: For each node that answered: log partition to the reason for which its share partitions were missing from a page.
        self._not_listed: list[dict[int, str]] = []
        #: Members that did not answer, a clause each.
        self._silent: list[str] = []

    def pages(self, wanted: GroupFilter) -> Iterator[list[Row]]:
        """Yield the share partitions that the nodes serve, as many at a time as one of them gives.

        Those of all nodes come in one order, that of group, topic id and partition.

        Raises:
            Failure: the node at the address does not answer, refuses, or knows no such topic.
        """
        self._not_listed, self._silent = [], []
        arguments: dict[str, Any] = {"group": wanted.group}
        if wanted.topic is not None:
            topic = wanted.topic
            topic_id = query_node(self._address, lambda client: find_topic_id(client, topic))
            arguments["topic_id"] = format_topic_id(topic_id)
        others = other_nodes(admin(self._address, "members"))
        if not others:
            yield from self._pages_of(self._address, arguments)
            return
        first = chain.from_iterable(self._pages_of(self._address, arguments))
        rows = merge(first, *(self._rows_of(node, arguments) for node in others), key=_place)
        # One that moves from node to node meanwhile may come from both.
        each_once = (next(same) for _, same in groupby(rows, key=_place))
        while page := list(islice(each_once, _ROWS_PER_PAGE)):
            yield page

    def _rows_of(self, node: OtherNode, arguments: Mapping[str, Any]) -> Iterator[Row]:
        try:
            yield from chain.from_iterable(self._pages_of(node.address, arguments))
        except Failure as failure:
            self._silent.append(f"The state that {node} holds is missing: {str(failure).removesuffix('.')}")

    def _pages_of(self, address: str, arguments: Mapping[str, Any]) -> Iterator[list[Row]]:
        """Yield the pages of one node."""
        not_listed: dict[int, str] = {}
        after: object = None
        while True:
            page = admin(address, "share-partitions", **arguments, after=after)
            if after is None:
                self._not_listed.append(not_listed)
            for each in page["not_listed"]:
                not_listed[each["log_partition"]] = each["why"] or each["state"]
            yield page["share_partitions"]
            if (after := page["next"]) is None:
                return

    def ends(self, places: Collection[Place]) -> Mapping[Place, TopicEnd]:
        """Return where partitions of topics end, as their leaders report to the node.

        Raises:
            Failure: the node does not answer.
        """
        ends: dict[Place, TopicEnd] = {}
        ordered = sorted(places)
        for start in range(0, len(ordered), _PLACES_PER_QUERY):
            part = ordered[start : start + _PLACES_PER_QUERY]
            topics: dict[str, list[int]] = {}
            for topic_id, partition in part:
                topics.setdefault(topic_id, []).append(partition)
            try:
                answer = admin(self._address, "topic-ends", topics=topics)
            except Failure as failure:
                if failure.exit_code == Exit.UNREACHABLE:
                    raise
                ends |= dict.fromkeys(part, TopicEnd(None, None, str(failure).removesuffix(".")))
                continue
            for topic_id, partition in part:
                name, found = answer[topic_id]["name"], answer[topic_id]["partitions"][str(partition)]
                problem = found["problem"] or ""
                ends[topic_id, partition] = TopicEnd(name, None if problem else found["end_offset"], problem)
        return ends

    def gaps(self) -> Sequence[str]:
        """Return which log partitions no node serves that answered, so that their share partitions are missing."""
        missing = set.intersection(*map(set, self._not_listed)) if self._not_listed else set()
        if not missing:
            return self._silent
        numbers = ", ".join(map(str, sorted(missing)))
        first = min(missing)
        subject = "the node does not serve it" if len(self._not_listed) == 1 else "no node serves it"
        return [
            *self._silent,
            f"The state in log partition {numbers} is missing, because {subject} "
            f"({first}: {self._not_listed[0][first]}); `holdfast partitions` shows why",
        ]


def _place(row: Row) -> tuple[str, bytes, int]:
    return row["group"], parse_topic_id(row["topic_id"]), row["partition"]
