"""Print the state of every share partition as JSON lines, read from a Holdfast state topic as any program can.

It uses confluent-kafka, fastavro and the schema files, and nothing else of Holdfast: copy from it what you need.
docs/log-format.md explains the rules. Topics in Kafka's own codec are for Kafka's own tools.

Example: python examples/read_state.py --bootstrap-server 127.0.0.1:9092
"""

import argparse
import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from heapq import heappop, heappush
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from struct import unpack
from time import monotonic
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

SCHEMAS = Path(__file__).parents[1] / "holdfast" / "records" / "schemas"
SILENCE_S_MAX = 30.0
FENCES = (("leader_epoch", "leader_epoch_fence"), ("state_epoch", "state_epoch_fence"))

Fields = dict[str, Any]


class SingleObjects:
    """Decodes Avro single objects: marker C3 01, fingerprint of the schema, body."""

    def __init__(self, directory: Path) -> None:
        self._schemas: dict[bytes, tuple[str, Any]] = {}
        for file in directory.glob("*.avsc"):
            schema = json.loads(file.read_text(encoding="utf-8"))
            crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
            self._schemas[b"\xc3\x01" + bytes.fromhex(crc)] = schema["name"], fastavro.parse_schema(schema)

    def decode(self, data: bytes) -> tuple[str, Fields]:
        """Return the name of the schema and the fields."""
        if data[:10] not in self._schemas:
            raise ValueError(f"These bytes begin with no schema known here: {data[:10].hex()}")
        name, schema = self._schemas[data[:10]]
        fields: Any = fastavro.schemaless_reader(BytesIO(data[10:]), schema, None)
        return name, fields


class WhoCounts:
    """The rule of who counts in one log partition; give it every record, from the log's start, in offset order.

    `begins_at` is where the log is whole from, None as long as that is not found; what was read below it is to be forgotten.
    """

    def __init__(self, objects: SingleObjects, log_start: int) -> None:
        self._objects = objects
        self._owner_epoch, self._attempt_id, self._next_sequence = 0, None, -1
        self.begins_at: int | None = 0 if log_start == 0 else None
        self.checkpoint_offset = -1

    def counts(self, offset: int, key: bytes | None, value: bytes | None, header: bytes | None) -> bool:
        """Return whether the next record counts; one that does not is void, and changes nothing for any reader."""
        if header is None or len(header) < 13:
            return False
        version, owner_epoch, sequence = unpack(">biq", header[:13])
        if version > 1:
            raise ValueError(f"The header has version {version}; a newer Holdfast wrote it.")
        if version < 1 or len(header) > 13:
            return False
        checkpoint = self._objects.decode(value or b"")[1] if key == b"\x03\xe8" else None
        if checkpoint is not None:
            is_refresh_of_another = checkpoint["attempt_id"] != self._attempt_id and sequence > 0
            is_owner = self.begins_at is None and owner_epoch == self._owner_epoch and is_refresh_of_another
            if owner_epoch > self._owner_epoch or is_owner:
                self._owner_epoch, self._attempt_id = owner_epoch, checkpoint["attempt_id"]
                self._next_sequence, self.checkpoint_offset = sequence + 1, offset
                return True
        if owner_epoch != self._owner_epoch or sequence != self._next_sequence or sequence < 0:
            return False
        if checkpoint is not None:
            if checkpoint["attempt_id"] != self._attempt_id:
                return False
            if self.begins_at is None and checkpoint.get("cut_offset") == self.checkpoint_offset:
                self.begins_at = self.checkpoint_offset
            self.checkpoint_offset = offset
        self._next_sequence += 1
        return True


def fold(state: Fields | None, name: str, fields: Fields) -> Fields | None:
    """Return the state after a snapshot or an update that counts; None while the share partition is unknown."""
    if name == "ShareSnapshot":
        return {
            **fields,
            **{fence: max(fields[fence], fields[epoch], (state or fields)[fence]) for epoch, fence in FENCES},
        }
    if state is None:  # its snapshot was pruned from the log; another one, or a tombstone, follows
        return None
    changed = {name: fields[name] for name in ("leader_epoch", "start_offset") if fields[name] != -1}
    state = {**state, **changed, "delivery_complete_count": fields["delivery_complete_count"]}
    state["leader_epoch_fence"] = max(state["leader_epoch_fence"], fields["leader_epoch"])
    state["state_batches"] = combine(state["state_batches"], fields["state_batches"], state["start_offset"])
    return state


def combine(batches: list[Fields], new_batches: list[Fields], start_offset: int) -> list[Fields]:
    """Give each offset from the start offset on the highest (delivery count, delivery state) of all that cover it.

    Those that were there overlap nothing, so only where new ones reach them, or join them, there is anything to compare.
    """
    begin = min((batch["first_offset"] for batch in new_batches), default=0) - 1
    end = max((batch["last_offset"] for batch in new_batches), default=-1) + 1
    kept: list[Fields] = []
    together = [*new_batches]
    for batch in batches:
        is_apart = batch["last_offset"] < begin or batch["first_offset"] > end
        (kept if is_apart and batch["first_offset"] >= start_offset else together).append(batch)
    edges = {
        max(edge, start_offset) for batch in together for edge in (batch["first_offset"], batch["last_offset"] + 1)
    }
    waiting = sorted(together, key=by_first_offset, reverse=True)
    covering: list[tuple[int, int, int, Fields]] = []  # a heap, the highest first; the third number tells equals apart
    combined: list[Fields] = []
    for first, next_first in pairwise(sorted(edges)):
        while waiting and waiting[-1]["first_offset"] <= first:
            batch = waiting.pop()
            heappush(covering, (-batch["delivery_count"], -batch["delivery_state"], len(waiting), batch))
        while covering and covering[0][-1]["last_offset"] < first:
            heappop(covering)
        if not covering:
            continue
        best = covering[0][-1]
        joined = {**best, "first_offset": combined[-1]["first_offset"], "last_offset": first - 1} if combined else None
        if joined is not None and joined == combined[-1]:
            first = combined.pop()["first_offset"]
        combined.append({**best, "first_offset": first, "last_offset": next_first - 1})
    return sorted(kept + combined, key=by_first_offset)


def by_first_offset(batch: Fields) -> int:
    """Return what batches are in the order of."""
    return int(batch["first_offset"])


class StateReader:
    """Folds the records of all log partitions into the states of their share partitions."""

    def __init__(self, schemas: Path = SCHEMAS) -> None:
        self.states: dict[tuple[str, bytes, int], Fields] = {}
        self.void_records = 0
        self._objects = SingleObjects(schemas)
        self._readers: dict[int, WhoCounts] = {}
        #: By share partition: the log partition, and the offset of the newest snapshot in it.
        self._snapshots: dict[tuple[str, bytes, int], tuple[int, int]] = {}

    def take(
        self, log_partition: int, offset: int, key: bytes | None, value: bytes | None, header: bytes | None
    ) -> None:
        """Take the next record of a log partition."""
        reader = self._readers.setdefault(log_partition, WhoCounts(self._objects, offset))
        was_found = reader.begins_at is not None
        if not reader.counts(offset, key, value, header):
            self.void_records += 1
            return
        if reader.begins_at is not None and not was_found:
            self._forget(log_partition, reader.begins_at)
        if key is None or not key.startswith(b"\xc3\x01"):
            if key is not None and key[:2] in (b"\x00\x00", b"\x00\x01"):
                raise ValueError("This topic holds records in Kafka's own codec; read it with Kafka's own tools.")
            return  # a checkpoint, or a record type of a later version
        share_partition = self._objects.decode(key)[1]
        place = share_partition["group_id"], share_partition["topic_id"], share_partition["partition"]
        name, fields = ("", {}) if value is None else self._objects.decode(value)
        before = self.states.get(place)
        if name == "ShareSnapshot":
            if reader.begins_at is None and self._snapshots.get(place, (0, -1))[1] < reader.checkpoint_offset:
                before = None  # from below the checkpoint, where the log may turn out to have been cut
            self._snapshots[place] = log_partition, offset
        state = None if value is None else fold(before, name, fields)
        if state is not None:
            self.states[place] = state
        else:
            self.states.pop(place, None)

    def _forget(self, log_partition: int, below_offset: int) -> None:
        """Forget what was read below the offset from which a log partition is whole."""
        for place in [*self.states]:
            of_partition, offset = self._snapshots[place]
            if of_partition == log_partition and offset < below_offset:
                del self.states[place]


def read_log(consumer: Consumer, topic: str) -> Iterator[Message]:
    """Yield all records of a topic as it is now, those of one partition in offset order.

    Raises:
        LookupError: it cannot be read: it is not there, no broker answers, or a node of Holdfast does in the place of one.
    """
    try:
        described = consumer.list_topics(topic, timeout=SILENCE_S_MAX).topics[topic]
    except KafkaException as failure:
        raise cannot_be_read(topic, failure.args[0].str()) from None
    if described.error is not None:
        raise cannot_be_read(topic, described.error.str())
    waiting = set(described.partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in waiting])
    heard_s = monotonic()
    while waiting:
        if monotonic() - heard_s > SILENCE_S_MAX:
            raise cannot_be_read(topic, f"No broker gave the rest of {sorted(waiting)} in {SILENCE_S_MAX:.0f} s")
        for message in consumer.consume(1_000, timeout=0.5):
            heard_s = monotonic()
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise cannot_be_read(topic, error.str())


def cannot_be_read(topic: str, why: str) -> LookupError:
    """Return what to raise for a topic that cannot be read."""
    return LookupError(f"The topic {topic} cannot be read: {why}.")


class Failures:
    """What librdkafka says of connections, in the place of its log: the last is the reason where no broker answers."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def take(self, error: KafkaError) -> None:
        """Take what `error_cb` is called with."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the one before says why
            self._last = error

    def text(self) -> str:
        """Return the last one as the end of a line."""
        return "" if self._last is None else f" The last connection: {self._last.str().rstrip('.')}."


def read_properties(bootstrap_server: str, texts: list[str]) -> dict[str, str]:
    """Return what all clients are given, from NAME=VALUE each; raises ValueError where a text is not that."""
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not NAME=VALUE")
    return {"bootstrap.servers": bootstrap_server, **dict(text.split("=", 1) for text in texts)}


def open_consumer(group_id: str, properties: dict[str, str], failures: Failures) -> Consumer:
    """Return a consumer of all that a topic holds; raises ValueError where a property is wrong."""
    settings = {
        "group.id": group_id,  # the client requires it; no group is joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "log_level": 0,
        "error_cb": failures.take,
    }
    try:
        return Consumer({**settings, **properties})
    except KafkaException as refused:
        raise ValueError(refused.args[0].str()) from None
    except TypeError as refused:  # of a property that is a function
        raise ValueError(str(refused)) from None


def main() -> int:
    """Read the topic and print what it says; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="__holdfast_share_state")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of librdkafka")
    options = parser.parse_args()
    failures = Failures()
    try:
        properties = read_properties(options.bootstrap_server, options.property)
        consumer = open_consumer("read-state-example", properties, failures)
    except ValueError as wrong:
        sys.stderr.write(f"--property is wrong: {wrong}.\n")
        return 2
    reader = StateReader()
    try:
        for message in read_log(consumer, options.topic):
            header: Any = dict(message.headers() or ()).get("hf")
            partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
            assert partition is not None
            assert offset is not None
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            reader.take(partition, offset, key, value, header)
    except LookupError as unread:
        consumer.poll(0)  # has what error_cb is called with come
        sys.stderr.write(f"{unread}{failures.text()}\n")
        return 1
    finally:
        consumer.close()
    for (group_id, topic_id, partition), state in sorted(reader.states.items()):
        name = urlsafe_b64encode(topic_id)[:22].decode()
        line = {"group_id": group_id, "topic_id": name, "partition": partition, **state}
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stderr.write(f"{len(reader.states)} share partitions; {reader.void_records} void records were passed over.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
