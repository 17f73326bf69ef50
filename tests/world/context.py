"""The context of a node, for the parts of one that stand alone in a test."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import now_ms as real_now_ms
from holdfast.daemon.context import NodeContext
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry


def make_context(
    *,
    now_ms: Callable[[], int] = real_now_ms,
    registry: Registry | None = None,
    bugs: Counter | None = None,
    limiter: LineLimiter | None = None,
) -> NodeContext:
    """Return a context; each part that is not given is new."""
    errors = InternalErrors(bugs or Counter())
    return NodeContext(now_ms, registry or Registry(), errors, limiter or LineLimiter(now_ms))
