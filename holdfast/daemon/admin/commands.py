"""The commands of an admin: what a node shows and does; the command line tool calls them by name."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn, Protocol

import structlog

from holdfast.daemon.admin.host_metrics import HostMetrics
from holdfast.daemon.admin.plans import Arguments, Decide, Facts, Plan, reason_of
from holdfast.daemon.admin.stacks import describe_process
from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.maintenance.maintenance import Maintenance
from holdfast.daemon.membership.allotment import Allotment
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.admin import AdminCommand, AdminError, NodeStarting, topic_id_of
from holdfast.daemon.settings.file_env_flags import describe
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.name_look_ups import NotATopicName, TooManyNames, TopicNames
from holdfast.distribution import VERSION
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import PARTITIONS_PER_QUERY_MAX, TooManyQueries, TopicEndSource
from holdfast.runtime.build import BUILD
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State

_log = structlog.get_logger(__name__)


class NodeView(Protocol):
    """What the commands need of the node."""

    host_metrics: HostMetrics
    node_settings: NodeSettings
    run_id: str

    @property
    def settings(self) -> Settings:
        """The settings that hold now."""

    def status(self) -> dict[str, Any]:
        """Return whether it is ready, and what it serves."""


class ReachedBrokers(Protocol):
    """The brokers at the addresses of the settings; `brokers.watch.BrokerWatch`."""

    @property
    def another_cluster(self) -> str:
        """See `BrokerWatch.another_cluster`."""


class NodeCommands:
    """The commands of a node that need no log partition, from its first moment on."""

    def __init__(self, node: NodeView, topic_names: TopicNames, topic_ends: TopicEndSource) -> None:
        self._node = node
        self._topic_names = topic_names
        self._topic_ends_source = topic_ends

    def table(self) -> Mapping[str, AdminCommand]:
        """Return the commands by name."""
        return {
            "status": lambda _: {"version": VERSION, "build": BUILD} | self._node.status(),
            "settings": lambda _: describe(self._node.settings),
            "config": lambda _: self._node.node_settings.describe(),
            "metrics": lambda arguments: self._node.host_metrics.read(arguments),
            "resolve-topic": self._resolve_topic,
            "topic-ends": self._topic_ends,
            "debug": lambda _: describe_process(),
        }

    async def _resolve_topic(self, arguments: Arguments) -> dict[str, Any]:
        name = arguments.get("name")
        if not isinstance(name, str):
            raise AdminError("resolve-topic needs a `name`.")
        try:
            topic, age_ms, problem = await self._topic_names.resolve(name)
        except NotATopicName:
            raise AdminError(
                "That is no topic's name: Kafka takes 1 to 249 letters, digits, dots, underscores and hyphens."
            ) from None
        except TooManyNames:
            raise AdminError(
                "Too many other names are being looked up; try again.",
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ) from None
        except ConnectionFailed as failure:
            raise AdminError(
                f"Kafka cannot be reached ({failure}), and this node has not seen the topic {name!r} before; "
                "try again when it is back, or give the topic's id.",
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ) from None
        if topic is None:
            raise AdminError(f"The cluster knows no topic {name!r}; give a name it knows, or the topic's id.")
        found = {"name": name, "topic_id": format_topic_id(topic.topic_id), "partitions": topic.partition_count}
        if not problem:
            return found
        warning = f"Kafka cannot be reached ({problem}); it resolved {name} {age_ms / 1_000:.0f} s ago to {found['topic_id']}."
        return found | {"warning": warning}

    async def _topic_ends(self, arguments: Arguments) -> dict[str, Any]:
        wanted = _wanted_partitions(arguments.get("topics"))
        try:
            found = await self._topic_ends_source.look_up(wanted)
        except TooManyQueries:
            raise AdminError(
                "Too many others wait for the ends of topics; try again.",
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ) from None
        return {
            format_topic_id(topic_id): {
                "name": ends.name,
                "partitions": {
                    str(partition): {"first_offset": first, "end_offset": end, "problem": problem or None}
                    for partition, (first, end, problem) in ends.partitions.items()
                },
            }
            for topic_id, ends in found.items()
        }


class LogCommands:
    """The commands about the log partitions of a node."""

    def __init__(
        self,
        node: NodeView,
        partitions: Partitions,
        maintenance: Maintenance,
        allotment: Allotment,
        brokers: ReachedBrokers,
        decisions: Mapping[str, Decide] = {},
    ) -> None:
        """Offer the commands; `decisions` are those of tenants, by the name of their command."""
        self._brokers = brokers
        self._node = node
        self._partitions = partitions
        self._allotment = allotment
        self._maintenance = maintenance
        self._decisions: dict[str, Decide] = {
            "partitions-take": self._take,
            "partitions-accept": self._accept,
            "readers-drop": self._drop_reader,
            **decisions,
        }

    def table(self) -> Mapping[str, AdminCommand]:
        """Return the commands by name."""
        return {
            "members": lambda _: self._allotment.describe_members(),
            "partitions": lambda _: self._describe_partitions(),
            "hand-overs": lambda _: self._partitions.hand_overs.describe(),
            "readers": lambda _: self._maintenance.readers.describe(),
            **{name: partial(self._carry_out, decide) for name, decide in self._decisions.items()},
            "decision-preview": self._preview_decision,
        }

    def _describe_partitions(self) -> list[Facts]:
        """Return every log partition in numeric order; those of other members as far as the map of the group has them."""
        rows = {row["partition"]: row for row in self._partitions.describe()}
        rows |= {row["partition"]: row for row in self._allotment.describe_elsewhere()}
        return [row for _, row in sorted(rows.items())]

    def _take(self, arguments: Arguments) -> Plan:
        partition = self._partition(arguments)
        self._refuse_another_cluster()
        refusal = self._allotment.refuse_take()
        if refusal:
            raise AdminError(refusal)
        if partition.state in (State.LOADING, State.ACTIVE):
            raise AdminError(f"This node has log partition {partition.index} already: it is {partition.state.value}.")

        def carry_out() -> str:
            self._partitions.hand_overs.asked(partition.index)
            self._partitions.runtime.take(partition.index)
            return f"log partition {partition.index} is being taken"

        return Plan(carry_out, *self._taking(partition))

    def _accept(self, arguments: Arguments) -> Plan:
        reason, partition = reason_of(arguments), self._partition(arguments)
        self._refuse_another_cluster()
        if partition.index not in self._partitions.wanted:
            whose = self._whose(partition.index) or "`holdfast members` shows whose it is"
            raise AdminError(f"Log partition {partition.index} is not this node's to serve: {whose}.")
        if partition.state is State.ACTIVE or not (partition.is_alarmed or partition.state is State.FAILED):
            why = f" ({partition.failure})" if partition.failure else ""
            raise AdminError(
                f"Log partition {partition.index} is {partition.state.value}{why} and raised no alarm; there is nothing to accept."
            )
        problem = self._maintenance.log_checks.problem
        if problem is not None and not problem.is_acceptable:
            raise AdminError(f"This cannot be accepted: {problem.text}.")

        def carry_out() -> str:
            self._partitions.runtime.accept(partition.index, reason)
            return f"log partition {partition.index} goes on with the log as it is"

        loss = f"what the log of partition {partition.index} has lost stays lost"
        return Plan(carry_out, *self._taking(partition), (loss,) if partition.is_alarmed else ())

    def _refuse_another_cluster(self) -> None:
        """Refuse what writes a claim while the log is not at the brokers that would get it."""
        if problem := self._brokers.another_cluster:
            raise AdminError(
                f"Nothing is taken or accepted, because {problem}. Bring back the brokers that have the log; "
                "if it was restored at these, start the node again, and accept it then."
            )

    def _whose(self, index: object) -> str:
        """Return which member has a log partition, as a clause; empty where none of the others does."""
        rows = self._allotment.describe_elsewhere()
        row = next((row for row in rows if row["partition"] == index and row["state"] == "elsewhere"), None)
        return "" if row is None else f"node {row['owner']} has it; repeat this with --address {row['owner_address']}"

    def _taking(self, partition: Partition) -> tuple[Facts, Facts]:
        winner = partition.ownership.winner
        before = {
            "state": partition.state.value,
            "owner": None if winner is None else winner.node_id,
            "owner_epoch": None if winner is None else winner.owner_epoch,
            "failure": partition.failure,
        }
        # Another node may have taken it since, and then the epoch is higher.
        owner_epoch = None if winner is None else winner.owner_epoch + 1
        owner = str(self._node.settings.node_id)
        return before, {"state": State.ACTIVE.value, "owner": owner, "owner_epoch": owner_epoch, "failure": None}

    def _drop_reader(self, arguments: Arguments) -> Plan:
        reason, group, readers = reason_of(arguments), arguments.get("group"), self._maintenance.readers
        reader = next((row for row in readers.describe() if row["group"] == group), None)
        if reader is None:
            registered = ", ".join(readers.groups) or "none"
            raise AdminError(
                f"No group {group!r} is registered; registered are {registered}.", ErrorCode.GROUP_ID_NOT_FOUND
            )

        def carry_out() -> str:
            self._maintenance.reader_offsets.drop(str(group), reason)
            return f"the log is pruned past {group} until it commits again"

        behind = reader["behind"]
        loss = f"{'what' if behind is None else f'{behind} offsets that'} {group} has not read yet may be pruned"
        is_loss = reader["state"] not in ("dropped", "not started") and behind != 0
        return Plan(carry_out, {"state": reader["state"]}, {"state": "dropped"}, (loss,) if is_loss else ())

    def _preview_decision(self, arguments: Arguments) -> dict[str, Any]:
        """Return what a decision would change, from the code that would carry it out."""
        decide = self._decisions.get(str(arguments.get("decision")))
        if decide is None:
            raise AdminError(f"decision-preview needs a `decision`, one of {', '.join(self._decisions)}.")
        plan = decide(arguments)
        run_id = self._node.run_id
        return {"before": plan.before, "after": plan.after, "data_lost": list(plan.data_lost), "run_id": run_id}

    def _carry_out(self, decide: Decide, arguments: Arguments) -> str:
        if "run_id" in arguments and arguments["run_id"] != self._node.run_id:
            raise AdminError(
                "Another node showed what this would do, or this one before a restart; repeat the command."
            )
        return decide(arguments).carry_out()

    def _partition(self, arguments: Arguments) -> Partition:
        index = arguments.get("partition")
        known = {partition.index: partition for partition in self._partitions}
        if not known:
            raise NodeStarting
        if type(index) is int and index not in known and (whose := self._whose(index)):
            raise AdminError(f"This node has no log partition {index}: {whose}.")
        if type(index) is not int or index not in known:
            raise AdminError(
                f"This node has no log partition {index!r}; it has {min(known)} to {max(known)}.",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return known[index]


class StartingCommands:
    """The commands about log partitions while the node starts: it lists none, and refuses what needs one."""

    def table(self) -> Mapping[str, AdminCommand]:
        """Return the commands by name."""
        return {
            "members": lambda _: [],
            "hand-overs": lambda _: [],
            "partitions": lambda _: [],
            "readers": lambda _: [],
            "partitions-take": self._refuse,
            "partitions-accept": self._refuse,
            "readers-drop": self._refuse,
            "decision-preview": self._refuse,
        }

    def _refuse(self, arguments: Arguments) -> NoReturn:
        raise NodeStarting


def _wanted_partitions(topics: object) -> dict[bytes, list[int]]:
    if not isinstance(topics, dict) or not topics:
        raise AdminError("topic-ends needs `topics`: an object of topic ids, each with a list of partitions.")
    wanted: dict[bytes, list[int]] = {}
    for text, partitions in topics.items():
        topic_id = topic_id_of(text)
        if not isinstance(partitions, list) or not all(
            type(each) is int and 0 <= each < 1 << 31 for each in partitions
        ):
            raise AdminError(f"The partitions of topic {text} are not a list of whole numbers from 0 on.")
        wanted[topic_id] = partitions
    count = sum(map(len, wanted.values()))
    if count > PARTITIONS_PER_QUERY_MAX:
        raise AdminError(f"{count} partitions are named, and one command takes {PARTITIONS_PER_QUERY_MAX}; name fewer.")
    return wanted
