"""The cluster as a node sees it: nodes, log partitions, hand-overs, brokers, readers, and what is wrong; by commands of the nodes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.daemon.http.queries import Ask
from holdfast.daemon.partitions.hand_overs import merge
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.tenant import LogParts
from holdfast.kafka.addresses import format_address
from holdfast.page.source import (
    ROWS_PER_PAGE,
    BrokerView,
    ClusterView,
    HandOverView,
    LogPartitionView,
    NodeView,
    ReaderView,
    some_of,
)
from holdfast.share.page.others import TIMEOUT_MS, Query

#: The name of a broker's silence among the metrics.
_SILENCE: Final = re.compile(r"broker_silence_seconds\{.*?broker=(\d+)")


async def describe_cluster(
    log: LogParts, ask: Ask, query: Query, as_of_ms: int, unknown: tuple[str, ...]
) -> ClusterView:
    """Return the cluster.

    Args:
        log: the parts of the node.
        ask: runs commands of the node.
        query: asks another node.
        as_of_ms: the time, in ms since 1970.
        unknown: sentences about what the page does not show.
    """
    status, rows, members = await ask("status", {}), await ask("partitions", {}), await ask("members", {})
    elsewhere, silent = await _ask_others(members, query)
    hand_overs = merge([await ask("hand-overs", {}), *elsewhere])
    silence = _silences(await ask("metrics", {"of": "node"}))
    return ClusterView(
        as_of_ms=as_of_ms,
        bootstrap=f"node {status['node_id']} at {log.place.advertised_address}",
        cluster_id=log.place.cluster_id,
        state_topic=log.place.topic.name,
        brokers=tuple(
            BrokerView(broker_id, format_address(*address), silence.get(broker_id))
            for broker_id, address in log.cluster.client.addresses.items()
        ),
        log_partitions=tuple(map(_log_partition, rows)),
        problems=(*unknown, *some_of(silent)),
        nodes=tuple(map(_node, members)),
        readers=tuple(
            ReaderView(row["group"], row["state"], row["behind"], row["still_ms"]) for row in await ask("readers", {})
        ),
        hand_overs=tuple(HandOverView(**row) for row in hand_overs),
    )


async def _ask_others(
    members: Sequence[Mapping[str, Any]], query: Query
) -> tuple[list[list[dict[str, Any]]], tuple[str, ...]]:
    """Return the hand-overs that other members remember, and a sentence about each that did not say."""
    others = [(row["node_id"], row["address"]) for row in members if row["state"] == "member"]
    answers = await asyncio.gather(
        *(query(address, "hand-overs", TIMEOUT_MS) for _, address in others), return_exceptions=True
    )
    found, silent = list[list[dict[str, Any]]](), list[str]()
    for (node_id, address), answer in zip(others, answers, strict=True):
        if isinstance(answer, list):
            found.append(answer)
        elif isinstance(answer, NodeSilent | None):
            why = "it does not know the question" if answer is None else str(answer).rstrip(".")
            silent.append(f"The hand-overs of node {node_id} at {address} are not shown: {why}.")
        else:
            raise answer
    return found, tuple(silent)


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
        log_partitions=tuple(row["log_partitions"][:ROWS_PER_PAGE]),
        duties=tuple(row["duties"]),
        log_partitions_in_all=len(row["log_partitions"]),
    )
