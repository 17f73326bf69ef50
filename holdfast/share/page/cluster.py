"""The cluster as a node sees it: nodes, log partitions, brokers, readers, and what is wrong; by the commands of the node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.daemon.http.queries import Ask
from holdfast.daemon.tenant import LogParts
from holdfast.kafka.addresses import format_address
from holdfast.page.source import BrokerView, ClusterView, LogPartitionView, NodeView, ReaderView

#: The name of a broker's silence among the metrics.
_SILENCE: Final = re.compile(r"broker_silence_seconds\{.*?broker=(\d+)")


async def describe_cluster(log: LogParts, ask: Ask, as_of_ms: int, unknown: tuple[str, ...]) -> ClusterView:
    """Return the cluster.

    Args:
        log: the parts of the node.
        ask: runs commands of the node.
        as_of_ms: the time, in ms since 1970.
        unknown: sentences about what the page does not show.
    """
    status, rows = await ask("status", {}), await ask("partitions", {})
    silence = _silences(await ask("metrics", {"of": "node"}))
    why = status["why_not_ready"]
    problems = [f"The node is not ready: {why}."] if why else []
    return ClusterView(
        as_of_ms=as_of_ms,
        bootstrap=f"node {status['node_id']} at {log.place.advertised_address}",
        cluster_id=log.place.cluster_id,
        state_topic=log.place.topic.name,
        brokers=tuple(
            BrokerView(broker_id, format_address(*address), silence.get(broker_id))
            for broker_id, address in sorted(log.cluster.client.addresses.items())
        ),
        log_partitions=tuple(map(_log_partition, rows)),
        problems=(*problems, *unknown),
        nodes=tuple(map(_node, await ask("members", {}))),
        readers=tuple(
            ReaderView(row["group"], row["state"], row["behind"], row["still_ms"]) for row in await ask("readers", {})
        ),
    )


def _silences(metrics: Mapping[str, float]) -> dict[int, int]:
    """Return the silence of each broker that leads a log partition, in ms."""
    return {int(found[1]): round(value * 1_000) for name, value in metrics.items() if (found := _SILENCE.search(name))}


def _log_partition(row: Mapping[str, Any]) -> LogPartitionView:
    problem = row["failure"] or ""
    if row["is_alarmed"] and "`holdfast partitions" not in problem:  # most alarms name the command that ends them
        problem += "; the page Alarms and alerts says what ends it"
    return LogPartitionView(
        partition=row["partition"],
        leader=None,
        start_offset=row["log_start"],
        end_offset=row["written"],
        read_to=row["committed"] or 0,
        states=row["keys"] or 0,
        problem=problem,
        owner=row["owner"],
        condition=row["state"],
    )


def _node(row: Mapping[str, Any]) -> NodeView:
    return NodeView(
        node_id=str(row["node_id"]),
        address=row["address"],
        condition=row["state"],
        log_partitions=tuple(row["log_partitions"]),
        duties=tuple(row["duties"]),
    )
