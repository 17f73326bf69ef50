"""The API table over a share service and a cluster view of a test; requests and answers as kio's entities."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

from kio.serial import entity_reader, entity_writer

from holdfast.api.state_requests import Bounds
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminCommand, AdminError
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.find_coordinator import KeyType
from holdfast.daemon.server.topics_view import TopicsView
from holdfast.daemon.server.wire.requests import Body, Request, RequestMemory
from holdfast.metrics.instruments import Counter
from holdfast.records.share.keys import SharePartitionKey, format_key
from tests.world.identity.access import OPEN
from tests.world.samples import TOPIC
from tests.world.serving import FakeCluster, FakeService
from tests.world.tenants import NEEDS, make_handler

NODES = [Node(1, "one", 9492), Node(2, "two", 9493)]
TOPIC_UUID = uuid.UUID(bytes=bytes(range(16, 32)))


class ApiWorld:
    def __init__(
        self,
        commands: dict[str, AdminCommand] | None = None,
        authorizer: Authorizer | None = None,
        *,
        key_types: Mapping[int, KeyType] = {},
        topics: TopicsView | None = None,
    ) -> None:
        self.service = FakeService()
        self.cluster = FakeCluster(nodes=list(NODES))
        admin = Admin(commands or {}, NEEDS, 20, InternalErrors(Counter()))
        self.handler = make_handler(
            self.service,
            self.cluster,
            admin,
            authorizer or OPEN,
            Bounds(50),
            1_024,
            key_types=key_types,
            topics=topics,
        )

    def ask_raw(self, api_key: int, version: int, body: bytes) -> bytes:
        answers: list[Body] = []
        self.handler(
            Request(api_key, version, 1, b"me", b"head" + body, 4, "10.0.0.1:5", RequestMemory(), 0), answers.append
        )
        (answer,) = answers
        return answer if isinstance(answer, bytes) else b"".join(answer)

    def ask(self, call: str, version: int, **fields: Any) -> Any:
        """Ask by means of kio's entities."""
        name = "".join(part.title() for part in call.split("_"))
        request = schema(call, version, "request", f"{name}Request")(**fields)
        buffer = BytesIO()
        entity_writer(type(request))(buffer, request)
        api_key = request.__api_key__
        answer = self.ask_raw(api_key, version, buffer.getvalue())
        response, size = entity_reader(schema(call, version, "response", f"{name}Response"))(answer, 0)
        assert size == len(answer)
        return response


def schema(call: str, version: int, direction: str, name: str) -> Any:
    return getattr(import_module(f"kio.schema.{call}.v{version}.{direction}"), name)


def kio_bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def metadata_fields(version: int, topics: list[tuple[str | None, uuid.UUID | None]] | None) -> dict[str, Any]:
    topic = schema("metadata", version, "request", "MetadataRequestTopic")
    fields: dict[str, Any] = {
        "topics": None
        if topics is None
        else tuple(topic(name=name, **({"topic_id": topic_id} if version >= 10 else {})) for name, topic_id in topics)
    }
    if version >= 4:
        fields["allow_auto_topic_creation"] = True
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = True
    if version >= 8:
        fields["include_topic_authorized_operations"] = True
    return fields


def key(partition: int, group_id: str = "g1") -> str:
    return format_key(SharePartitionKey(group_id, TOPIC, partition))


def admin_world() -> ApiWorld:
    async def slow(arguments: dict[str, Any]) -> object:
        return {"slow": arguments}

    async def endless(arguments: dict[str, Any]) -> object:
        await asyncio.Event().wait()
        return None

    def refuse(arguments: dict[str, Any]) -> object:
        raise AdminError("Partition 9 does not exist; there are 3.")

    def fail(arguments: dict[str, Any]) -> object:
        raise RuntimeError("secret")

    return ApiWorld(
        {
            "echo": lambda arguments: arguments,
            "slow": slow,
            "endless": endless,
            "refuse": refuse,
            "fail": fail,
            "odd": lambda arguments: object(),
        }
    )
