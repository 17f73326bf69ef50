"""Topics by name: a node queries Kafka, and the answer is remembered for a while."""

from __future__ import annotations

import asyncio

from holdfast.client.admin import run_command
from holdfast.client.errors import Disconnected
from holdfast.client.nodes import Nodes
from holdfast.client.settings import ClientSettings
from holdfast.kafka.topic_ids import InvalidTopicId, parse_topic_id


class TopicIds:
    """The ids of topics, looked up and remembered."""

    def __init__(self, nodes: Nodes, settings: ClientSettings) -> None:
        self._nodes = nodes
        self._settings = settings
        #: By name: the id, and until when it is used, on the loop's clock. The longest known comes first.
        self._known: dict[str, tuple[bytes, float]] = {}
        #: So that callers who need the same name at once send one request.
        self._lock = asyncio.Lock()

    async def find(self, name: str) -> bytes:
        """Return the id of the topic of this name, 16 bytes.

        Raises:
            AdminRefused: the cluster knows no such topic, or cannot be reached now, which is retriable.
            ClientError: no node could be reached, or it looks up no names.
        """
        topic_id = self._recall(name)
        if topic_id is None:
            async with self._lock:
                topic_id = self._recall(name) or await self._query(name)
        return topic_id

    def forget(self, name: str) -> None:
        """Look it up again the next time, because the topic of this id may be gone."""
        self._known.pop(name, None)

    async def _query(self, name: str) -> bytes:
        found = await run_command(await self._nodes.any(), "resolve-topic", {"name": name})
        try:
            topic_id = parse_topic_id(found["topic_id"])
        except (InvalidTopicId, KeyError, TypeError) as error:
            raise Disconnected(f"The node names no topic id for {name!r}: {found!r}.") from error
        # With a warning Kafka could not be reached; the next call looks it up again.
        if "warning" not in found:
            valid_s = self._settings.topic_id_max_age_ms / 1_000
            self._known[name] = topic_id, asyncio.get_running_loop().time() + valid_s
            if len(self._known) > self._settings.topic_ids_cached_max:
                del self._known[next(iter(self._known))]
        return topic_id

    def _recall(self, name: str) -> bytes | None:
        known = self._known.get(name)
        if known is None:
            return None
        topic_id, valid_until = known
        if asyncio.get_running_loop().time() < valid_until:
            return topic_id
        del self._known[name]
        return None
