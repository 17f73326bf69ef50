"""The id of the state topic, kept by the group of the nodes: a cluster forgets a deleted topic at once, and nodes keep nothing themselves.

It is the note of an offset that a member commits, for partition 0 of each topic of `places_of`.
Kafka keeps the commits of a group while it has members, and for `offsets.retention.minutes` after (7 days by default).
It drops those for a topic that is deleted, so the state topic cannot hold the note; other topics of ours may not exist, or be deleted
with it. The topic of the commits themselves stays, but rules for it may be missing. So the note is put wherever it is taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random
from typing import Final, NamedTuple, Protocol

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.group_offset_calls import Committer, Place
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import GroupOffsets, GroupRefused
from holdfast.kafka.protocol.error_codes import OTHER_GENERATION
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id

_log = structlog.get_logger(__name__)

#: Kafka keeps commits there; it exists wherever a group does.
_OFFSETS_TOPIC: Final = "__consumer_offsets"
#: Nothing is read from there by this group: no tool that compares offsets finds a record that it has yet to read.
_OFFSET: Final = 2**63 - 1
#: A later version has another number, and is no memory to this one.
_NOTE: Final = re.compile(r"holdfast-state-topic/1 name=([A-Za-z0-9._-]{1,249}) id=([A-Za-z0-9_-]{22})")
#: Characters of a foreign note that a line shows.
_SHOWN_CHARS_MAX: Final = 80

#: Tries of a member to commit; their pauses take 6 minutes at most.
_TRIES_MAX: Final = 20
_PAUSE_MS: Final = 100
_PAUSE_MAX_MS: Final = 30_000


class RememberedTopic(NamedTuple):
    """The state topic that a group remembers."""

    name: str
    topic_id: bytes


class Notes(Protocol):
    """The two calls of `GroupOffsets` that are needed."""

    async def fetch_note(self, group: str, place: Place) -> str:
        """See `GroupOffsets.fetch_note`."""

    async def commit_note(self, group: str, place: Place, offset: int, note: str, committer: Committer) -> None:
        """See `GroupOffsets.commit_note`."""


def places_of(settings: Settings) -> Sequence[Place]:
    """Return where the group of the nodes keeps the id, and finds it again."""
    topics = (settings.config_topic_name, settings.snapshots.topic, _OFFSETS_TOPIC)
    return [(topic, 0) for topic in topics if topic]


def format_note(topic: RememberedTopic) -> str:
    """Return what is committed."""
    return f"holdfast-state-topic/1 name={topic.name} id={format_topic_id(topic.topic_id)}"


def parse_note(note: str) -> RememberedTopic | None:
    """Return what a note says; None: it is not one of ours."""
    found = _NOTE.fullmatch(note)
    return None if found is None else RememberedTopic(found[1], parse_topic_id(found[2]))


async def recall(settings: Settings, options: ConnectionOptions) -> frozenset[RememberedTopic]:
    """Return the state topics that the group of the nodes remembers; of two places one may have been out of reach at the last commit.

    If Kafka does not tell, that is a line, and no memory. A static node has no group.
    """
    group = settings.members.group_of(settings.log.state_topic)
    if group is None:
        return frozenset()
    with closing(GroupOffsets(options, settings.log.request_timeout_ms)) as offsets:
        return await recall_from(offsets, group, places_of(settings))


async def recall_from(notes: Notes, group: str, places: Sequence[Place]) -> frozenset[RememberedTopic]:
    """Do as `recall`, by calls that are open."""
    found: set[RememberedTopic] = set()
    for place in places:
        try:
            note = await notes.fetch_note(group, place)
        except GroupRefused:  # a place where this node may not look
            continue
        except ConnectionFailed as failure:
            _log.warning("state_topic_memory_unread", group=group, why=str(failure))
            break
        remembered = parse_note(note)
        if remembered is not None:
            found.add(remembered)
        elif note:
            why = f"topic {place[0]} has {note[:_SHOWN_CHARS_MAX]!r} where the id of the state topic is expected"
            _log.warning("state_topic_memory_unread", group=group, why=why)
    return frozenset(found)


class TopicMemory:
    """The commit of one member: made once, as soon as it has a generation.

    It is not repeated: a generation that comes later knows the same topic, and the commits live as long as the group does.
    """

    def __init__(
        self, notes: Notes, group: str, places: Sequence[Place], topic: RememberedTopic, random: Random
    ) -> None:
        """Take the calls and the topic; `keep` commits.

        Args:
            notes: calls to the group coordinator.
            group: its id.
            places: where the id is kept.
            topic: the state topic of this node.
            random: jitter of pauses.
        """
        self._notes = notes
        self._group = group
        self._places = places
        self._note = format_note(topic)
        self._backoff = Backoff(_PAUSE_MS, _PAUSE_MAX_MS, random.random)

    async def keep(self, committer: Callable[[], Committer | None]) -> None:
        """Have the group keep the id, in any place at least; if none takes it, that is one line, and the node serves all the same.

        Args:
            committer: returns the member that this process is; None while it has no generation.
        """
        failures = await self._commit(committer)
        tries = 1
        while len(failures) == len(self._places) and tries < _TRIES_MAX and any(map(_may_pass, failures)):
            await asyncio.sleep(self._backoff.next_pause_ms() / 1_000)
            failures = await self._commit(committer)
            tries += 1
        if len(failures) == len(self._places):
            why = " ".join(map(str, failures))
            _log.warning("state_topic_not_remembered", group=self._group, tries=tries, why=why)

    async def _commit(self, committer: Callable[[], Committer | None]) -> list[GroupRefused | ConnectionFailed]:
        """Commit to every place, by the generation of that moment; returns why some did not take it."""
        failures: list[GroupRefused | ConnectionFailed] = []
        for place in self._places:
            member = committer()
            while member is None:
                await self._pause()
                member = committer()
            try:
                await self._notes.commit_note(self._group, place, _OFFSET, self._note, member)
            except (GroupRefused, ConnectionFailed) as failure:
                failures.append(failure)
        return failures

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_MS / 1_000)


def _may_pass(failure: GroupRefused | ConnectionFailed) -> bool:
    return isinstance(failure, ConnectionFailed) or failure.error_code in OTHER_GENERATION
