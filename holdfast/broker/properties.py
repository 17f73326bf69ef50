"""The settings of an embedded broker, and the ports on which it listens."""

import random
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.broker.errors import BrokerError
from holdfast.kafka.addresses import format_address

HOST = "127.0.0.1"
#: First and last port to choose from; both lie below the range from which systems give ports to outgoing
#: connections (32768 on Linux), so that no client can take a port between choosing it and listening on it.
PORT_FIRST, PORT_LAST = 20_000, 32_000
_PORT_TRIES = 1_000
_ASCII_END = 128

#: Set by the embedding itself, for each node its own.
_OURS = frozenset({"process.roles", "node.id", "controller.quorum.voters", "listeners", "log.dirs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """The two ports of one node."""

    broker: int
    controller: int


def choose_ports(nodes: int) -> list[NodePorts]:
    """Choose free loopback ports for so many nodes, no port twice.

    Another process may still listen on one of them first; then the broker does not start and its starter chooses again.

    Raises:
        BrokerError: no free ports were found.
    """
    free: list[int] = []
    for port in random.sample(range(PORT_FIRST, PORT_LAST), _PORT_TRIES):
        if is_free(port):
            free.append(port)
        if len(free) == 2 * nodes:
            return [NodePorts(broker=free[2 * i], controller=free[2 * i + 1]) for i in range(nodes)]
    raise BrokerError(
        f"No {2 * nodes} free ports between {PORT_FIRST} and {PORT_LAST} were found; end what listens there."
    )


def is_free(port: int) -> bool:
    """Tell whether nothing listens on this loopback port now."""
    with socket.socket() as probe:
        # As the JVM does: connections of an earlier broker that are still closing do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def new_kafka_uuid() -> str:
    """Make a random id in Kafka's text form: 22 characters of URL-safe base64, never with a leading dash."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def node_properties(
    node_id: int, ports: Sequence[NodePorts], log_dir: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of one node of a cluster, by Kafka's names; `extra` wins over our defaults.

    Args:
        node_id: counts from 1.
        ports: those of all nodes, in order of their ids.
        log_dir: where this node keeps its data.
        extra: further broker settings, the same for all nodes.

    Raises:
        BrokerError: `extra` holds a setting that the embedding must choose, or a value of more than one line.
    """
    if taken := sorted(_OURS & extra.keys()):
        raise BrokerError(f"The embedded Kafka chooses {', '.join(taken)} itself; leave it out of the properties.")
    for name, value in extra.items():
        if "\n" in name + value:
            raise BrokerError(f"The broker property {name!r} has more than one line; write it in one.")
    own = ports[node_id - 1]
    copies = str(min(3, len(ports)))
    in_sync = str(min(2, len(ports)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{other_id}@{format_address(HOST, other.controller)}" for other_id, other in enumerate(ports, start=1)
        ),
        "listeners": f"PLAINTEXT://{format_address(HOST, own.broker)},CONTROLLER://{format_address(HOST, own.controller)}",
        "log.dirs": str(log_dir),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        # A broker that was killed may register again only when its session is over; Kafka's 9 s are long for tests.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # What lets a group notice soon that a member was killed.
        "group.min.session.timeout.ms": "500",
        "offsets.topic.num.partitions": "8",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        **extra,
    }


def to_properties_text(properties: Mapping[str, str]) -> str:
    """Write settings in Java's properties format, one a line, in ASCII: Java reads such files as Latin-1."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    units = memoryview(value.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(
        "\\\\" if unit == ord("\\") else chr(unit) if unit < _ASCII_END else f"\\u{unit:04x}" for unit in units
    )
