"""Start offsets as Kafka's users name them: a number, or the end of a topic's partition that is meant."""

from enum import Enum
from typing import Any

import click

from holdfast.client import Client
from holdfast.console.commands.state.apply import Named
from holdfast.console.commands.state.denials import query_about
from holdfast.console.options import OFFSET_OR_NONE, find_topic_id
from holdfast.console.outcomes import Failure
from holdfast.kafka.topic_ids import format_topic_id


class Edge(Enum):
    """An end of a topic's partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


class StartOffset(click.ParamType[int | Edge]):
    """An offset, -1 for none, or an end of the topic's partition."""

    name = "OFFSET|earliest|latest"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Edge:  # noqa: ANN401
        """Return the offset, or which end is meant."""
        if isinstance(value, Edge) or value in [edge.value for edge in Edge]:
            return Edge(value)
        try:
            return int(OFFSET_OR_NONE.convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is no offset: give a number from 0, -1, `earliest` or `latest`", param, ctx)


def find_offset(address: str, named: Named, call: str, wanted: int | Edge) -> int:
    """Return the offset that is wanted of a topic's partition: of its first record now, or of the next one that comes.

    Args:
        address: of the node.
        named: the share partition.
        call: for which it is wanted.
        wanted: the offset itself, or an end of the partition.

    Raises:
        Failure: the node does not answer, there is no such topic, or its ends are not known.
    """
    if isinstance(wanted, int):
        return wanted

    async def look(client: Client) -> dict[str, Any]:
        topic_id = format_topic_id(await find_topic_id(client, named.topic))
        answer = await client.admin("topic-ends", topics={topic_id: [named.partition]})
        return dict(answer[topic_id]["partitions"][str(named.partition)])

    ends = query_about(address, named.group, named.topic, call, look)
    if ends["problem"]:
        raise Failure(f"The {wanted.value} offset of {named.topic}:{named.partition} is not known: {ends['problem']}.")
    return int(ends["first_offset" if wanted is Edge.EARLIEST else "end_offset"])
