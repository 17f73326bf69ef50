"""The four parts of a node that nearly every other part uses, as one value."""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry


class NodeContext(NamedTuple):
    """The clock, metrics, bugs and log lines of one node: made once, and handed down whole."""

    #: Milliseconds since some moment; it never goes back.
    now_ms: Callable[[], int]
    #: Holds all metrics.
    registry: Registry
    #: Takes the bugs that a part survives.
    internal_errors: InternalErrors
    #: Bounds the log lines.
    limiter: LineLimiter
