"""The id of the state topic that the group of the nodes keeps: when a member commits it, and what a start makes of what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics import remains
from holdfast.daemon.topics.remains import Remains
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.daemon.topics.topic_memory import (
    RememberedTopic,
    TopicMemory,
    format_note,
    parse_note,
    places_of,
    recall,
    recall_from,
)
from holdfast.kafka.connection_options import ConnectionOptions, LiveProperties
from holdfast.kafka.discovery.group_offset_calls import Committer, Place
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import GroupRefused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.node_settings import load_settings

TOPIC: Final = RememberedTopic("state", bytes(range(16)))
OTHER: Final = RememberedTopic("state", bytes(16))
NOTE: Final = "holdfast-state-topic/1 name=state id=AAECAwQFBgcICQoLDA0ODw"
CONFIG, OFFSETS = ("state_config", 0), ("__consumer_offsets", 0)
UNKNOWN: Final = GroupRefused("there is no such topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
DENIED: Final = GroupRefused("allow Read on topic x", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
SILENT: Final = ConnectionFailed("no answer")
REBALANCES: Final = GroupRefused("REBALANCE_IN_PROGRESS", ErrorCode.REBALANCE_IN_PROGRESS)
Fault = GroupRefused | ConnectionFailed


class Coordinator:
    """Keeps notes; the last fault of a place comes again and again, and None takes a note."""

    def __init__(
        self, notes: Mapping[Place, str | Fault] = {}, faults: Mapping[Place, Sequence[Fault | None]] = {}
    ) -> None:
        self.notes = dict(notes)
        self.faults = {place: list(some) for place, some in faults.items()}
        self.commits: list[tuple[Place, int, Committer]] = []

    async def fetch_note(self, group: str, place: Place) -> str:
        assert group == "nodes"
        found = self.notes.get(place, "")
        if isinstance(found, Exception):
            raise found
        return found

    async def commit_note(self, group: str, place: Place, offset: int, note: str, committer: Committer) -> None:
        assert (group, note) == ("nodes", NOTE)
        self.commits.append((place, offset, committer))
        faults = self.faults.get(place, [None])
        fault = faults.pop(0) if len(faults) > 1 else faults[0]
        if fault is not None:
            raise fault


async def keep(coordinator: Coordinator, committer: Callable[[], Committer | None]) -> list[Any]:
    """Have a member commit; returns its lines."""
    with capture_logs() as lines:
        await TopicMemory(coordinator, "nodes", [CONFIG, OFFSETS], TOPIC, Random(1)).keep(committer)
    return lines


def test_a_note_is_read_as_it_was_written() -> None:
    assert format_note(TOPIC) == NOTE
    assert parse_note(NOTE) == TOPIC
    longest = RememberedTopic("n" * 249, bytes(16))
    assert parse_note(format_note(longest)) == longest


@pytest.mark.parametrize(
    "note",
    [
        "",
        "x" * 4_096,
        NOTE + " ",
        NOTE + "\n",
        NOTE[:-1],
        NOTE.replace("/1", "/2"),
        NOTE.replace("state id", "sta te id"),
        NOTE.replace("name=state", "name=" + "n" * 250),
        NOTE.replace("AAEC", "AA+C"),
    ],
)
def test_a_note_that_is_none_of_ours_says_nothing(note: str) -> None:
    assert parse_note(note) is None


def test_the_places_are_topics_of_ours_and_that_of_the_commits() -> None:
    assert places_of(settings(**{"snapshots.topic": ""})) == [CONFIG, OFFSETS]
    assert places_of(settings(**{"snapshots.topic": "shots"})) == [CONFIG, ("shots", 0), OFFSETS]


async def test_a_member_commits_once_as_soon_as_it_has_a_generation() -> None:
    member, coordinator = Committer("m-1", 7), Coordinator()
    generations = iter([None, None, member])
    assert await keep(coordinator, lambda: next(generations, member)) == []
    assert coordinator.commits == [(CONFIG, 2**63 - 1, member), (OFFSETS, 2**63 - 1, member)]


@pytest.mark.parametrize("missing", [UNKNOWN, DENIED, SILENT])
async def test_one_place_that_takes_the_note_is_enough(missing: Fault) -> None:
    coordinator = Coordinator(faults={CONFIG: [missing]})
    assert await keep(coordinator, lambda: Committer("m-1", 7)) == []
    assert len(coordinator.commits) == 2


@pytest.mark.virtual_time
@pytest.mark.parametrize("passing", [REBALANCES, SILENT])
async def test_a_commit_that_comes_between_generations_is_tried_again(passing: Fault) -> None:
    coordinator = Coordinator(faults={CONFIG: [UNKNOWN], OFFSETS: [passing, None]})
    members = iter([Committer("m-1", number) for number in (7, 7, 8, 8)])
    assert await keep(coordinator, lambda: next(members)) == []
    assert [committer.generation_id for _, _, committer in coordinator.commits] == [7, 7, 8, 8]


@pytest.mark.virtual_time
async def test_a_note_that_no_place_takes_is_one_line() -> None:
    denied = Coordinator(faults={CONFIG: [UNKNOWN], OFFSETS: [DENIED]})
    [line] = await keep(denied, lambda: Committer("m-1", 7))
    assert (line["event"], line["log_level"], line["tries"]) == ("state_topic_not_remembered", "warning", 1)
    assert line["why"] == "there is no such topic allow Read on topic x"
    silent = Coordinator(faults={CONFIG: [SILENT], OFFSETS: [SILENT]})
    [line] = await keep(silent, lambda: Committer("m-1", 7))
    assert (line["tries"], len(silent.commits)) == (20, 40)


async def test_a_start_recalls_what_any_place_has() -> None:
    notes = {CONFIG: format_note(OTHER), OFFSETS: NOTE}
    assert await recall_from(Coordinator(notes), "nodes", [CONFIG, OFFSETS]) == {TOPIC, OTHER}
    with capture_logs() as lines:
        assert await recall_from(Coordinator({CONFIG: DENIED, OFFSETS: NOTE}), "nodes", [CONFIG, OFFSETS]) == {TOPIC}
    assert lines == []


@pytest.mark.parametrize(
    ("found", "said"), [("x" * 4_096, f"has '{'x' * 80}' where"), (SILENT, "no answer")], ids=["garbage", "silence"]
)
async def test_an_unreadable_note_is_one_line_and_no_memory(found: str | Fault, said: str) -> None:
    with capture_logs() as lines:
        assert await recall_from(Coordinator({CONFIG: found}), "nodes", [CONFIG, OFFSETS]) == frozenset()
    [line] = lines
    assert (line["event"], line["log_level"]) == ("state_topic_memory_unread", "warning")
    assert said in line["why"]
    assert len(line["why"]) < 200


def settings(**flags: object) -> Settings:
    named = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "state_topic": "state",
        "group.id": "nodes",
        "snapshots.topic": "",
    } | flags
    return load_settings(flags=named).settings


async def test_a_static_node_recalls_nothing() -> None:
    static = settings(membership="static", **{"group.id": ""})
    assert await recall(static, ConnectionOptions(bootstrap=(("127.0.0.1", 1),))) == frozenset()


class Admin:
    """Says where partitions end; None: it has no leader."""

    def __init__(self, *ends: int | None) -> None:
        self._ends = ends

    def list_offsets(
        self, places: Mapping[TopicPartition, object], request_timeout: float
    ) -> dict[TopicPartition, Any]:
        return {place: End(self._ends[place.partition]) for place in places}


class End:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    @property
    def offset(self) -> int | None:
        return self._offset

    def result(self) -> End:
        if self._offset is None:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return self


def look_back(
    monkeypatch: pytest.MonkeyPatch, admin: Any, remembered: set[RememberedTopic], members: int | None = None
) -> Remains:
    async def recalled(*_: object) -> frozenset[RememberedTopic]:
        return frozenset(remembered)

    async def count(*_: object) -> int | None:
        return members

    monkeypatch.setattr(remains, "recall", recalled)
    monkeypatch.setattr(Remains, "_count_members", count)
    return Remains(admin, settings(), LiveProperties({"bootstrap.servers": "127.0.0.1:1"}))


@pytest.mark.parametrize(
    ("ends", "remembered", "is_refused"),
    [
        ((0, 0), {OTHER}, True),
        ((0, 0), set(), False),
        ((0, 0), {TOPIC}, False),
        ((0, 0), {TOPIC, OTHER}, False),  # of two places one was out of reach at the last commit
        ((0, 3), {OTHER}, False),  # its records say which log it is
        ((None, 3), {OTHER}, False),
        ((0, 0), {RememberedTopic("another", bytes(16))}, False),
    ],
)
async def test_only_an_empty_topic_in_place_of_another_has_a_predecessor(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int | None, ...], remembered: set[RememberedTopic], is_refused: bool
) -> None:
    topic = StateTopic("state", TOPIC.topic_id, 2, 1, 1_048_588)
    found = await look_back(monkeypatch, Admin(*ends), remembered).find_predecessor(topic)
    assert found == ("the group nodes remembers the id AAAAAAAAAAAAAAAAAAAAAA" if is_refused else "")


async def test_a_topic_that_may_be_empty_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = StateTopic("state", TOPIC.topic_id, 2, 1, 1_048_588)
    with pytest.raises(ConnectionFailed, match="whether log partitions 1 of state are empty"):
        await look_back(monkeypatch, Admin(0, None), {OTHER}).find_predecessor(topic)
    assert await look_back(monkeypatch, Admin(0, None), set()).find_predecessor(topic) == ""


@pytest.mark.parametrize(
    ("members", "remembered", "said"),
    [
        (2, {OTHER}, "the group nodes is known, and 2 nodes are in it"),
        (0, {OTHER}, "the group nodes remembers it, with the id AAAAAAAAAAAAAAAAAAAAAA"),
        (0, set(), "the group nodes is known, and nodes were in it a short time ago"),
        (0, {RememberedTopic("another", bytes(16))}, ""),
        (None, {OTHER}, ""),
    ],
)
async def test_a_missing_topic_is_told_by_the_group(
    monkeypatch: pytest.MonkeyPatch, members: int | None, remembered: set[RememberedTopic], said: str
) -> None:
    assert await look_back(monkeypatch, None, remembered, members).find_remains() == said
