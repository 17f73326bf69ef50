"""Which allotment a node has, by its setting `membership`."""

from random import Random

from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.context import NodeContext
from holdfast.daemon.membership.allotment import Allotment
from holdfast.daemon.membership.duties import Duties, Duty
from holdfast.daemon.membership.group_member import GroupMember
from holdfast.daemon.membership.lone_node import LoneNode
from holdfast.daemon.partitions.identity import NodeIdentity
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.daemon.snapshots.job_supervisor import Supervisor


def make_allotment(
    partitions: Partitions, config: NodeSettings, identity: NodeIdentity, context: NodeContext
) -> Allotment:
    """Return what gives a node its work; see `GroupMember` for what it is given."""
    settings, place = config.current, partitions.place
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
    if identity.group is None:
        view = OwnView(place.node, place.cluster_id, place.topic, partitions.find)
        return LoneNode(place.node, view, partitions, duties)
    return GroupMember(settings, identity.group, partitions, duties, identity, config, context)
