"""Three brokers, each on a host of a network that can be cut."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.broker.kafka_broker import BrokerNode
from holdfast.broker.properties import NodePorts, new_kafka_uuid, node_properties
from holdfast.jars.java import find_java
from tests.real.membership.split_network import SplitNetwork
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

_PORTS: Final = NodePorts(broker=9092, controller=9093)


@contextmanager
def split_kafka(network: SplitNetwork, brokers: list[str], directory: Path) -> Iterator[str]:
    """Give the bootstrap servers of brokers on these hosts; their ids count from 1."""
    hosts, java, cluster_id = [network.hosts[name] for name in brokers], find_java(), new_kafka_uuid()
    voters = ",".join(f"{number}@{host.address}:{_PORTS.controller}" for number, host in enumerate(hosts, start=1))
    with ExitStack() as stack:
        for number, host in enumerate(hosts, start=1):
            node = BrokerNode(number, directory / f"broker-{number}")
            listeners = f"PLAINTEXT://{host.address}:{_PORTS.broker},CONTROLLER://{host.address}:{_PORTS.controller}"
            settings = node_properties(number, [_PORTS] * len(hosts), node.data_dir, {})
            settings |= {"listeners": listeners, "controller.quorum.voters": voters}
            node.format(cluster_id)
            with _java_home(host.write_java(directory, java)):
                node.launch(settings, ("-Xmx256m", *QUICK_KAFKA), outlives_us=False)
            stack.callback(node.kill)
        servers = ",".join(f"{host.address}:{_PORTS.broker}" for host in hosts)
        _wait_for_all(servers, len(hosts))
        yield servers


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _wait_for_all(servers: str, count: int) -> None:
    """Wait until each broker knows all of them."""
    deadline = time.monotonic() + PATIENCE_S
    for server in servers.split(","):
        admin = AdminClient({"bootstrap.servers": server, "log_level": 0, "reconnect.backoff.max.ms": 200})
        while True:
            try:
                if len(admin.list_topics(timeout=2.0).brokers) == count:
                    break
            except KafkaException:
                pass
            assert time.monotonic() < deadline, f"{server} does not know {count} brokers"
            time.sleep(0.1)
