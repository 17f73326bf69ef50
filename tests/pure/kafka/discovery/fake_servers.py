"""A cluster of servers that are objects: they read requests and write answers with kio, in each version that they speak."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter

#: API key to Kafka's name.
API_NAMES = {
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    13: "LeaveGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    18: "ApiVersions",
    42: "DeleteGroups",
    69: "ConsumerGroupDescribe",
    77: "ShareGroupDescribe",
}
#: The same, as kio's modules are called.
MODULES = {
    3: "metadata",
    9: "offset_fetch",
    10: "find_coordinator",
    13: "leave_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    42: "delete_groups",
    69: "consumer_group_describe",
    77: "share_group_describe",
}
NONE = ErrorCode.none


def schema(api_key: int, version: int, kind: str, name: str) -> Any:
    """Return one of kio's classes."""
    return getattr(import_module(f"kio.schema.{MODULES[api_key]}.v{version}.{kind}"), name)


def to_bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@dataclass
class Asked:
    """A request that came."""

    host: str
    api: str
    version: int
    request: Any


@dataclass
class Server:
    """One server; what it answers can be changed at any time."""

    host: str
    cluster: FakeCluster
    versions: dict[int, tuple[int, int]]
    #: Answers nothing.
    is_silent: bool = False
    #: All its answers wait for this; None: for nothing.
    gate: asyncio.Event | None = None
    #: Cannot be connected to, and ends its connections when it is queried.
    is_gone: bool = False
    #: Of the next answers, each once.
    throttles_ms: list[int] = field(default_factory=list)
    #: Gives the host that coordinates (key type, key), or an error.
    coordinator: Callable[[int, str], str | ErrorCode] = lambda _type, _key: "a"
    #: Gives the error of a group in calls about groups.
    group_error: Callable[[str], ErrorCode] = lambda _: NONE
    #: Gives the type of a group, by Kafka's name; empty: there is no such group.
    group_type: Callable[[str], str] = lambda _: "classic"
    #: Groups that it lists beside one of its own name, and their types.
    listed: dict[str, str] = field(default_factory=dict)
    #: The state of each of them.
    listed_state: str = "Stable"
    #: The error of its list.
    list_error: ErrorCode = NONE
    #: Whether classic groups have a member.
    has_members: bool = True
    #: Answers of an API, in the place of the usual one.
    answers: dict[str, Callable[[int, Any], Any]] = field(default_factory=dict)

    def answer(self, api_key: int, version: int, request: Any) -> Any:
        name = API_NAMES[api_key]
        if name in self.answers:
            return self.answers[name](version, request)
        return getattr(self, f"_answer_{MODULES[api_key]}")(version, request)

    def throttle(self) -> timedelta:
        return timedelta(milliseconds=self.throttles_ms.pop(0) if self.throttles_ms else 0)

    def _answer_api_versions(self, version: int, request: Any) -> Any:
        make = schema(18, version, "response", "ApiVersion")
        keys = tuple(make(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items())
        return schema(18, version, "response", "ApiVersionsResponse")(error_code=NONE, api_keys=keys)

    def _answer_metadata(self, version: int, request: Any) -> Any:
        assert request.topics == ()
        make = schema(3, version, "response", "MetadataResponseBroker")
        hosts = self.cluster.named_hosts
        brokers = tuple(make(node_id=node_id, host=host, port=9092) for node_id, host in enumerate(hosts))
        throttle = {"throttle_time": self.throttle()} if version >= 3 else {}
        cluster = {"cluster_id": "cluster"} if version >= 2 else {}
        error = {"error_code": NONE} if version >= 13 else {}
        return schema(3, version, "response", "MetadataResponse")(
            brokers=brokers, controller_id=0, topics=(), **throttle, **cluster, **error
        )

    def _answer_find_coordinator(self, version: int, request: Any) -> Any:
        key_type = int(request.key_type) if version >= 1 else 0
        response = schema(10, version, "response", "FindCoordinatorResponse")
        throttle = {"throttle_time": self.throttle()} if version >= 1 else {}
        if version < 4:
            message = {"error_message": "no"} if version >= 1 else {}
            return response(**self._named(key_type, request.key), **message, **throttle)
        make = schema(10, version, "response", "Coordinator")
        found = tuple(
            make(key=key, error_message="no", **self._named(key_type, key)) for key in request.coordinator_keys
        )
        return response(coordinators=found, **throttle)

    def _answer_offset_fetch(self, version: int, request: Any) -> Any:
        """Answer that a group has committed its own length of partition 0 of `topic`, or that it is coordinated elsewhere."""
        assert request.require_stable
        suffix = "s" if version >= 8 else ""
        make_topic = schema(9, version, "response", f"OffsetFetchResponseTopic{suffix}")
        make_partition = schema(9, version, "response", f"OffsetFetchResponsePartition{suffix}")

        def found(group: str) -> dict[str, Any]:
            partition = make_partition(partition_index=0, committed_offset=len(group), metadata="", error_code=NONE)
            topics = (make_topic(name="topic", partitions=(partition,)),)
            return {"error_code": self.group_error(group), "topics": topics}

        response = schema(9, version, "response", "OffsetFetchResponse")
        if version < 8:
            return response(throttle_time=self.throttle(), **found(request.group_id))
        make = schema(9, version, "response", "OffsetFetchResponseGroup")
        groups = tuple(make(group_id=each.group_id, **found(each.group_id)) for each in request.groups)
        return response(throttle_time=self.throttle(), groups=groups)

    def _answer_leave_group(self, version: int, request: Any) -> Any:
        """Answer that each member is out, but for one whose id is unknown."""
        make = schema(13, version, "response", "MemberResponse")
        error_code = self.group_error(request.group_id)
        members = tuple(
            make(
                member_id=each.member_id,
                group_instance_id=None,
                error_code=ErrorCode.unknown_member_id if each.member_id == "unknown" else NONE,
            )
            for each in request.members
        )
        response = schema(13, version, "response", "LeaveGroupResponse")
        members = members if error_code == NONE else ()
        return response(throttle_time=self.throttle(), error_code=error_code, members=members)

    def _answer_describe_groups(self, version: int, request: Any) -> Any:
        make, make_member = (schema(15, version, "response", f"DescribedGroup{name}") for name in ("", "Member"))
        member = make_member(member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"")
        dead = ErrorCode.group_id_not_found if version >= 6 else NONE
        groups = tuple(
            make(
                error_code=self.group_error(group) if self.group_type(group) == "classic" else dead,
                group_id=group,
                group_state="Stable" if self.group_type(group) == "classic" else "Dead",
                protocol_type="consumer",
                protocol_data="range",
                members=(member,) if self.has_members else (),
            )
            for group in request.groups
        )
        return schema(15, version, "response", "DescribeGroupsResponse")(throttle_time=self.throttle(), groups=groups)

    def _answer_consumer_group_describe(self, version: int, request: Any) -> Any:
        return self._describe_typed(69, "consumer", version, request)

    def _answer_share_group_describe(self, version: int, request: Any) -> Any:
        return self._describe_typed(77, "share", version, request)

    def _describe_typed(self, api_key: int, group_type: str, version: int, request: Any) -> Any:
        """Answer that each group of this type has one member; the others do not exist."""
        make, make_member = (schema(api_key, version, "response", name) for name in ("DescribedGroup", "Member"))
        work = schema(api_key, version, "response", "Assignment")(topic_partitions=())
        target = {} if group_type == "share" else {"target_assignment": work}
        member = make_member(member_id="m", member_epoch=3, client_id="c", client_host="/h", assignment=work, **target)
        groups = tuple(
            make(
                error_code=self.group_error(group)
                if self.group_type(group) == group_type
                else ErrorCode.group_id_not_found,
                group_id=group,
                group_state="Stable",
                group_epoch=3,
                assignment_epoch=3,
                assignor_name="simple",
                members=(member,),
            )
            for group in request.group_ids
        )
        response = schema(api_key, version, "response", f"{API_NAMES[api_key]}Response")
        return response(throttle_time=self.throttle(), groups=groups)

    def _answer_delete_groups(self, version: int, request: Any) -> Any:
        make = schema(42, version, "response", "DeletableGroupResult")
        results = tuple(make(group_id=group, error_code=self.group_error(group)) for group in request.groups_names)
        return schema(42, version, "response", "DeleteGroupsResponse")(throttle_time=self.throttle(), results=results)

    def _answer_list_groups(self, version: int, request: Any) -> Any:
        """Answer with one group, of the name of the host, and with those that are to be listed as well."""
        make_group = schema(16, version, "response", "ListedGroup")
        state = {"group_state": self.listed_state} if version >= 4 else {}
        groups = tuple(
            make_group(
                group_id=group,
                protocol_type="consumer",
                **state,
                **({"group_type": group_type} if version >= 5 else {}),
            )
            for group, group_type in {self.host: "classic", **self.listed}.items()
        )
        make = schema(16, version, "response", "ListGroupsResponse")
        return make(throttle_time=self.throttle(), error_code=self.list_error, groups=groups)

    def _named(self, key_type: int, key: str) -> dict[str, Any]:
        host = self.coordinator(key_type, key)
        if isinstance(host, ErrorCode):
            return {"node_id": -1, "host": "", "port": -1, "error_code": host}
        return {"node_id": ord(host[0]), "host": host, "port": 9092, "error_code": NONE}


class Connection:
    """An open connection to one server."""

    def __init__(self, server: Server, versions: Mapping[int, tuple[int, int]]) -> None:
        self.versions = versions
        self.is_open = True
        self._server = server

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        server, cluster = self._server, self._server.cluster
        if server.is_gone:
            self.close()
        if not self.is_open:
            raise ConnectionFailed(f"{server.host} did not answer: it closed the connection")
        name = API_NAMES[api_key]
        request_class = schema(api_key, version, "request", f"{name}Request")
        assert request_class.__flexible__ == is_flexible
        request, size = entity_reader(request_class)(body, 0)
        assert size == len(body)
        cluster.asked.append(Asked(server.host, name, version, request))
        cluster.in_flight += 1
        cluster.in_flight_max = max(cluster.in_flight_max, cluster.in_flight)
        try:
            await asyncio.sleep(0)
            if server.is_silent:
                await asyncio.Event().wait()
            await cluster.gate.wait()
            if server.gate is not None:
                await server.gate.wait()
        finally:
            cluster.in_flight -= 1
        return to_bytes(server.answer(api_key, version, request))

    def close(self) -> None:
        self.is_open = False


class FakeCluster:
    """Servers by host, the connections to them, and all that was requested."""

    def __init__(self, hosts: str = "a", *, version: int = 6, says_versions: bool = True) -> None:
        served = {3: (0, 13), 9: (1, 8), 10: (0, version), 13: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 4), 42: (0, 2)}
        served |= {69: (0, 1), 77: (1, 1)}
        self.asked: list[Asked] = []
        self.in_flight = self.in_flight_max = 0
        #: Closed: all answers wait.
        self.gate = asyncio.Event()
        self.gate.set()
        #: Whom Metadata names.
        self.named_hosts = hosts
        self.servers = {host: Server(host, self, dict(served)) for host in hosts}
        self.opened: list[tuple[str, Connection]] = []
        self.says_versions = says_versions
        self.throttle_time_ms = Counter()

    async def open_one(self, address: Address) -> Connection:
        server = self.servers.get(address[0])
        if server is None or server.is_gone:
            raise ConnectionFailed(f"{address[0]} cannot be reached")
        connection = Connection(server, dict(server.versions) if self.says_versions else {})
        self.opened.append((address[0], connection))
        return connection

    def links(self, bootstrap: str = "a", limits: CallLimits | None = None) -> Links[Connection]:
        sender = Sender(limits, self.throttle_time_ms)
        return Links([(host, 9092) for host in bootstrap], self.open_one, sender)

    def coordinators(self, bootstrap: str = "a", other_server_after_ms: int = 60_000) -> Coordinators:
        return Coordinators(self.links(bootstrap), other_server_after_ms=other_server_after_ms)

    def requests(self, api: str = "FindCoordinator") -> list[Asked]:
        return [asked for asked in self.asked if asked.api == api]
