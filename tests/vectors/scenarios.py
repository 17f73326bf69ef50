"""The files with one scenario per line: a whole life of one share shard, step by step.

After each step the answer, the records and the redundant offset are compared. The clock is the step's; the first record of a scenario has
offset 0 and each further one the next, which is also its position on the timeline.

A scenario of Kafka 4.3.1 is a log of before: its recorded records are replayed in place of those decided now, and every state that they
lead to is the recorded one. What is decided now may differ where 4.4.0 does, which counts: in a Write, and in a negative epoch.
"""

from __future__ import annotations

from typing import Any

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.records.share.codecs.codec import Codec, decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, Value
from holdfast.runtime.state_machine import Decision
from holdfast.share.decisions import ShareShard
from tests.configs import shard_config
from tests.vectors.cases import take_value
from tests.vectors.fields import Fields, Mismatch, check
from tests.vectors.parity import decide_cold_snapshots, join, last_redundant_offset
from tests.world.records import encode_record

#: Their scenarios are logs of before.
FORMER_VERSIONS = frozenset(("4.3.1",))


class Image(dict[bytes, int]):
    """The metadata of a scenario: topic id to its number of partitions."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the number of partitions of a topic, or None when it is unknown."""
        return self.get(topic_id)


class Scenario:
    """Run the steps of one scenario on our shard."""

    def __init__(self, case: Fields) -> None:
        case.take("id")
        self._is_former = case.take("kafka") in FORMER_VERSIONS
        with case.take_object("config") as fields:
            self._config = shard_config(
                snapshot_update_records_per_snapshot=fields.take("snapshotUpdateRecordsPerSnapshot"),
                codec=Codec.KAFKA,
            )
            self._cold_interval_ms: int = fields.take_if_there("coldPartitionSnapshotIntervalMs", 300_000)
        self._image = _take_image(case)
        #: Every record so far that was not taken back; a record's index is its offset.
        self._log: list[tuple[SharePartitionKey, Value]] = []
        self._shard = ShareShard(self._config)
        self._shard.on_loaded(self._image)
        self._redundant_offset: int | None = None

    def run(self, step: Fields) -> None:
        """Run one step and compare all that is recorded of it."""
        op, now_ms = step.take("op"), step.take("now")
        match op:
            case "metadata":
                self._image = _take_image(step)
                self._shard.on_new_metadata_image(self._image)
            case "reload":
                self._reload()
            case "snapshotColdPartitions":
                self._append(step, _sorted(decide_cold_snapshots(self._shard, now_ms, self._cold_interval_ms)))
            case "cleanupTopics":
                topic_ids = frozenset(map(parse_topic_id, step.take_list("deletedTopicIds")))
                self._append(step, _sorted(self._shard.decide_topic_cleanup(topic_ids)))
            case _:
                self._call(op, step, now_ms)
        check("last redundant offset", self._redundant_offset, step.take("lastRedundantOffset"))

    def _call(self, op: str, step: Fields, now_ms: int) -> None:
        with step.take_object("request") as request, step.take_object("response") as response:
            topic_id, partition = request.take("topicId"), request.take("partition")
            check("topic id of the answer", topic_id, response.take("topicId"))
            check("partition of the answer", partition, response.take("partition"))
            group_id = request.take("groupId")
            if topic_id is None:
                # A request on the wire always has a topic id, so our types have no such case.
                check("records", [], step.take_list("records"))
                _take_all(request, "stateEpoch", "leaderEpoch", "startOffset", "deliveryCompleteCount", "stateBatches")
                _take_all(response, "errorCode", "error", "stateEpoch", "leaderEpoch", "startOffset", "stateBatches")
                _take_all(response, "deliveryCompleteCount")
                return
            key = SharePartitionKey(group_id, parse_topic_id(topic_id), partition)
            is_negative = (
                any(request.get(name, 0) < 0 for name in ("stateEpoch", "leaderEpoch")) and op != "readSummary"
            )
            decision = self._decide(op, key, request, now_ms)
            if self._is_former and is_negative:
                check("error of a negative epoch", decision.response.error_code, ErrorCode.INVALID_REQUEST)
                check("records of a negative epoch", decision.records, ())
                self._check_state(op, key, response)
            else:
                _check_response(op, decision.response, response)
        self._append(step, decision, is_differing=self._is_former and (is_negative or op == "write"))

    def _check_state(self, op: str, key: SharePartitionKey, recorded: Fields) -> None:
        """Compare the state with what a call told of it that is refused now."""
        _take_all(recorded, "error")
        if recorded.take("errorCode") or op != "read":
            _take_all(recorded, "stateEpoch", "startOffset", "stateBatches")
            return
        state = self._shard.state.newest(key)
        assert state is not None
        check("start offset", state.start_offset, recorded.take("startOffset"))
        check("state epoch", state.state_epoch, recorded.take("stateEpoch"))
        check("state batches", join(state.state_batches), join(recorded.take_batches("stateBatches")))

    def _decide(self, op: str, key: SharePartitionKey, request: Fields, now_ms: int) -> Decision:
        take, shard = request.take, self._shard
        match op:
            case "initialize":
                return shard.decide_initialize(key, take("stateEpoch"), take("startOffset"), now_ms)
            case "write":
                return shard.decide_write(
                    key,
                    take("stateEpoch"),
                    take("leaderEpoch"),
                    take("startOffset"),
                    take("deliveryCompleteCount"),
                    request.take_batches("stateBatches"),
                    now_ms,
                )
            case "read":
                return shard.decide_read(key, take("leaderEpoch"), now_ms)
            case "readSummary":
                take("leaderEpoch")
                return shard.decide_summary(key)
            case "delete":
                return shard.decide_delete(key)
            case _:
                raise Mismatch(f"unknown operation {op}")

    def _append(self, step: Fields, decision: Decision, *, is_differing: bool = False) -> None:
        position = len(self._log) - 1
        recorded = [_take_record(fields) for fields in step.take_list("records")]
        records = decision.records
        if not is_differing:
            ours = [(offset, key, _kafkas_fields(value)) for offset, (key, value) in enumerate(records, position + 1)]
            check("records", ours, [(offset, key, _joined(value)) for offset, key, value in recorded])
        if self._is_former:
            records = tuple((key, value) for _, key, value in recorded)
        for offset, (key, value) in enumerate(records, position + 1):
            self._shard.replay(key, value, offset)
        if step.take_if_there("appendFails", False):
            self._shard.revert(position)
            return
        for offset, (key, value) in enumerate(records, position + 1):
            self._commit(key, value, offset)
        self._log += records

    def _commit(self, key: SharePartitionKey, value: Value, offset: int) -> None:
        key_bytes, value_bytes = encode_record(Codec.KAFKA, key, value)
        self._shard.committed(key, value, offset, offset, len(key_bytes) + len(value_bytes or b""))
        if type(value) is not Update:
            self._redundant_offset = last_redundant_offset(self._shard.state.offsets, offset)

    def _reload(self) -> None:
        self._shard = ShareShard(self._config)
        self._redundant_offset = None
        for offset, (key, value) in enumerate(self._log):
            # Kafka's records have no fences; with ours a reload would fence more than Kafka does.
            # So no snapshot stands for those before it, as ours do in a load: every record is replayed.
            _, decoded, _ = decode_record(*encode_record(Codec.KAFKA, key, _kafkas_fields(value)))
            assert decoded is None or isinstance(decoded, Snapshot | Update)
            self._shard.replay(key, decoded, offset)
            self._commit(key, decoded, offset)
        self._shard.on_loaded(self._image)


def run_scenario(case: Fields) -> int:
    """Run a scenario and return how many steps it has."""
    scenario, steps = Scenario(case), case.take_list("steps")
    for number, fields in enumerate(steps):
        with Fields(f"step {number}", fields) as step:
            check("number of the step", number, step.take("step"))
            try:
                scenario.run(step)
            except Mismatch as mismatch:
                raise Mismatch(f"step {number} ({fields.get('op')}): {mismatch}") from mismatch
    return len(steps)


_DATA_FIELDS = {
    "initialize": {},
    "write": {},
    "delete": {},
    "read": {"stateEpoch": "state_epoch", "startOffset": "start_offset", "stateBatches": "state_batches"},
    "readSummary": {
        "stateEpoch": "state_epoch",
        "leaderEpoch": "leader_epoch",
        "startOffset": "start_offset",
        "deliveryCompleteCount": "delivery_complete_count",
    },
}


def _check_response(op: str, ours: Any, recorded: Fields) -> None:
    check("error code", int(ours.error_code), recorded.take("errorCode"))
    check("error", ErrorCode(ours.error_code).name, recorded.take("error"))
    for name, attribute in _DATA_FIELDS[op].items():
        value = join(recorded.take_batches(name)) if name == "stateBatches" else recorded.take(name)
        check(name, getattr(ours, attribute), value)


def _take_image(fields: Fields) -> Image:
    image = Image()
    for topic in fields.take_list("topics"):
        with Fields("topic", topic) as topic_fields:
            image[parse_topic_id(topic_fields.take("topicId"))] = topic_fields.take("partitions")
    return image


def _take_record(record: object) -> tuple[int, SharePartitionKey, Value]:
    with Fields("record", record) as fields:
        with fields.take_object("key") as key_fields:
            key = key_fields.take_key()
        offset, type_name = fields.take("offset"), fields.take("type")
        if type_name == "tombstone":
            check("value of a tombstone", fields.take("value"), None)
            return offset, key, None
        with fields.take_object("value") as value_fields:
            value = take_value(value_fields)
    check("type", "snapshot" if type(value) is Snapshot else "update", type_name)
    return offset, key, value


def _joined(value: Value) -> Value:
    """Return a recorded value in the shape of 4.4.0, which its own have already."""
    return None if value is None else value._replace(state_batches=join(value.state_batches))


def _kafkas_fields(value: Snapshot | Update | None) -> Value:
    if isinstance(value, Snapshot):
        return value._replace(leader_epoch_fence=value.leader_epoch, state_epoch_fence=value.state_epoch)
    return value


def _sorted(decision: Decision) -> Decision:
    """Return the decision with its records in the order of the vectors, because Kafka's is that of a hash map."""

    def order(record: tuple[SharePartitionKey, Value]) -> tuple[bytes, str, int]:
        key = record[0]
        return key.group_id.encode(), format_topic_id(key.topic_id), key.partition

    return decision._replace(records=tuple(sorted(decision.records, key=order)))


def _take_all(fields: Fields, *names: str) -> None:
    for name in names:
        fields.take_if_there(name)
