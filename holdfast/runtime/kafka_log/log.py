"""A real Kafka topic as the log.

Appends, loads and tails use requests of our own on the event loop (`sender`, `fetcher`): one Produce and one Fetch serve all partitions
of a broker, while librdkafka sends one Produce for each partition. docs/decisions/log.md has the figures.
With `log.client = librdkafka` records are sent and read through librdkafka (`through_librdkafka`); all else is the same.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import Say, unsaid
from holdfast.kafka.metadata import NO_TOPIC
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import ErrorCode, name_and_number
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig
from holdfast.runtime.kafka_log.fetcher import Fetcher, FetchEvents
from holdfast.runtime.kafka_log.list_offsets import OffsetQueries
from holdfast.runtime.kafka_log.sending.accumulator import AccumulatorConfig
from holdfast.runtime.kafka_log.sending.pace import PaceConfig
from holdfast.runtime.kafka_log.sending.sender import Sender, SenderConfig
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.kafka_log.through_librdkafka import properties as librdkafka
from holdfast.runtime.kafka_log.through_librdkafka.fetcher import LibrdkafkaFetcher, RecordSource
from holdfast.runtime.kafka_log.through_librdkafka.sender import LibrdkafkaSender, SenderBounds
from holdfast.runtime.log_protocol import LogListener, ReadError
from holdfast.runtime.metrics import RuntimeMetrics

#: See `KafkaLogConfig.slice_records_max`.
SLICE_RECORDS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogConfig:
    """Address and bounds of the log; a field that is a setting has the name of the setting."""

    topic: str
    #: Id of the topic, to tell it from another topic of the same name; zeros: any id.
    topic_id: bytes = NO_TOPIC
    #: Options of our connections.
    connection: ConnectionOptions
    #: The topic's `max.message.bytes`; larger records are refused here.
    message_bytes_max: int
    #: Time after which an append has failed; it may still be appended.
    message_timeout_ms: int
    #: Codec of our batches, by Kafka's number.
    state_topic_compression_codec: int
    #: Time for which a record waits for others; 0 or -1: while each turn of the loop brings some, until there are enough. With -1 it also
    #: waits after a slow answer, until a request is as large as those before it.
    append_linger_ms: float
    #: Longest wait of a record for others while a broker has not answered, for brokers that fall silent after quick answers.
    append_linger_max_ms: float = 100
    #: Records handed over and not yet sent: those of ten log partitions whose writes are all parked.
    producer_queue_records_max: int = 100_000
    #: The same in bytes.
    producer_queue_bytes_max: int
    #: Requests in flight to each broker; more gained nothing.
    produce_requests_in_flight_max: int = 4
    #: Time for which a broker may hold an empty fetch.
    fetch_wait_ms: int
    #: Size of one fetch, and of one log partition in it: some round trips' worth, and as large as a batch of the topic.
    fetch_bytes_max: int = 4 << 20
    fetch_partition_bytes_max: int = 1 << 20
    #: Size of one record batch without its compression, or `message_bytes_max` if that is larger. A batch that exceeds it counts as
    #: damaged, because a few bytes may stand for gigabytes.
    fetch_batch_bytes_max: int = 16 << 20
    #: Records of a load that are reported before others have their turn: about a millisecond's worth.
    slice_records_max: int = SLICE_RECORDS_MAX
    #: Timeout of any request to a broker.
    request_timeout_ms: int
    #: Time for which the event loop polls after a request to a broker and after its answer before it sleeps; 0: it sleeps at once.
    busy_poll_us: int
    #: Silence of a broker after which another broker must confirm it as leader before its end offsets are used.
    leader_silence_max_ms: int
    #: Longest time for which a broker is sent nothing because of a quota; longer pauses that it requests are cut to this.
    throttle_max_ms: int = 300_000
    #: Client through which records are written and read.
    client: Literal["native", "librdkafka"]
    #: Takes the lines of librdkafka, on the event loop.
    say: Say = unsaid


class RecordsOut(Protocol):
    """A sender of the records of a log."""

    def forget(self, partition: int) -> None:
        """Drop records that were not sent yet, because their owner is gone; those in flight may still be appended."""

    async def close(self, timeout_s: float) -> bool:
        """Send the waiting records and await those in flight; return whether all were answered in time."""


class RecordsIn(Protocol):
    """A follower of the partitions of a log, which reports their records."""

    def follow(
        self, partition: int, instance: int, offset: int, end_offset: int | None = None, last_epoch: int = -1
    ) -> None:
        """Follow a partition from an offset (`Fetcher.follow`)."""

    def forget(self, partition: int) -> None:
        """Follow a partition no more."""

    def reach(self, partition: int, offset: int) -> None:
        """Read a partition at once if it has not been read up to an offset."""

    async def close(self) -> None:
        """Stop."""


class KafkaLog:
    """The log of one node; it reports to the listener on the event loop."""

    def __init__(self, config: KafkaLogConfig, clock_ms: Callable[[], int], metrics: RuntimeMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self._bugs = BugReports(self._metrics.internal_errors)
        self._loop = asyncio.get_running_loop()
        self._listener: LogListener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: Partition to the instance that reads it; reports for earlier instances are dropped.
        self._reading: dict[int, int] = {}
        # Meanwhile a Produce without an answer is sent again: its broker may be silent and no longer the leader.
        timeout_ms = config.request_timeout_ms + config.fetch_wait_ms
        polling = BusyPolling(config.busy_poll_us, metrics.busy_poll_ms)
        connection = replace(config.connection, busy_polling=polling)
        self._brokers = Brokers(connection, config.topic, timeout_ms, config.topic_id)
        #: Requests of the native client.
        self._sent = SentBatches()
        self._offsets = OffsetQueries(
            self._brokers,
            self._on_latest,
            self._metrics,
            leader_silence_max_ms=config.leader_silence_max_ms,
            throttle_max_ms=config.throttle_max_ms,
            request_timeout_ms=config.request_timeout_ms,
        )
        self.append: Callable[[int, bytes, bytes | None, bytes], None]
        self.flush_if_all_wait: Callable[[], None]
        self._sender: RecordsOut
        self._tail: RecordsIn
        self._load: RecordsIn
        if config.client == "native":
            self._make_native(clock_ms)
        else:
            self._make_of_librdkafka(clock_ms)

    async def start(self, listener: LogListener) -> None:
        """Find the brokers and start to work for this listener.

        Raises:
            ConnectionFailed: no broker answered.
        """
        self._listener = listener
        await self._brokers.refresh()

    def renew(self, topic_id: bytes) -> None:
        """Use the topic of this id as the log from now on."""
        self._brokers.want(self._config.topic, topic_id)

    async def close(self, timeout_s: float) -> bool:
        """Send the appended records, then stop everything; returns whether all was sent in time."""
        is_sent = await self._sender.close(timeout_s)
        for task in self._tasks:
            task.cancel()
        self._offsets.close()
        await self._tail.close()
        await self._load.close()
        self._brokers.close()
        return is_sent

    # ---- Log -------------------------------------------------------------------------------------------------------

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        """See `Log.start_reading`."""
        self.stop_reading(partition)
        self._reading[partition] = instance
        self._run(self._begin(partition, instance, from_offset))

    def has_partition(self, partition: int) -> bool:
        """Tell whether the topic had this partition, with a leader, when the leaders were last looked up."""
        return partition in self._brokers.leaders

    def has_topic(self) -> bool:
        """Tell whether a broker has known the topic, or hides whether it exists; its partitions may have no leader now."""
        return self._brokers.has_topic or self._brokers.is_hidden

    def stop_reading(self, partition: int) -> None:
        """See `Log.stop_reading`."""
        self._reading.pop(partition, None)
        self._tail.forget(partition)
        self._load.forget(partition)
        self._sender.forget(partition)

    def query_log_start(self, partition: int, instance: int) -> None:
        """See `Log.query_log_start`."""
        self._run(self._find_log_start(partition, instance))

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        """See `Log.query_latest_offsets`."""
        self._offsets.want_latest(round_number, partitions)

    def delete_records(self, partition: int, before_offset: int) -> None:
        """See `Log.delete_records`."""
        self._run(self._delete(partition, before_offset))

    async def _delete(self, partition: int, before_offset: int) -> None:
        config = self._config
        api, version = requests.DELETE_RECORDS
        body = requests.encode_delete_records(config.topic, config.request_timeout_ms, partition, before_offset)
        log_start_offset, problem = None, ""
        try:
            leader = self._brokers.leaders.get(partition)
            if leader is None:
                raise ConnectionFailed("no broker is known to lead it")
            connection = await self._brokers.connection(leader[0], "delete")
            error_code, found = requests.read_answer(
                requests.decode_deleted, await connection.exchange(api, version, body)
            )
        except Exception as failure:  # in every case the pruner must learn the result of its request
            problem = self._bugs.explain(failure, f"deleting records of partition {partition} failed")
        else:
            if error_code:
                remedy = acl_remedy(error_code, "Delete", f"topic {config.topic}", config.connection.who())
                problem = f"the broker answered {name_and_number(error_code)}{remedy}"
            else:
                log_start_offset = min(found, before_offset)  # the tail sees whether others have deleted more
        self._listening().records_deleted(partition, log_start_offset, problem)

    # ---- offsets ---------------------------------------------------------------------------------------------------

    async def _begin(self, partition: int, instance: int, from_offset: int) -> None:
        bounds = []
        for which in (requests.EARLIEST, requests.LATEST):  # in this order, so that the end is never below the start
            found = await self._offsets.query(partition, which)
            if self._reading.get(partition) != instance:
                return
            if found is None:
                problem = f"no broker returned its start and end{self._remedy_where_hidden()}"
                self._listening().read_failed(partition, instance, ReadError(problem, is_alarm=False))
                return
            bounds.append(found)
        start, end = bounds
        self._listening().read_started(partition, instance, start, end)
        begin = max(start, from_offset)
        if self._reading.get(partition) != instance:
            return
        if begin >= end:
            self._end_load(partition, instance, end, -1)  # no record was read that could be truncated
        else:
            self._load.follow(partition, instance, begin, end)

    async def _find_log_start(self, partition: int, instance: int) -> None:
        found = await self._offsets.query(partition, requests.EARLIEST)
        self._listening().log_start_found(partition, instance, found)

    def _on_latest(self, round_number: int, offsets: dict[int, int | None]) -> None:
        self._listening().latest_offsets(round_number, offsets)
        for partition, offset in offsets.items():
            if offset is not None:
                self._tail.reach(partition, offset)

    # ---- loads -----------------------------------------------------------------------------------------------------

    def _end_load(self, partition: int, instance: int, next_offset: int, last_epoch: int) -> None:
        if self._reading.get(partition) != instance:
            return
        self._tail.follow(partition, instance, next_offset, last_epoch=last_epoch)
        self._listening().caught_up(partition, instance, next_offset)

    # ---- clients ---------------------------------------------------------------------------------------------------

    def _make_native(self, clock_ms: Callable[[], int]) -> None:
        config = self._config

        def on_acknowledged(partition: int, batch: SentBatch, base_offset: int) -> None:
            tail.on_acknowledged(partition, batch, base_offset)

        sent = self._sent
        sender = Sender(
            SenderConfig(
                accumulator=AccumulatorConfig(
                    batch_bytes_max=config.message_bytes_max,
                    state_topic_compression_codec=config.state_topic_compression_codec,
                    producer_queue_records_max=config.producer_queue_records_max,
                    producer_queue_bytes_max=config.producer_queue_bytes_max,
                ),
                pace=PaceConfig(
                    append_linger_ms=config.append_linger_ms,
                    append_linger_max_ms=config.append_linger_max_ms,
                    produce_requests_in_flight_max=config.produce_requests_in_flight_max,
                ),
                message_timeout_ms=config.message_timeout_ms,
                throttle_max_ms=config.throttle_max_ms,
            ),
            self._brokers,
            sent,
            on_acknowledged,
            self._on_append_failed,
            clock_ms,
            self._metrics,
        )
        bounds = FetcherConfig(
            fetch_wait_ms=config.fetch_wait_ms,
            fetch_bytes_max=config.fetch_bytes_max,
            fetch_partition_bytes_max=config.fetch_partition_bytes_max,
            fetch_batch_bytes_max=max(config.fetch_batch_bytes_max, config.message_bytes_max),
            slice_records_max=config.slice_records_max,
            throttle_max_ms=config.throttle_max_ms,
        )
        tail, load = (
            Fetcher(
                purpose,
                bounds,
                self._brokers,
                self._listening,
                sent,
                self._metrics,
                FetchEvents(self._end_load, self._on_read_back, self._offsets.on_heard),
            )
            for purpose in ("tail", "load")
        )
        self._sender, self._tail, self._load = sender, tail, load
        self.append, self.flush_if_all_wait = sender.append, sender.pace.flush_if_all_wait

    def _make_of_librdkafka(self, clock_ms: Callable[[], int]) -> None:
        config = self._config
        say = librdkafka.LinesOnLoop(config.say)
        clients = librdkafka.make_clients(config.connection, say)
        sender = LibrdkafkaSender(
            SenderBounds(
                message_bytes_max=config.message_bytes_max,
                producers_max=config.produce_requests_in_flight_max,
                queue_records_max=config.producer_queue_records_max,
                queue_bytes_max=config.producer_queue_bytes_max,
            ),
            clients,
            librdkafka.producer_properties(
                message_bytes_max=config.message_bytes_max,
                message_timeout_ms=config.message_timeout_ms,
                request_timeout_ms=config.request_timeout_ms,
                linger_ms=max(0, int(config.append_linger_ms)),
                records_max=2 * config.producer_queue_records_max,
                codec=config.state_topic_compression_codec,
            ),
            config.topic,
            self._on_appended,
            self._on_append_failed,
            clock_ms,
            self._metrics,
        )
        self._sender, self.append, self.flush_if_all_wait = sender, sender.append, sender.flush_if_all_wait
        read = librdkafka.consumer_properties(
            fetch_wait_ms=config.fetch_wait_ms,
            fetch_bytes_max=config.fetch_bytes_max,
            fetch_partition_bytes_max=config.fetch_partition_bytes_max,
            request_timeout_ms=config.request_timeout_ms,
        )
        patience_s = (config.request_timeout_ms + config.fetch_wait_ms) / 1_000
        self._tail, self._load = (
            LibrdkafkaFetcher(
                purpose,
                RecordSource(clients, read, config.topic, config.slice_records_max, patience_s),
                self._listening,
                self._end_load,
                self._bugs,
                say,
            )
            for purpose in ("tail", "load")
        )

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _remedy_where_hidden(self) -> str:
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED if self._brokers.is_hidden else ErrorCode.NONE
        return acl_remedy(hidden, "Describe", f"topic {self._config.topic}", self._config.connection.who())

    def _on_read_back(self, batch: SentBatch) -> None:
        if batch.first_record_s is not None:
            self._metrics.event_purgatory_time.record((self._loop.time() - batch.first_record_s) * 1_000)

    def _on_appended(self, partition: int, offset: int) -> None:
        self._tail.reach(partition, offset + 1)

    def _on_append_failed(self, partition: int, header: bytes, text: str) -> None:
        self._listening().append_failed(partition, header, text)

    def _listening(self) -> LogListener:
        assert self._listener is not None
        return self._listener

    def _run(self, work: Any) -> None:  # noqa: ANN401 - any coroutine
        task = self._loop.create_task(work, name="holdfast-log")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._bugs.watch(task)
