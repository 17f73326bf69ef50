"""A tenant: an application that keeps its state in the log of a node, as one value that the entry point hands to the node.

`holdfast/tenants.py` names all tenants.
The node is the host: it listens, logs clients in, finds brokers, divides the log, loads, prunes, and stops. It knows no tenant.
The tables of calls, commands and HTTP paths are built once, from the rows of the host and of its tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.daemon.access.acl import Operation
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import COMMANDS, Command, GroupCall, Needs
from holdfast.daemon.admin.plans import Decide
from holdfast.daemon.context import NodeContext
from holdfast.daemon.http.queries import QUERIES, MakeSite, Page, Query
from holdfast.daemon.maintenance.schedule import Duty
from holdfast.daemon.partitions.leadership import Leader
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.admin import AdminCommand
from holdfast.daemon.server.api_table import APIS, Answer
from holdfast.daemon.server.find_coordinator import KeyType
from holdfast.daemon.server.topics_view import TopicsView
from holdfast.daemon.server.wire.requests import Api
from holdfast.daemon.settings.catalogue import settings_with
from holdfast.daemon.settings.declarations import Component
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.shards import ShardKind, Snapshots
from holdfast.daemon.topics.cluster_queries import ClusterQueries
from holdfast.daemon.topics.metadata_cache import ClusterMetadata
from holdfast.kafka.connection_options import LiveProperties
from holdfast.runtime.settings import LogIdentity


class Call(NamedTuple):
    """A call of the protocol that a tenant serves."""

    api: Api
    #: Operation that a client needs on each group that it names, for `Authorizer.may_call`; what it needs of other things, the tenant
    #: asks `Authorizer.may`.
    operation: Operation


class Answers(NamedTuple):
    """The parts of a tenant that clients reach."""

    #: By API key.
    calls: Mapping[int, Answer]
    #: Keys of FindCoordinator, by the number of their type.
    key_types: Mapping[int, KeyType]
    #: Admin commands, by name.
    commands: Mapping[str, AdminCommand]
    #: Topics that Metadata shows beside the state topic; of one tenant at most.
    topics: TopicsView | None = None
    #: What the HTTP port shows beside the paths of queries; of one tenant at most.
    make_site: MakeSite | None = None


class Host(Protocol):
    """The parts of a node that a tenant uses from the start."""

    context: NodeContext

    @property
    def settings(self) -> Settings:
        """The settings that hold now; those of all nodes come after the first calls."""


class Batch(Protocol):
    """The requests that came in one turn of the loop, and take each part of their way together."""

    def begin_with(self, call: Callable[[], None]) -> None:
        """Run a call of this process with those that come in this turn of the loop; at once where they are being begun."""

    def end_with(self, task: Callable[[], None]) -> None:
        """Run a task when those that are being begun are all begun; at once where none is."""


class Leadership(Protocol):
    """The owners of the log partitions: who leads what lies in them, under which epoch."""

    def leader(self, log_partition: int) -> Leader:
        """Return the owner of a log partition."""

    def watch(self, changed: Callable[[int], None]) -> None:
        """Call `changed` with a log partition that this node has begun to load, serves from now on, or serves no more.

        It is called in the turn of the loop in which that is known.
        """


class LogParts(NamedTuple):
    """The parts of a node that are there once it has found its log."""

    place: LogPlace
    partitions: Partitions
    metadata: ClusterMetadata
    cluster: ClusterQueries
    #: The requests that came in one turn of the loop.
    batch: Batch
    #: Return the log partitions that other members have, as `partitions.description` describes them.
    describe_elsewhere: Callable[[], Sequence[Mapping[str, Any]]]
    leadership: Leadership
    #: Returns since when, by the time of day in seconds, no broker that leads a log partition has answered; None: one answers.
    leader_unheard_since_s: Callable[[int], float | None]


class ServingTenant(Protocol):
    """A tenant on a node that has found its log."""

    @property
    def answers(self) -> Answers:
        """The answers of a node that serves."""

    @property
    def decisions(self) -> Mapping[str, Decide]:
        """Decisions of an admin, by the name of their command."""

    @property
    def duties(self) -> Sequence[Duty]:
        """Work that repeats while the node serves."""

    def start_up(self, log: LogIdentity) -> None:
        """Begin to take calls, for a log with this number of partitions and this placement."""

    def shut_down(self) -> None:
        """Refuse all further calls, and answer those that wait for something else than the log."""

    async def close(self) -> None:
        """End what the tenant has of its own, such as connections, in bounded time; after `shut_down`."""


_Access_co = TypeVar("_Access_co", covariant=True)
_Access_contra = TypeVar("_Access_contra", contravariant=True)


class ServingShardTenant(ServingTenant, Protocol[_Access_co]):
    """The tenant whose shards the log holds, on a node that has found its log."""

    @property
    def access(self) -> _Access_co:
        """The way to its state for the other tenants of the node, of which the host knows nothing."""


class NodeTenant(Protocol[_Access_contra]):
    """A tenant without shards on one node, from the start of that to its end."""

    def starting(self, authorizer: Authorizer) -> Answers:
        """Return the answers of a node that starts: each call is refused so that its client tries again."""

    def serve(self, log: LogParts, authorizer: Authorizer, access: _Access_contra) -> ServingTenant:
        """Return the tenant at work, which may use the state of the shards by their tenant's `access`."""


class NodeShardTenant(Protocol[_Access_co]):
    """The tenant whose shards the log holds, on one node."""

    def starting(self, authorizer: Authorizer) -> Answers:
        """See `NodeTenant.starting`."""

    def serve(self, log: LogParts, authorizer: Authorizer) -> ServingShardTenant[_Access_co]:
        """Return the tenant at work."""

    def shard_kind(self, place: LogPlace) -> ShardKind:
        """Return the kind of its shards."""

    def make_snapshots(
        self, place: LogPlace, kafka: LiveProperties, partitions: Partitions, metadata: ClusterMetadata
    ) -> Snapshots:
        """Return the snapshots from which its shards are restored."""


class _OnNode(Protocol):
    def starting(self, authorizer: Authorizer) -> Answers: ...


_OnNode_co = TypeVar("_OnNode_co", bound=_OnNode, covariant=True)
_Access = TypeVar("_Access")


def _is_always_on(settings: Settings) -> bool:
    return True


@dataclass(frozen=True)
class Tenant(Generic[_OnNode_co]):
    """An application on the host."""

    name: str
    calls: Mapping[int, Call]
    commands: Mapping[str, Command]
    #: HTTP paths that show the answer of one command.
    queries: Sequence[Query]
    #: HTTP paths that are made of the answers of several commands.
    pages: Sequence[Page]
    #: Returns the tenant on a node that starts.
    make: Callable[[Host], _OnNode_co]
    #: Tells by the settings of a node whether it is there.
    is_on: Callable[[Settings], bool] = _is_always_on
    #: Components of settings, by the name of their table in the TOML file; on a node: `host.settings.of(MODEL)`.
    settings: Mapping[str, type[Component]] = field(default_factory=dict)


class Tables:
    """The tables of a node: built once, from the rows of the host and of its tenants.

    Args:
        shard_tenant: the tenant whose shards the log holds; there is one kind of shard in a log.
        others: tenants that have no shards, which reach those of the first by its `access`.

    Raises:
        ValueError: two rows have the same API key, command, path, settings component or setting.
    """

    def __init__(
        self, shard_tenant: Tenant[NodeShardTenant[_Access]], others: Sequence[Tenant[NodeTenant[_Access]]] = ()
    ) -> None:
        tenants: tuple[Tenant[_OnNode], ...] = (shard_tenant, *others)
        calls = merge_rows("API key", *(tenant.calls for tenant in tenants))
        commands = merge_rows("command", *(tenant.commands for tenant in tenants))
        # Of which type the access is, the tenants alone know.
        self.shard_tenant: Final[Tenant[NodeShardTenant[Any]]] = shard_tenant
        self.others: Final[tuple[Tenant[NodeTenant[Any]], ...]] = tuple(others)
        self.apis: Final[Mapping[int, Api]] = merge_rows(
            "API key", APIS, {key: call.api for key, call in calls.items()}
        )
        merge_rows("command", COMMANDS, commands)
        self.needs: Final = Needs(
            {key: GroupCall(call.api.name, call.operation) for key, call in calls.items()}, commands
        )
        of_tenants = ({query.command: query for query in tenant.queries} for tenant in tenants)
        self.queries: Final[Mapping[str, Query]] = merge_rows("path", QUERIES, *of_tenants)
        pages = merge_rows("path", *({page.query.command: page for page in tenant.pages} for tenant in tenants))
        merge_rows("path", self.queries, {path: page.query for path, page in pages.items()})
        self.pages: Final[tuple[Page, ...]] = tuple(pages.values())
        #: The model of all settings of the node.
        self.settings: Final = settings_with(merge_rows("settings component", *(tenant.settings for tenant in tenants)))

    def on(self, settings: Settings) -> Tables:
        """Return the tables of a node with these settings: without the tenants that are off on it."""
        others = [tenant for tenant in self.others if tenant.is_on(settings)]
        return self if len(others) == len(self.others) else Tables(self.shard_tenant, others)


_Key = TypeVar("_Key", int, str)
_Row = TypeVar("_Row")


def merge_rows(kind: str, *tables: Mapping[_Key, _Row]) -> dict[_Key, _Row]:
    """Return the rows of all tables.

    Raises:
        ValueError: two tables have a row of one key.
    """
    merged: dict[_Key, _Row] = {}
    for table in tables:
        if repeated := sorted(merged.keys() & table.keys()):
            raise ValueError(f"{kind} {repeated[0]} has two rows")
        merged.update(table)
    return merged


def find_topics(tenants: Iterable[Answers]) -> TopicsView | None:
    """Return the topics of the one tenant that has any; None: no tenant has.

    Raises:
        ValueError: two tenants have topics.
    """
    return _only("show topics", [each.topics for each in tenants])


def find_site(tenants: Iterable[Answers]) -> MakeSite | None:
    """Return what makes the site of the one tenant that has any; None: no tenant has.

    Raises:
        ValueError: two tenants have a site.
    """
    return _only("have a site", [each.make_site for each in tenants])


_Part = TypeVar("_Part")


def _only(do_something: str, parts: Sequence[_Part | None]) -> _Part | None:
    found = [each for each in parts if each is not None]
    if len(found) > 1:
        raise ValueError(f"two tenants {do_something}")
    return found[0] if found else None
