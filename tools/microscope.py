"""The recording at the top of README.md: share groups of a stock Apache Kafka, used by a stock consumer, and seen by `holdfast groups`.

`python -m tools.microscope` plays it on a real broker and writes both forms: the block in README.md, as text, and the
picture beside it. A test plays it again, with the wheel (`tests/installed/test_wheel.py`); another one compares the two forms.
"""

import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry

from holdfast.broker import EmbeddedKafka
from holdfast.kafka.librdkafka_types import ConfigResource, NewTopic, ResourceType
from tools.recordings import Shown, drawn

_ROOT: Final = Path(__file__).parents[1]
README: Final = _ROOT / "README.md"
PICTURE: Final = _ROOT / "docs" / "microscope.svg"
MARK: Final = "<!-- tested: microscope -->\n"

#: The brokers' address on the page.
BROKERS_SHOWN: Final = "127.0.0.1:9092"
COMMANDS: Final = (
    f"holdfast groups list --bootstrap-server {BROKERS_SHOWN}",
    f"holdfast groups describe packers --bootstrap-server {BROKERS_SHOWN}",
)

_TOPIC: Final = "orders"
_PARTITIONS: Final = 2
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 1.0
#: Records of each partition that are there while the groups work, and those that come afterwards, which are their lag.
_FIRST: Final = 20
_THEN: Final = 80
#: Offsets of the first partition: of a record that is given back at each try, and of one that is rejected.
_STUCK, _TRIES, _REJECTED = 12, 3, 13

#: Takes the lines of librdkafka, which says of each share consumer that it is a preview.
_UNSEEN: Final = logging.Logger("unseen", logging.CRITICAL)


class _Group(NamedTuple):
    name: str
    is_stuck: bool  #: a record of the first partition is given back each time


_GROUPS: Final = (_Group("packers", is_stuck=True), _Group("billing", is_stuck=False))


def play(bootstrap_servers: str) -> None:
    """Have two share groups of Kafka's own work on a topic, by the stock consumer of confluent-kafka.

    Raises:
        TimeoutError: the broker gave them no records.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)]).values():
        made.result(_TIMEOUT_S)
    _produce(bootstrap_servers, _FIRST)
    for group in _GROUPS:
        _begin_at_the_first_record(admin, group)
        _work(bootstrap_servers, group)
    _produce(bootstrap_servers, _THEN)


def _produce(bootstrap_servers: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition in range(_PARTITIONS):
        for _ in range(count):
            producer.produce(_TOPIC, b"an order", partition=partition)
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError("the broker took no records")


def _begin_at_the_first_record(admin: AdminClient, group: _Group) -> None:
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group.name, incremental_configs=[earliest])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(_TIMEOUT_S)


def _work(bootstrap_servers: str, group: _Group) -> None:
    """Work off what is in the topic, but for what the group is stuck at."""
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group.name, "share.acknowledgement.mode": "explicit"},
        logger=_UNSEEN,
    )
    consumer.subscribe([_TOPIC])
    left = {(partition, offset) for partition in range(_PARTITIONS) for offset in range(_FIRST)}
    tries, ends_s = 0, time.monotonic() + _TIMEOUT_S
    while left:
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{group.name} was given no records for {len(left)} of its places")
        for message in consumer.poll(_POLL_S) or ():
            place = (message.partition(), message.offset())
            is_stuck = group.is_stuck and place == (0, _STUCK)
            tries += is_stuck
            consumer.acknowledge(message, _answer(group, message))
            if not is_stuck or tries == _TRIES:
                left.discard(place)
    consumer.commit_sync()
    consumer.close()


def _answer(group: _Group, message: Message) -> AcknowledgeType:
    if group.is_stuck and message.partition() == 0:
        if message.offset() == _STUCK:
            return AcknowledgeType.RELEASE
        if message.offset() == _REJECTED:
            return AcknowledgeType.REJECT
    return AcknowledgeType.ACCEPT


def record(bootstrap_servers: str, run: Callable[[str], str]) -> list[Shown]:
    """Run the commands on a broker where the groups have worked; returns them and their output as the page shows them.

    Args:
        bootstrap_servers: of the broker.
        run: gives the standard output of a command line.
    """
    return [Shown(command, run(command.replace(BROKERS_SHOWN, bootstrap_servers)).rstrip("\n")) for command in COMMANDS]


def block_of(steps: Sequence[Shown]) -> str:
    """Return a console block for the page."""
    lines = [line for step in steps for line in (f"$ {step.command}", *step.output.splitlines())]
    return "\n".join(("```console", *lines, "```", ""))


def steps_on_the_page() -> list[Shown]:
    """Return what the page shows."""
    code = README.read_text(encoding="utf-8").split(MARK)[1].partition("```console\n")[2].partition("```")[0]
    return list(_steps(code))


def _steps(code: str) -> Iterator[Shown]:
    for step in code.removeprefix("$ ").split("\n$ "):
        command, _, output = step.partition("\n")
        yield Shown(command, output.rstrip("\n"))


def _write(steps: Sequence[Shown]) -> None:
    before, rest = README.read_text(encoding="utf-8").split(MARK)
    after = rest.partition("```console\n")[2].partition("```\n")[2]
    README.write_text(f"{before}{MARK}{block_of(steps)}{after}", encoding="utf-8")
    PICTURE.write_text(drawn(steps), encoding="utf-8")


def _run(command: str) -> str:
    tool, *arguments = shlex.split(command)
    program = Path(sys.executable).with_name(tool)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")}
    return subprocess.run([program, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    with EmbeddedKafka() as kafka:
        play(kafka.bootstrap_servers)
        _write(record(kafka.bootstrap_servers, _run))
