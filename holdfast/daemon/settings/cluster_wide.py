"""Which settings can be the same for all nodes, and which a running node takes over.

Those of the host that cannot are here. A tenant says it where it declares a setting (`why_node_only`).
"""

from collections.abc import Mapping
from typing import Final

from holdfast.daemon.settings.catalogue import Known
from holdfast.daemon.settings.declarations import is_secret

#: What a node takes over while it runs, beside how it logs in to Kafka; the others hold from its next start on.
TAKEN_OVER_WHILE_RUNNING: Final = frozenset({"log_level"})

_LISTENS_FIRST: Final = "a node listens before it reads the config topic"
_FINDS_TOPIC: Final = "a node finds the config topic by it"
_WHERE_JOB_RUNS: Final = "it is where the job takes the log, and how it logs in to Kafka"
_NODE_ONLY: Final = {
    "node_id": "each node has one of its own",
    "listen": "each node has an address of its own",
    "advertised_listener": "each node has an address of its own",
    "group.instance.id": "each node has one of its own",
    "super.users": "anyone who may write the config topic could become one",
    "acls_file": "anyone who may write the config topic could open all nodes",
    "audit_file": "each host has files of its own",
    "connections.max.reauth.ms": _LISTENS_FIRST,
    "connection.failed.authentication.delay.ms": _LISTENS_FIRST,
    "workers": "each host has a number of its own",
    "log_format": "the lines of each node go to the program that runs it",
    "take_over": "it would have all nodes replace each other",
    "new_state_topic": "it would have all nodes begin with an empty log whenever the topic is missing",
    "compaction.run": "one node alone runs the job",
    "compaction.master": _WHERE_JOB_RUNS,
    "compaction.checkpoint.dir": _WHERE_JOB_RUNS,
    "compaction.history.dir": _WHERE_JOB_RUNS,
    "state_topic": _FINDS_TOPIC,
}
_NODE_ONLY_BEGINNINGS: Final = {
    "kafka.": _FINDS_TOPIC,
    "config.": _FINDS_TOPIC,
    "spark.": "anyone who may write the config topic could make Spark run any program",
    "http.": "each node has a port and files of its own",
    "listener.": _LISTENS_FIRST,
    "ssl.": _LISTENS_FIRST,
    "sasl.": _LISTENS_FIRST,
    "worker_": "what looks after the workers of a host reads no config topic",
}


def why_not_cluster_wide(name: str, known: Mapping[str, Known]) -> str:
    """Return why the setting of this name is each node's own; empty where it may hold for all nodes.

    Args:
        name: of a setting, or of a property of a library.
        known: all settings that there are, by name.
    """
    if is_secret(name):
        return "it is a secret, and anyone who may read the config topic would see it"
    if name in known and (why := known[name].why_node_only):
        return why
    by_beginning = [why for beginning, why in _NODE_ONLY_BEGINNINGS.items() if name.startswith(beginning)]
    return _NODE_ONLY.get(name) or "".join(by_beginning)
