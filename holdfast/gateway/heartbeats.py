"""ShareGroupHeartbeat: the members of the groups that this node coordinates, and what each of them fetches.

A node coordinates the groups whose log partition it owns. Members are memory: where a node begins to coordinate a group, each member hears
once that it is not known, and joins again with its next heartbeat.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from holdfast.api import share_group_heartbeat
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_group import Accepted, Heartbeat, Member, Refused, ShareGroup, Topics
from holdfast.kafka.protocol.error_codes import ErrorCode

#: Groups that a node may coordinate; each has members that send heartbeats.
_GROUPS_MAX: Final = 10_000
#: Topics that a member may subscribe to, existing or not.
_TOPIC_NAMES_MAX: Final = 1_000
_TOPIC_NAME_CHARACTERS_MAX: Final = 249
#: Members that died are looked for so often.
_TICK_S: Final = 1.0


class Coordination(Protocol):
    """Which groups this node coordinates."""

    def refuse_group(self, group_id: str) -> int:
        """Return Kafka's error code where another node coordinates a group, or none yet; 0: this one does."""


class TopicNames(Protocol):
    """The topics that are offered, by name."""

    def find(self, names: Collection[str]) -> Topics:
        """Return those that there are; the others are looked up."""


class Heartbeats:
    """The groups that this node coordinates.

    Args:
        coordination: which groups those are.
        topics: that are offered.
        config_of: returns the config of a group.
        members_max: of one group.
        epoch_min: returns the least epoch of a group that changes now.
    """

    def __init__(
        self,
        coordination: Coordination,
        topics: TopicNames,
        config_of: Callable[[str], GroupConfig],
        members_max: int,
        epoch_min: Callable[[], int],
    ) -> None:
        self._coordination = coordination
        self._topics = topics
        self._config_of = config_of
        self._members_max = members_max
        self._epoch_min = epoch_min
        self._loop = asyncio.get_running_loop()
        self._groups: dict[str, ShareGroup] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def group_ids(self) -> Collection[str]:
        """Return the groups that have members."""
        return self._groups.keys()

    def members_of(self, group_id: str) -> Mapping[str, Member]:
        """Return the members of a group, by their ids."""
        group = self._groups.get(group_id)
        return {} if group is None else group.members

    def handle(self, request: HeartbeatRequest, client_id: str, client_host: str) -> HeartbeatResponse:
        """Return the answer to a heartbeat of a client that may READ the group and DESCRIBE the topics."""
        fault = share_group_heartbeat.find_malformed_heartbeat(request)
        if fault is not None:
            return _refuse(request, *fault)
        names = request.topic_names
        if wrong := _find_wrong_names(names or ()):
            return _refuse(request, ErrorCode.INVALID_REQUEST, wrong)
        refusal = self._coordination.refuse_group(request.group_id)
        if refusal:
            self._groups.pop(request.group_id, None)
            return _refuse(request, refusal, "another node coordinates the group, or none yet")
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_epoch != share_group_heartbeat.JOIN_EPOCH:
                return _refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, "the group has no members here; join with epoch 0")
            if len(self._groups) >= _GROUPS_MAX:
                text = f"this node coordinates {_GROUPS_MAX} groups, as many as it may"
                return _refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            group = ShareGroup(self._config_of(request.group_id), self._members_max, self._topics.find)
            self._groups[request.group_id] = group
            self._set_timer()
        beat = Heartbeat(
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else tuple(names),
            client_id,
            client_host,
        )
        outcome = group.heartbeat(self._loop.time() * 1_000, self._epoch_min(), beat)
        if not group.members:
            del self._groups[request.group_id]
        if isinstance(outcome, Refused):
            return _refuse(request, outcome.error_code, outcome.text)
        return _accept(request, outcome, group.config.heartbeat_interval_ms)

    def close(self) -> None:
        """Forget all groups."""
        self._groups.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        """Forget members that died, and groups without members."""
        self._timer = None
        now_ms, epoch_min = self._loop.time() * 1_000, self._epoch_min()
        for group_id, group in list(self._groups.items()):
            group.tick(now_ms, epoch_min)
            if not group.members:
                del self._groups[group_id]
        if self._groups:
            self._set_timer()


def _find_wrong_names(names: Collection[str]) -> str:
    """Return why a member may not subscribe to topics of these names; empty: it may."""
    if len(names) > _TOPIC_NAMES_MAX:
        return f"SubscribedTopicNames has {len(names)} names; a member may have {_TOPIC_NAMES_MAX}, subscribe to fewer."
    longest = max(map(len, names), default=0)
    if longest > _TOPIC_NAME_CHARACTERS_MAX:
        return (
            f"SubscribedTopicNames has a name of {longest} characters; no topic's has more than "
            f"{_TOPIC_NAME_CHARACTERS_MAX}, correct it."
        )
    return ""


def _refuse(request: HeartbeatRequest, error_code: int, text: str) -> HeartbeatResponse:
    return HeartbeatResponse(error_code, text, request.member_id)


def _accept(request: HeartbeatRequest, outcome: Accepted, interval_ms: int) -> HeartbeatResponse:
    assignment = None
    if outcome.assignment is not None:
        by_topic: defaultdict[bytes, list[int]] = defaultdict(list)
        for topic_id, partition in sorted(outcome.assignment):
            by_topic[topic_id].append(partition)
        assignment = list(by_topic.items())
    return HeartbeatResponse(0, None, request.member_id, outcome.member_epoch, interval_ms, assignment)
