"""The view of the cluster: an alarm with what ends it, how far readers are, and what nobody could say."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.page.source import ROWS_PER_PAGE, SENTENCES_MAX
from holdfast.share.page.cluster import describe_cluster

_ROW: Final = {"log_start": 3, "written": 9, "committed": 9, "keys": 2, "owner": "1", "state": "active"}
_MEMBER: Final = {"state": "member", "log_partitions": [0, 1, 2], "duties": []}
_NAMED: Final = "it is above an alarm; `holdfast partitions resolve 1` ends it"
ANSWERS: Final[Mapping[str, Any]] = {
    "status": {"node_id": 1},
    "partitions": [
        _ROW | {"partition": 0, "failure": None, "is_alarmed": False},
        _ROW | {"partition": 1, "failure": _NAMED, "is_alarmed": True},
        _ROW | {"partition": 2, "failure": "records are missing", "is_alarmed": True},
    ],
    "members": [
        {"node_id": 2, "address": "127.0.0.1:9", **_MEMBER},
        {"node_id": 3, "address": "127.0.0.1:8", **_MEMBER},
    ],
    "hand-overs": [],
    "metrics": {"holdfast_broker_silence_seconds{broker=7}": 1.5},
    "readers": [{"group": "fold", "state": "reads", "behind": 12, "still_ms": 40}],
}


async def ask(command: str, arguments: object) -> Any:
    return ANSWERS[command]


async def query(address: str, command: str, timeout_ms: int, **arguments: object) -> Any:
    if address.endswith(":9"):
        raise NodeSilent("it does not answer")
    return []


def log_parts() -> Any:
    topic, addresses = SimpleNamespace(name="states"), {7: ("127.0.0.1", 9092), 8: ("127.0.0.1", 9093)}
    place = SimpleNamespace(advertised_address="127.0.0.1:7", cluster_id="kelp", topic=topic)
    return SimpleNamespace(place=place, cluster=SimpleNamespace(client=SimpleNamespace(addresses=addresses)))


async def test_alarms_readers_and_silences_are_those_of_the_commands() -> None:
    view = await describe_cluster(log_parts(), ask, query, 1_000, ("Something is old.",))
    assert [each.problem for each in view.log_partitions] == [
        "",
        _NAMED,
        "records are missing; the page Alarms and alerts says what ends it",
    ]
    assert [(each.group, each.behind, each.still_ms) for each in view.readers] == [("fold", 12, 40)]
    assert [(each.broker_id, each.silent_ms) for each in view.brokers] == [(7, 1_500), (8, None)]
    assert view.problems[0] == "Something is old."
    assert [each for each in view.problems if "node 2 at 127.0.0.1:9" in each and "does not answer" in each]


async def test_hand_overs_are_all_there_and_what_may_be_much_is_bounded() -> None:
    numbers = list(range(ROWS_PER_PAGE + 1))
    silent = {"node_id": 2, "address": "127.0.0.1:9", **_MEMBER}
    hand_over = {
        "at_ms": 1,
        "from_node": None,
        "to_node": "1",
        "owner_epoch": 1,
        "generation": 1,
        "load_ms": 1,
        "why": "",
    }
    answers: dict[str, Any] = {
        **ANSWERS,
        "members": [
            {"node_id": 1, "address": "127.0.0.1:7", **_MEMBER} | {"state": "stable", "log_partitions": numbers},
            *(SENTENCES_MAX + 3) * [silent],
        ],
        "hand-overs": [hand_over | {"log_partition": number} for number in numbers],
    }

    async def ask_this(command: str, arguments: object) -> Any:
        return answers[command]

    view = await describe_cluster(log_parts(), ask_this, query, 1_000, ())
    node, *_ = view.nodes
    assert (len(view.problems), view.problems[-1]) == (SENTENCES_MAX + 1, "3 more of these are not named here.")
    assert (len(node.log_partitions), node.log_partitions_in_all) == (ROWS_PER_PAGE, ROWS_PER_PAGE + 1)
    assert [each.log_partition for each in view.hand_overs] == numbers
