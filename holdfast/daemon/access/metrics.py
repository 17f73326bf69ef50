"""What is counted of access."""

from holdfast.daemon.settings.logging import AUDIT_UNWRITTEN
from holdfast.metrics.registry import Registry


class AccessMetrics:
    """The instruments of what is allowed and denied."""

    def __init__(self, registry: Registry) -> None:
        self.denials = registry.counter(
            "access_denials", "Requests that were denied since the start; of a look-up each key; 0 is healthy."
        )
        registry.counter(
            "audit_lines_unwritten",
            "Lines of the audit log that `audit_file` did not take since the start; 0 is healthy.",
            lambda: AUDIT_UNWRITTEN.value,
        )
