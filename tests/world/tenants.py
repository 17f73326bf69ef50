"""The tables of a node that is no gateway, and the parts of share state that the host is given, over a service of a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from holdfast.api.state_requests import Bounds
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import ADMIN_ARGUMENTS_BYTES_MAX, ApiHandler, HandlerBounds
from holdfast.daemon.server.cluster_view import ClusterView
from holdfast.daemon.server.find_coordinator import KeyType
from holdfast.daemon.server.topics_view import TopicsView
from holdfast.daemon.shards import Shard
from holdfast.daemon.tenant import Tables
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.runtime.state_machine import StateMachine
from holdfast.share.calls import KEY_TYPE, REQUEST_BOUNDS, ShareAnswers, ShareCalls, ShareKeys
from holdfast.share.decisions import ShareShard
from holdfast.share.tenant import CALLS
from holdfast.tenants import TABLES

_TABLES: Final = Tables(TABLES.shard_tenant)
APIS: Final = _TABLES.apis
NEEDS: Final = _TABLES.needs
QUERIES: Final = _TABLES.queries
PAGES: Final = _TABLES.pages


class Shards:
    """The view that the host has of shards of share state (`daemon.shards.Shards`)."""

    def shard_of(self, machine: StateMachine | None) -> Shard | None:
        return machine if isinstance(machine, ShareShard) else None

    def format_key(self, key: SharePartitionKey) -> str:
        return format_key(key)


SHARDS: Final = Shards()


def make_handler(
    service: ShareCalls,
    cluster: ClusterView,
    admin: Admin,
    authorizer: Authorizer,
    bounds: Bounds = REQUEST_BOUNDS,
    admin_arguments_bytes_max: int = ADMIN_ARGUMENTS_BYTES_MAX,
    *,
    key_types: Mapping[int, KeyType] = {},
    topics: TopicsView | None = None,
) -> ApiHandler:
    answers = ShareAnswers(service, authorizer, bounds)
    calls = dict.fromkeys(CALLS, answers.answer)
    key_types = {KEY_TYPE: ShareKeys(service), **key_types}
    return ApiHandler(
        calls,
        key_types,
        APIS,
        cluster,
        admin,
        authorizer,
        HandlerBounds(bounds.share_partitions, admin_arguments_bytes_max),
        topics,
    )


def share_keys(partition_for: Callable[[SharePartitionKey], int]) -> Mapping[int, KeyType]:
    """Return the key types of a node that serves share state, whose keys belong to the log partitions that are given."""
    return {KEY_TYPE: ShareKeys(cast("Any", SimpleNamespace(partition_for=partition_for)))}
