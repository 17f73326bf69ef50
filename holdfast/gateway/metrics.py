"""The metrics of the gateway, and its lines about share partitions that cannot be served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.share.keys import SharePartitionKey, format_key

_log = structlog.get_logger(__name__)

#: A hand-over passes in seconds.
_FENCED_NEXT_STEP: Final = (
    "if this line comes again after a minute, no node has that epoch: `holdfast state summary` shows where the group is, "
    "`holdfast state delete` and then `holdfast state init` have it go on there (docs/alarms.md)"
)
#: Lines of one share partition.
_LINES_PER_MINUTE_MAX: Final = 1


class GatewayMetrics:
    """The instruments of the gateway."""

    def __init__(self, registry: Registry, limiter: LineLimiter) -> None:
        self._registry = registry
        self._limiter = limiter
        self.records_given: Final = registry.counter(
            "gateway_records_given", "Offsets that were acquired for members, each as often as it was acquired."
        )
        self.bytes_given: Final = registry.counter(
            "gateway_bytes_given", "Bytes of record batches in answers to ShareFetch."
        )
        self.acknowledgements: Final = registry.counter(
            "gateway_acknowledgements", "Acknowledgements of a request and share partition that are in the log."
        )
        self.acknowledgements_failed: Final = registry.counter(
            "gateway_acknowledgements_failed",
            "Acknowledgements of a request and share partition that were refused or not written.",
        )
        self.locks_ended: Final = registry.counter(
            "gateway_locks_ended", "Times that locks of a share partition ended before an acknowledgement came."
        )
        self.throttle_time_ms: Final = registry.counter(
            "gateway_read_throttle_time_ms",
            "Time for which brokers requested to be sent no more reads of records, because of a quota.",
        )
        self.held: Final = registry.gauge(
            "gateway_share_partitions_held",
            "Share partitions that give no records, because the log ends below records that were acquired; an alarm.",
        )

    def watch(
        self,
        share_partitions: Callable[[], int],
        sessions: Callable[[], int],
        waiting: Callable[[], int],
        groups: Callable[[], int],
    ) -> None:
        """Show the sizes of the gateway's tables."""
        gauge = self._registry.gauge
        gauge("gateway_share_partitions", "Share partitions that members fetch from this node.", share_partitions)
        gauge("gateway_share_sessions", "Members that fetch from this node.", sessions)
        gauge("gateway_fetches_waiting", "ShareFetch requests that wait for records.", waiting)
        gauge("gateway_groups", "Share groups with members that this node coordinates.", groups)

    def note_unserved(self, key: SharePartitionKey, why: str, *, is_fenced: bool) -> None:
        """Log why a share partition serves no more, for something else than another leader.

        Args:
            key: its name.
            why: see there.
            is_fenced: its state knows a higher leader epoch, maybe one that no node of this group ever has.
        """
        name = _name(key)
        left_out = self._limiter.admit("share_partition_not_served", _LINES_PER_MINUTE_MAX, name)
        if left_out is not None:
            next_step = {"next_step": _FENCED_NEXT_STEP} if is_fenced else {}
            _log.warning("share_partition_not_served", share_partition=name, why=why, **next_step, **left_out)

    def note_unread(self, key: SharePartitionKey, why: str) -> None:
        """Log why no records come of a topic partition now: once for all that wait for the same reason."""
        if self._limiter.leave_out():
            return
        left_out = self._limiter.admit("records_not_read", _LINES_PER_MINUTE_MAX, why)
        if left_out is not None:
            _log.warning("records_not_read", share_partition=_name(key), why=why, **left_out)

    def note_held(self, key: SharePartitionKey, offset: int, end_offset: int) -> None:
        """Raise the alarm that the log of a share partition ends, or ended, below what was acquired."""
        name = _name(key)
        left_out = self._limiter.admit("share_partition_held", _LINES_PER_MINUTE_MAX, name)
        if left_out is not None:
            _log.error("share_partition_held", share_partition=name, offset=offset, end_offset=end_offset, **left_out)


def _name(key: SharePartitionKey) -> str:
    """Return a share partition for people; clients choose how long the name of a group is."""
    return format_key(key._replace(group_id=key.group_id[:100]))
