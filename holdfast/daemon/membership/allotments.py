"""Which allotment a node has, by its setting `membership`."""

from random import Random

from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.context import NodeContext
from holdfast.daemon.membership.allotment import Allotment
from holdfast.daemon.membership.duties import Duties, Duty
from holdfast.daemon.membership.group_member import GroupMember
from holdfast.daemon.membership.known_members import KnownMembers
from holdfast.daemon.membership.lone_node import LoneNode
from holdfast.daemon.node_exit import Refused
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.partitions import LogPlace, Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.daemon.snapshots.job_supervisor import Supervisor


def make_allotment(
    settings: Settings,
    this_node: Node,
    log: LogPlace,
    partitions: Partitions,
    known_members: KnownMembers,
    config: NodeSettings,
    context: NodeContext,
    run_id: str,
    *,
    refused: Refused,
) -> Allotment:
    """Return what gives a node its work; see `GroupMember` for what it is given."""
    # One node runs the job. A node that stops because another took over ends its own.
    jobs: dict[str, Duty] = {}
    if settings.compaction.run:
        jobs["compaction"] = Supervisor(
            settings,
            lambda: config.current.kafka,
            JobMetrics(context.registry),
            context.internal_errors,
            Random().random,
        )
    duties = Duties(jobs, context.internal_errors)
    group = settings.members.group_of(settings.log.state_topic)
    if group is None:
        return LoneNode(this_node, OwnView(this_node, log.cluster_id, log.topic, partitions.find), partitions, duties)
    return GroupMember(
        settings,
        group,
        this_node,
        log,
        partitions,
        duties,
        known_members,
        config,
        context,
        run_id,
        refused=refused,
    )
