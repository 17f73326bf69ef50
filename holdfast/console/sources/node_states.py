"""What a node holds, queried page by page."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.console.options import admin, find_topic_id, query_node
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_lag import GroupFilter, Place, Row, TopicEnd
from holdfast.records.keys import format_topic_id

#: Partitions that one query names; a node takes some thousands, and so many fit into the arguments of a command.
_PLACES_PER_QUERY: Final = 1_000


class NodeSource:
    """The share partitions of the node at an address."""

    def __init__(self, address: str) -> None:
        self._address = address
        #: By log partition, why its share partitions were missing from a page.
        self._not_listed: dict[int, str] = {}

    def pages(self, wanted: GroupFilter) -> Iterator[list[Row]]:
        """Yield the share partitions that the node serves, as many at a time as it gives.

        Raises:
            Failure: it does not answer, refuses, or knows no such topic.
        """
        arguments: dict[str, Any] = {"group": wanted.group}
        if wanted.topic is not None:
            topic = wanted.topic
            topic_id = query_node(self._address, lambda client: find_topic_id(client, topic))
            arguments["topic_id"] = format_topic_id(topic_id)
        after: object = None
        while True:
            page = admin(self._address, "share-partitions", **arguments, after=after)
            for each in page["not_listed"]:
                self._not_listed[each["log_partition"]] = each["why"] or each["state"]
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
        """Return which log partitions the node does not serve, so that their share partitions are missing."""
        if not self._not_listed:
            return []
        numbers = ", ".join(map(str, sorted(self._not_listed)))
        first = min(self._not_listed)
        return [
            f"What lies in log partition {numbers} is missing, because the node does not serve it "
            f"({first}: {self._not_listed[first]}); `holdfast partitions` shows why"
        ]
