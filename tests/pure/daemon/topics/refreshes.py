"""Refreshes of the metadata, as a cluster answers them."""

from collections.abc import Iterable

from holdfast.daemon.topics.metadata_cache import Refresh

OURS, OTHER = "cluster-a", "cluster-b"


def refresh(
    at_ms: int,
    existing: Iterable[bytes] = (),
    unknown: Iterable[bytes] = (),
    unclear: Iterable[bytes] = (),
    *,
    cluster_id: str = OURS,
    is_full: bool = True,
) -> Refresh:
    """Return a refresh of our cluster that says so of these topic ids."""
    return Refresh(at_ms, cluster_id, frozenset(existing), frozenset(unknown), frozenset(unclear), is_full)
