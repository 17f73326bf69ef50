"""Print the state of every share partition as JSON lines, read from a Holdfast snapshot topic as any program can.

It uses confluent-kafka, fastavro and the schema files, and of Holdfast nothing but what the example beside it has: copy what you need.
docs/log-format.md explains the rules. What came after the snapshots is in the log only, which `read_state.py` reads as a whole.

Example: python examples/read_snapshots.py --bootstrap-server 127.0.0.1:9092
"""

import argparse
import json
import sys
from base64 import urlsafe_b64encode
from hashlib import blake2b
from struct import pack, unpack
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from read_state import SCHEMAS, SILENCE_S_MAX, Failures, Fields, SingleObjects, open_consumer, read_log, read_properties

Place = tuple[str, bytes, int]


class Snapshots:
    """What a snapshot topic holds about one log partition."""

    def __init__(self, state_topic_id: bytes) -> None:
        self._state_topic_id = state_topic_id
        #: Share partition, and covered offset, to the entry and its digest.
        self._entries: dict[Place, dict[int, tuple[Fields, int]]] = {}
        self._manifests: dict[int, Fields] = {}

    def take(self, objects: SingleObjects, key: bytes, value: bytes | None) -> None:
        """Take the next record; a null removes an entry."""
        name, fields = objects.decode(key)
        if fields["state_topic_id"] != self._state_topic_id:
            return  # of a topic that is gone
        covered_offset = fields["covered_offset"]
        if name == "ShareManifestKey":
            if value is None:
                self._manifests.pop(covered_offset, None)
            else:
                self._manifests[covered_offset] = objects.decode(value)[1]
            return
        entries = self._entries.setdefault((fields["group_id"], fields["topic_id"], fields["partition"]), {})
        if value is None:
            entries.pop(covered_offset, None)
        else:
            digest = int.from_bytes(blake2b(key + value, digest_size=16).digest(), "big")
            entries[covered_offset] = objects.decode(value)[1], digest

    def consistent(self, log_start: int) -> tuple[int, Fields, dict[Place, Fields]] | None:
        """Return the newest offset at which all is known, its manifest, and the states at it; None: read the log instead."""
        for covered_offset, manifest in sorted(self._manifests.items(), reverse=True):
            states, digest_sum = {}, 0
            for place, entries in self._entries.items():
                offsets = [offset for offset in entries if log_start <= offset <= covered_offset]
                entry, digest = entries[max(offsets)] if offsets else ({"state": None}, 0)
                if entry["state"] is not None:  # null: the share partition is deleted
                    states[place] = entry["state"]
                    digest_sum += digest
            is_exact = (len(states), (digest_sum % (1 << 128)).to_bytes(16, "big")) == (
                manifest["live_count"],
                manifest["digest_sum"],
            )
            if covered_offset >= log_start and is_exact:
                return covered_offset, manifest, states
        return None


def read_topic(consumer: Consumer, topic: str, state_topic_id: bytes) -> dict[int, Snapshots]:
    """Return what there is about each log partition."""
    objects = SingleObjects(SCHEMAS)
    found: dict[int, Snapshots] = {}
    for message in read_log(consumer, topic):
        key, value, partition = message.key(), message.value(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        assert not isinstance(value, str)
        found.setdefault(partition, Snapshots(state_topic_id)).take(objects, key, value)
    return found


def is_same_log(consumer: Consumer, topic: str, partition: int, covered_offset: int, manifest: Fields) -> bool:
    """Return whether the record at the covered offset is the one that the manifest ends with."""
    consumer.assign([TopicPartition(topic, partition, covered_offset)])
    message = consumer.poll(SILENCE_S_MAX)
    if message is None or message.error() is not None or message.offset() != covered_offset:
        return False
    header: Any = dict(message.headers() or ()).get("hf", bytes(13))
    # If it is a checkpoint, its attempt id is that of the manifest too; epoch and sequence tell all others apart.
    return unpack(">biq", header)[1:] == (manifest["owner_epoch"], manifest["next_sequence"] - 1)


def topic_id_of(properties: dict[str, str], topic: str) -> bytes:
    """Return the 16 bytes of a topic's id; raises LookupError where there is none."""
    admin = AdminClient({"log_level": 0, **properties})
    try:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=SILENCE_S_MAX)[topic]
        topic_id: Any = described.result().topic_id
    except KafkaException as error:
        raise LookupError(f"The topic {topic} cannot be read: {error.args[0].str()}.") from error
    return pack(">qq", topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())


def main() -> int:
    """Read the topic and print what it says; returns the exit code, 1 where the snapshots of a log partition do not suffice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="holdfast-share-snapshots")
    parser.add_argument("--state-topic", default="__holdfast_share_state")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of librdkafka")
    options = parser.parse_args()
    failures = Failures()
    try:
        properties = read_properties(options.bootstrap_server, options.property)
        consumer = open_consumer("read-snapshots-example", properties, failures)
    except ValueError as wrong:
        sys.stderr.write(f"--property is wrong: {wrong}.\n")
        return 2
    missing = []
    try:
        topics = read_topic(consumer, options.topic, topic_id_of(properties, options.state_topic))
        for log_partition, snapshots in sorted(topics.items()):
            # Looked up after the topic was read: what lies before may be deleted by now.
            watermarks: Any = consumer.get_watermark_offsets(
                TopicPartition(options.state_topic, log_partition), timeout=SILENCE_S_MAX
            )
            found = snapshots.consistent(watermarks[0])
            if found is None or not is_same_log(consumer, options.state_topic, log_partition, *found[:2]):
                missing.append(log_partition)
                continue
            covered_offset, _, states = found
            for (group_id, topic_id, partition), state in sorted(states.items()):
                name = urlsafe_b64encode(topic_id)[:22].decode()
                place = {"log_partition": log_partition, "as_of_offset": covered_offset}
                line = {"group_id": group_id, "topic_id": name, "partition": partition, **place, **state}
                sys.stdout.write(json.dumps(line) + "\n")
    except LookupError as no_topic:
        consumer.poll(0)  # has what error_cb is called with come
        sys.stderr.write(f"{no_topic}{failures.text()} Without snapshots, read the log itself.\n")
        return 1
    finally:
        consumer.close()
    if missing:
        sys.stderr.write(f"The snapshots of log partitions {missing} do not suffice; read the log itself.\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
