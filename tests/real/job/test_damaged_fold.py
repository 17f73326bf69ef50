"""A bit that flips on a broker's disk, as the Spark job finds it: the fold of one log partition stops, and the others are folded."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.compaction.errors import CompactionError
from tests.pure.records.share.snapshot_store.test_folding import load
from tests.real.job.folded_logs import FoldedLogs
from tests.real.job.test_compaction import assert_as_loaded, assert_history_holds_each_change_once
from tests.real.log.test_damage import batches_in, flip_a_bit
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


def test_a_damaged_batch_stops_the_fold_of_its_log_partition_alone_until_it_is_whole_again(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        snapshots = NewTopic(
            "snapshots", 2, 1, config={"cleanup.policy": "compact", "max.message.bytes": str(64 << 20)}
        )
        for made in admin.create_topics([NewTopic("state", 2, 1), snapshots]).values():
            made.result(PATIENCE_S)
        logs = FoldedLogs(kafka.bootstrap_servers, "state", "snapshots", tmp_path, 2)
        logs.grow(60)
        logs.fold()
        folded_to = logs.committed()
        (segment,) = (tmp_path / "kafka").rglob("state-1/00000000000000000000.log")
        batch_count = batches_in(segment)
        logs.grow(60)
        kafka.stop()
        whole, offset = flip_a_bit(segment, batch_count)
        kafka.restart()

        with pytest.raises(CompactionError) as refused:
            logs.fold()
        assert str(refused.value).startswith(
            f"The job cannot read log partition 1 (the record batch at offset {offset} is damaged: "
        )
        assert logs.committed() == [len(logs.logs[0].records), folded_to[1]], "nothing of the damaged one is given up"
        position, _, _ = load(logs.logs[0].kept())
        entries = logs.snapshots()[0]
        assert entries.manifest(entries.manifest_offsets()[0]).position == position, (
            "the other one is folded to its end"
        )

        segment.write_bytes(whole)
        logs.fold()
        assert_as_loaded(logs)
        assert_history_holds_each_change_once(logs)
