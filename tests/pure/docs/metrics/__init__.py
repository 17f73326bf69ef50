"""All that a node counts, for the pages that name it."""

from holdfast.compaction.progress import RunProgress
from holdfast.daemon.access.following import AccessMetrics
from holdfast.daemon.admin.host_metrics import WorkerMetrics
from holdfast.daemon.brokers.silence import watch_broker
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.log_metrics import LogMetrics
from holdfast.daemon.login.tls import show_certificate
from holdfast.daemon.membership.metrics import AssignmentMetrics
from holdfast.daemon.server.metrics import ServerMetrics
from holdfast.daemon.server.security import LoginMetrics
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.membership.metrics import MembershipMetrics
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.share.group_metrics.numbers import GroupNumbers, Pair
from holdfast.share.group_metrics.series import GroupSeries
from holdfast.share.metrics import ShareMetrics
from holdfast.share.snapshots.metrics import SnapshotMetrics
from tests.pure.compaction.reports import batch
from tests.pure.daemon.membership.world import Clock, Member
from tests.world.context import make_context


def full_registry() -> Registry:
    """Return a registry with all that a node counts."""
    registry = Registry()
    RuntimeMetrics(registry)
    AssignmentMetrics(registry, Member(1, Clock()).holdings)
    MembershipMetrics(registry)
    progress, report = RunProgress(), batch()
    progress.take(report)
    JobMetrics(registry).take(report, progress)
    ShareMetrics(registry).watch_partition("topic", 0, lambda: 0)
    LogMetrics(registry).watch_partition("topic", 0, lambda: 0, lambda: (0, 0))
    SnapshotMetrics(registry)
    WorkerMetrics(registry)
    AccessMetrics(registry)
    LoginMetrics(registry).show_waiting(lambda: 0)
    show_certificate(registry, "listener", lambda: 0.0)
    FileWatch(make_context(registry=registry)).follow("acls_file", lambda: [], lambda: True)
    list(GroupSeries(registry, lambda: 0).show({Pair("group", bytes(16)): GroupNumbers("topic")}))
    watch_broker(registry, 1, lambda: 0)
    GatewayMetrics(registry, LineLimiter()).watch(lambda: 0, lambda: 0, lambda: 0, lambda: 0)
    AccessMetrics(registry)
    ServerMetrics(
        registry,
        Connections(lambda request, respond: None, {}, LimitSettings(), lambda *_: None, InternalErrors(Counter())),
    )
    return registry
