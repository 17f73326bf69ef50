"""Rows of the history, made as columns, say what each record says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import pandas as pd

from holdfast.compaction.spark.fold_processor import INPUT_COLUMNS, OUTPUT, history_columns
from holdfast.records.codecs.codec import decode_key, peek_kind
from holdfast.records.header import decode_header
from holdfast.records.keys import format_topic_id
from holdfast.records.snapshot_store.folding import NEW, RawRecord, fold
from tests.pure.records.logs import UNCUT, DictStore, LogWriter


@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_columns_say_what_each_record_says(random: Random, moves: int) -> None:
    log = LogWriter(Random(random.random()))
    for move in random.choices(UNCUT, k=moves):
        log.do(move)
    records = list(log.records)
    changes = fold(bytes(16), 7, 8, NEW, DictStore(), records).changes
    if not changes:
        return
    frame = pd.DataFrame(
        [(7, record.offset, 10 * record.offset, *record[1:]) for record in records], columns=INPUT_COLUMNS
    )
    found = history_columns(7, frame.take(changes))
    assert found.columns.tolist() == OUTPUT.names
    assert list(found.itertuples(index=False, name=None)) == [row_of(records[index]) for index in changes]


def row_of(record: RawRecord) -> tuple[object, ...]:
    offset, key, value, header = record
    assert key is not None
    assert header is not None
    group_id, topic_id, partition = decode_key(key)
    name = group_id, format_topic_id(topic_id), partition
    return (7, offset, 10 * offset, *decode_header(header), peek_kind(key, value).name.lower(), *name, key, value)
