"""Apache Kafka with share groups of its own, and a gateway before it: both are told the same, and what they answer is compared."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Mapping
from io import BytesIO
from random import Random
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8

from holdfast.client.client import parse_address
from holdfast.client.connection import open_connection
from tests.interop.gateway.sides import Outcome, Side, Step
from tests.real.nodes import PATIENT_CLIENT, topic_id_of
from tests.waiting import PATIENCE_MS, PATIENCE_S, poll_pause_s

#: Partitions of the topic `records`, each with a log of its own kind.
EVEN, UNEVEN, TRANSACTIONS, CUT, EMPTY, TEN = range(6)
_PARTITIONS: Final = 6
#: The log of `CUT` begins in the middle of a batch.
CUT_AT: Final = 37

#: How long a fetch waits that may find nothing.
SHORT_WAIT_MS: Final = 100
#: How long one waits for records that came at the other side.
_LATE_WAIT_MS: Final = 30_000
#: Records that were given back are free when this has passed; a life with a difference is tried again with more.
PAUSE_S: Final = 0.05

#: How long locks last in the groups in which a test waits for their ends.
SHORT_LOCK_S: Final = 15

_COMMON: Final = {"share.auto.offset.reset": "earliest"}
#: Configs by kind of group.
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "locks": {"share.partition.max.record.locks": "100"},
    "twice": {"share.delivery.count.limit": "2"},
    "fixed": {"share.renew.acknowledge.enable": "false", "share.delivery.count.limit": "3"},
    "committed": {"share.isolation.level": "read_committed"},
    "short": {"share.record.lock.duration.ms": str(1_000 * SHORT_LOCK_S)},
    "latest": {"share.auto.offset.reset": "latest"},
}
_LOCK: Final = {"share.record.lock.duration.ms": "60000"}
_INCREMENTAL_ALTER_CONFIGS, _GROUP, _SET = 44, 32, 0


def configs_of(kind: str) -> dict[str, str]:
    """Return the configs of groups of a kind."""
    return {**_COMMON, **_LOCK, **KINDS[kind]}


class Groups:
    """Names of groups that nobody has used, each of a kind; both servers know their configs from the beginning.

    Args:
        counts: of each kind.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.names: Final = {kind: [f"{kind}-{number}" for number in range(count)] for kind, count in counts.items()}
        self._left: Final = {kind: list(reversed(names)) for kind, names in self.names.items()}

    def take(self, kind: str) -> str:
        """Return a name that nobody had."""
        return self._left[kind].pop()

    def settings(self) -> dict[str, str]:
        """Return the settings of a node for all of them."""
        return {
            f"gateway.groups.{name}.{config}": value
            for kind, names in self.names.items()
            for name in names
            for config, value in configs_of(kind).items()
        }

    async def tell(self, bootstrap_servers: str) -> None:
        """Tell Kafka the configs of all."""
        # A member has its partitions at once, and not a second later.
        quick = {"share.assignment.interval.ms": "0"}
        resources = [
            AlterConfigsResource(
                resource_type=i8(_GROUP),
                resource_name=name,
                configs=tuple(
                    AlterableConfig(name=config, config_operation=i8(_SET), value=value)
                    for config, value in {**configs_of(kind), **quick}.items()
                ),
            )
            for kind, names in self.names.items()
            for name in names
        ]
        buffer = BytesIO()
        request = IncrementalAlterConfigsRequest(resources=tuple(resources), validate_only=False)
        entity_writer(IncrementalAlterConfigsRequest)(buffer, request)
        connection = await open_connection(parse_address(bootstrap_servers), PATIENT_CLIENT)
        answer = await connection.exchange(_INCREMENTAL_ALTER_CONFIGS, 1, buffer.getvalue(), is_flexible=True)
        connection.close()
        response, _ = entity_reader(IncrementalAlterConfigsResponse)(answer, 0)
        assert {each.error_code for each in response.responses} <= {ErrorCode.none}, response


class Difference(AssertionError):
    """Both servers answered, and not the same.

    Args:
        told: the steps up to there.
        theirs: the answer of Kafka to the last one.
        own: ours.
    """

    def __init__(self, told: str, theirs: Outcome, own: Outcome) -> None:
        super().__init__(told)
        self.theirs: Final = theirs
        self.own: Final = own


class Both:
    """One group at both servers.

    Args:
        kafka: Apache Kafka.
        gateway: ours.
        group: its name.
        pause_s: after records were given back.
        tells_empty: compare also which partitions an answer names that it has nothing of.
    """

    def __init__(
        self, kafka: Side, gateway: Side, group: str, pause_s: float = PAUSE_S, *, tells_empty: bool = True
    ) -> None:
        self._tells_empty: Final = tells_empty
        self.group: Final = group
        self.kafka: Final = kafka
        self.gateway: Final = gateway
        self._pause_s: Final = pause_s
        self.steps: Final[list[tuple[Step, Outcome]]] = []

    async def ask(self, step: Step, wait_ms: int = SHORT_WAIT_MS) -> tuple[Outcome, Outcome]:
        """Return what Kafka says to a step, and what we say."""
        theirs, own = await asyncio.gather(self.kafka.do(step, wait_ms), self.gateway.do(step, wait_ms))
        if step.kind == "fetch" and step.epoch != -1 and not step.is_renew:
            # A busy machine decides whether records come within a short wait, so they are waited for where the other side had some.
            if theirs.has_records and not own.has_records and not own.error_code:
                own = own.joined(await self.gateway.do(_again(step), _LATE_WAIT_MS))
            elif own.has_records and not theirs.has_records and not theirs.error_code:
                theirs = theirs.joined(await self.kafka.do(_again(step), _LATE_WAIT_MS))
        if step.kind == "hang up" or step.epoch in (0, -1):
            await asyncio.sleep(self._pause_s)
        return theirs, own

    async def do(self, step: Step, wait_ms: int = SHORT_WAIT_MS) -> Outcome:
        """Take a step at both and return what they said.

        Raises:
            Difference: it was not the same.
        """
        theirs, own = await self.ask(step, wait_ms)
        if theirs != own and (self._tells_empty or theirs.without_empty() != own.without_empty()):
            raise Difference(f"\n{self.told()}\n  {step}\n    Kafka: {theirs}\n    we:    {own}", theirs, own)
        self.steps.append((step, own))
        return own

    def told(self) -> str:
        """Return the steps up to now as text."""
        return "\n".join(f"  {before}\n    {outcome}" for before, outcome in self.steps)

    def close(self) -> None:
        """Hang up at both."""
        self.kafka.close()
        self.gateway.close()


def _again(step: Step) -> Step:
    return Step(
        "fetch",
        step.member,
        records_max=step.records_max,
        batch_size=step.batch_size,
        mode=step.mode,
        version=step.version,
        max_bytes=step.max_bytes,
    )


class Pair(NamedTuple):
    """Both servers over one cluster."""

    kafka: str
    gateway: str
    topic: str
    topic_ids: Mapping[str, bytes]
    groups: Groups
    #: Groups whose members are connected.
    connected: list[Both]

    def close(self) -> None:
        """Hang up for all members of all groups."""
        while self.connected:
            self.connected.pop().close()

    async def group(
        self,
        kind: str,
        members: Mapping[str, str] | None = None,
        name: str | None = None,
        pause_s: float = PAUSE_S,
        *,
        tells_empty: bool = True,
    ) -> Both:
        """Give a new group of a kind, whose share partitions Kafka has initialized."""
        group = self.groups.take(kind) if name is None else name
        named = members or {each: str(uuid.uuid4()) for each in "abc"}
        both = Both(
            Side("Kafka", self.kafka, self.topic_ids, group, named),
            Side("gateway", self.gateway, self.topic_ids, group, named),
            group,
            pause_s,
            tells_empty=tells_empty,
        )
        self.connected.append(both)
        if name is None:
            await self._initialize(group)
        return both

    async def _initialize(self, group: str) -> None:
        """Send heartbeats to Kafka until a member of the group has all partitions: before, its leader knows no share partition."""
        side = Side("Kafka", self.kafka, self.topic_ids, group, {"first": str(uuid.uuid4())})
        epoch, count, began_s = 0, 0, time.monotonic()
        while count < _PARTITIONS:
            assert time.monotonic() < began_s + PATIENCE_S, f"Kafka never assigned the partitions of {group}"
            answer = await side.heartbeat("first", epoch, None if epoch else [self.topic])
            if answer.error_code:
                await asyncio.sleep(poll_pause_s(began_s))
                continue
            epoch = answer.member_epoch
            if answer.assignment is not None:
                count = sum(len(partitions) for _, partitions in answer.assignment)
            await asyncio.sleep(poll_pause_s(began_s))
        side.close()


def make_topic(bootstrap_servers: str) -> str:
    """Make a topic whose partitions have logs of different kinds."""
    name = f"diff-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(PATIENCE_S)
    topic_id_of(bootstrap_servers, name)
    common: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 1_000}
    producer = Producer(common)
    random = Random(1)
    for number in range(20):
        produce(producer, name, EVEN, 10)
        produce(producer, name, CUT, 10)
        produce(producer, name, UNEVEN, random.choice((1, 1, 2, 3, 17, 30)))
        assert producer.flush(PATIENCE_S) == 0, number
    produce(producer, name, TEN, 10)
    assert producer.flush(PATIENCE_S) == 0
    admin.delete_records([TopicPartition(name, CUT, CUT_AT)])[TopicPartition(name, CUT, CUT_AT)].result(PATIENCE_S)
    transactional = Producer({**common, "transactional.id": name, "transaction.timeout.ms": PATIENCE_MS})
    transactional.init_transactions(PATIENCE_S)
    for number in range(12):
        transactional.begin_transaction()
        produce(transactional, name, TRANSACTIONS, random.choice((1, 5, 10)))
        transactional.flush(PATIENCE_S)
        produce(transactional, name, TRANSACTIONS, random.choice((1, 5)))
        (transactional.abort_transaction if number % 3 == 1 else transactional.commit_transaction)(PATIENCE_S)
        if number % 4 == 0:
            produce(producer, name, TRANSACTIONS, 3)
            assert producer.flush(PATIENCE_S) == 0
    return name


def produce(producer: Producer, topic: str, partition: int, count: int) -> None:
    """Write records that nobody reads."""
    for number in range(count):
        producer.produce(topic, os.urandom(4).hex() + str(number), partition=partition)
