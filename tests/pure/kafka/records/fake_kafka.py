"""A small Kafka on loopback: Metadata, Fetch and ListOffsets of logs that a test writes, on several brokers."""

import asyncio
import ssl
import struct
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

from kio.schema.api_versions.v0 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v5.request import ListOffsetsRequest
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.records.batches import iter_batches
from tests.pure.kafka.records.samples import make_batch

METADATA, FETCH, LIST_OFFSETS, API_VERSIONS = 3, 1, 2, 18
UNKNOWN_TOPIC, UNKNOWN_ID = 3, 100
EARLIEST = -2


def to_bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


class Partition:
    """A log."""

    def __init__(self, leader: int) -> None:
        self.leader, self.epoch = leader, 0
        self.log: list[bytes] = []
        self.start, self.end = 0, 0
        self.stable: int | None = None  #: None: the end
        self.aborted: list[tuple[int, int]] = []
        self.errors: list[int] = []  #: the next fetches end so
        self.diverges_at: int | None = None
        self.changed = asyncio.Event()

    def append(self, *values: bytes, data: bytes | None = None) -> None:
        """Write a batch."""
        written = make_batch(self.end, values or (b"value",), leader_epoch=self.epoch) if data is None else data
        self.log.append(written)
        self.end = next(iter_batches(memoryview(written), 0)).last_offset + 1
        self.wake()

    def wake(self) -> None:
        """Have requests that wait looked at again."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def read(self, offset: int, bytes_max: int, is_first: bool) -> bytes:
        """Return what a broker sends: a slice of the log, whose first batch is whole or left out."""
        ends = [next(iter_batches(memoryview(data), 0)).last_offset for data in self.log]
        left = self.log[bisect_left(ends, offset) :]
        if not left or (len(left[0]) > bytes_max and not is_first):
            return b""
        return b"".join(left)[: max(bytes_max, len(left[0]))]


class Topic:
    """A topic of the cluster."""

    def __init__(self, name: str, topic_id: UUID, leaders: Sequence[int]) -> None:
        self.name, self.topic_id = name, topic_id
        self.partitions = [Partition(leader) for leader in leaders]


class FakeBroker:
    """One of the brokers."""

    def __init__(self, kafka: "FakeKafka", broker_id: int) -> None:
        self.kafka, self.broker_id = kafka, broker_id
        self.versions = {
            METADATA: (0, 13),
            FETCH: (4, 17),
            LIST_OFFSETS: (1, 8),
            API_VERSIONS: (0, 3),
            17: (0, 1),
            36: (0, 0),
        }
        self.port = 0
        self.goes_on = asyncio.Event()  #: it is not frozen
        self.goes_on.set()
        self.throttle_ms = 0
        self.view: dict[str, Any] | None = None  #: what it knew of topics when it was cut off; None: it knows all
        self.garbage: bytes | None = None  #: the next answer to a Fetch
        self.fetches: list[tuple[int, Any]] = []  #: (version, request)
        self.accepted = 0
        self.fetching: set[asyncio.Task[None]] = set()  #: connections that had a Fetch
        self.waiting: set[asyncio.Task[None]] = set()
        self.writers: set[asyncio.StreamWriter] = set()

    def cut_off(self) -> None:
        """Learn nothing more from now on."""
        self.view = self.kafka.describe()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self.waiting.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                api_key, version, correlation_id, client = struct.unpack_from(">hhih", frame)
                await self.goes_on.wait()
                if api_key == FETCH:
                    self.fetching.add(task)
                body, has_tags = await self.answer(api_key, version, frame[10 + client :])
                head = struct.pack(">i", correlation_id) + (b"\x00" if has_tags else b"")
                writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.waiting.discard(task)
            self.writers.discard(writer)
            writer.close()

    async def answer(self, api_key: int, version: int, body: bytes) -> tuple[bytes, bool]:
        if api_key == API_VERSIONS:
            return self._answer_versions(), False
        if api_key == METADATA:
            return self._answer_metadata(version, body), version >= 9
        if api_key == LIST_OFFSETS:
            return self._answer_offsets(body), False
        assert api_key == FETCH
        return await self._answer_fetch(version, body[1:]), True

    def _answer_versions(self) -> bytes:
        keys = tuple(
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)  # type: ignore[arg-type]
            for key, (low, high) in self.versions.items()
        )
        return to_bytes(api_versions.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys))

    def _answer_metadata(self, version: int, body: bytes) -> bytes:
        schema: Any = import_module(f"kio.schema.metadata.v{version}.response")
        request_type = import_module(f"kio.schema.metadata.v{version}.request").MetadataRequest
        request, _ = entity_reader(request_type)(body[1:] if version >= 9 else body, 0)
        known = self.kafka.describe() if self.view is None else self.view
        topics = []
        wanted_topics = request.topics
        if wanted_topics is None:
            named = import_module(f"kio.schema.metadata.v{version}.request").MetadataRequestTopic
            wanted_topics = [named(name=name, **({"topic_id": None} if version >= 10 else {})) for name in known]
        with_id = [wanted for wanted in wanted_topics if getattr(wanted, "topic_id", None)]
        for wanted in with_id or wanted_topics:  # a request with ids has no names for Kafka
            topic_id = getattr(wanted, "topic_id", None)
            name = wanted.name
            if topic_id:
                name = next((name for name, (own, _, _) in known.items() if own == topic_id), None)
            own, error, partitions = known.get(name, (topic_id, UNKNOWN_ID if topic_id else UNKNOWN_TOPIC, []))
            ids = {"topic_id": own} if version >= 10 else {}
            parts = tuple(
                schema.MetadataResponsePartition(
                    partition_index=index,
                    error_code=ErrorCode.none,
                    leader_id=leader,
                    leader_epoch=epoch,
                    replica_nodes=(),
                    isr_nodes=(),
                    offline_replicas=(),
                )
                for index, (leader, epoch) in enumerate(partitions)
            )
            topics.append(
                schema.MetadataResponseTopic(
                    error_code=ErrorCode(error), name=name, is_internal=False, partitions=parts, **ids
                )
            )
        brokers = tuple(
            schema.MetadataResponseBroker(node_id=each.broker_id, host="127.0.0.1", port=each.port, rack=None)
            for each in self.kafka.brokers.values()
            if each.port
        )
        return to_bytes(
            schema.MetadataResponse(
                throttle_time=timedelta(0), brokers=brokers, cluster_id="c", controller_id=1, topics=tuple(topics)
            )
        )

    def _answer_offsets(self, body: bytes) -> bytes:
        request, _ = entity_reader(ListOffsetsRequest)(body, 0)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        log = self.kafka.topics[topic.name].partitions[wanted.partition_index]
        offset = log.start if wanted.timestamp == EARLIEST else log.end
        named = topic.name.encode()
        found = struct.pack(">iihqqi", 1, wanted.partition_index, 0, -1, offset, log.epoch)
        return struct.pack(">iih", 0, 1, len(named)) + named + found

    async def _answer_fetch(self, version: int, body: bytes) -> bytes:
        request, _ = entity_reader(import_module(f"kio.schema.fetch.v{version}.request").FetchRequest)(body, 0)
        self.fetches.append((version, request))
        if self.garbage is not None:
            garbage, self.garbage = self.garbage, None
            return garbage
        schema: Any = import_module(f"kio.schema.fetch.v{version}.response")
        answer, is_empty, changes = self._read(schema, version, request)
        wait_s = request.max_wait.total_seconds()
        if is_empty and wait_s and changes:
            waits = [asyncio.ensure_future(each.wait()) for each in changes]
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            answer, _, _ = self._read(schema, version, request)
        return to_bytes(answer)

    def _read(self, schema: Any, version: int, request: Any) -> tuple[Any, bool, list[asyncio.Event]]:
        left, is_empty, changes, responses = request.max_bytes, True, [], []
        for wanted in request.topics:
            key = {"topic_id": wanted.topic_id} if version >= 13 else {"topic": wanted.topic}
            topics = self.kafka.topics.values()
            topic = (
                next((each for each in topics if wanted.topic_id == each.topic_id), None)
                if version >= 13
                else self.kafka.topics.get(wanted.topic)
            )
            parts = []
            for part in wanted.partitions:
                error, own = 0, None
                if topic is None or part.partition >= len(topic.partitions):
                    error = UNKNOWN_ID if version >= 13 else UNKNOWN_TOPIC
                else:
                    own = topic.partitions[part.partition]
                    changes.append(own.changed)
                    if own.errors:
                        error = own.errors.pop(0)
                    elif own.leader != self.broker_id:
                        error = 6
                    elif part.current_leader_epoch not in (-1, own.epoch):
                        error = 74 if part.current_leader_epoch < own.epoch else 75
                    elif not own.start <= part.fetch_offset <= own.end:
                        error = 1
                fields: dict[str, Any] = dict.fromkeys(("high_watermark", "last_stable_offset", "log_start_offset"), -1)
                records = b""
                if own is not None and not error:
                    stable = own.end if own.stable is None else own.stable
                    fields = {"high_watermark": own.end, "last_stable_offset": stable, "log_start_offset": own.start}
                    if own.diverges_at is not None:
                        fields["diverging_epoch"] = schema.EpochEndOffset(epoch=0, end_offset=own.diverges_at)
                    elif not request.isolation_level or part.fetch_offset < stable:
                        records = own.read(part.fetch_offset, min(left, part.partition_max_bytes), is_empty)
                is_empty &= not records and not error
                left = max(0, left - len(records))
                aborted = None
                if own is not None and request.isolation_level:
                    aborted = tuple(
                        schema.AbortedTransaction(producer_id=one, first_offset=two) for one, two in own.aborted
                    )
                parts.append(
                    schema.PartitionData(
                        partition_index=part.partition,
                        error_code=ErrorCode(error),
                        aborted_transactions=aborted,
                        records=records or None,
                        **fields,
                    )
                )
            responses.append(schema.FetchableTopicResponse(partitions=tuple(parts), **key))
        throttle = timedelta(milliseconds=self.throttle_ms)
        answer = schema.FetchResponse(
            throttle_time=throttle, error_code=ErrorCode.none, session_id=0, responses=tuple(responses)
        )
        return answer, is_empty, changes


class FakeKafka:
    """The cluster."""

    def __init__(self, broker_count: int, has_ids: bool) -> None:
        self.brokers = {number: FakeBroker(self, number) for number in range(1, broker_count + 1)}
        self.topics: dict[str, Topic] = {}
        self._has_ids = has_ids
        self._made = 0
        if not has_ids:
            for broker in self.brokers.values():
                broker.versions |= {METADATA: (0, 8), FETCH: (4, 12)}

    def make_topic(self, name: str = "topic", leaders: Sequence[int] = (1,)) -> Topic:
        """Make a topic, in place of one of this name."""
        self._made += 1
        self.topics[name] = topic = Topic(name, UUID(int=1_000 + self._made), leaders)
        return topic

    def move(self, partition: Partition, leader: int) -> None:
        """Have another broker lead."""
        partition.leader, partition.epoch = leader, partition.epoch + 1
        partition.wake()

    def describe(self) -> dict[str, Any]:
        """Return id, error code and leaders of each topic."""
        return {
            name: (topic.topic_id, 0, [(each.leader, each.epoch) for each in topic.partitions])
            for name, topic in self.topics.items()
        }

    @property
    def options(self) -> ConnectionOptions:
        """Return how a client reaches it."""
        return ConnectionOptions(bootstrap=tuple(("127.0.0.1", each.port) for each in self.brokers.values()))

    @property
    def fetches(self) -> list[tuple[int, int, Any]]:
        """Return (broker, version, request) of all fetches."""
        return [(each.broker_id, *fetch) for each in self.brokers.values() for fetch in each.fetches]


@asynccontextmanager
async def fake_kafka(
    broker_count: int = 1, *, has_ids: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeKafka]:
    """Give a cluster without topics."""
    kafka = FakeKafka(broker_count, has_ids)
    servers = []
    try:
        for broker in kafka.brokers.values():
            server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls)
            broker.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        yield kafka
    finally:
        for server in servers:
            server.close()
        serving = [task for broker in kafka.brokers.values() for task in broker.waiting]
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
