"""A generated log in a real state topic of one partition, and what a job that folds it leaves in a snapshot topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Producer

from holdfast.records.log.header import HEADER_NAME
from holdfast.records.share.snapshot_store.folding import NEW, RawRecord, fold
from tests.pure.records.logs import DictStore
from tests.waiting import PATIENCE_S


def write_records(kafka: str, topic: str, records: Iterable[RawRecord]) -> None:
    """Append records of a log to the one partition of a topic, whose next offset is that of the first."""
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for _, key, value, header in records:
        headers: dict[str, str | bytes | None] = {} if header is None else {HEADER_NAME: header}
        producer.produce(topic, value, key, partition=0, headers=headers)
    assert producer.flush(PATIENCE_S) == 0


def write_snapshots(kafka: str, topic: str, written: Mapping[bytes, bytes | None]) -> None:
    """Append entries, manifests and nulls to the one partition of a topic."""
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for key, value in written.items():
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def fold_batches(state_topic_id: bytes, *batches: list[RawRecord]) -> dict[bytes, bytes]:
    """Return what a job writes that folds these batches one after the other; the last manifest comes last."""
    written: dict[bytes, bytes] = {}
    mark, store = NEW, DictStore()
    for batch in batches:
        folded = fold(state_topic_id, 0, 1, mark, store, batch)
        mark = folded.mark
        written |= dict(folded.entries)
        if folded.manifest is not None:
            written |= dict([folded.manifest])
    return written
