"""Microseconds per operation of what each record of the log passes through.

    python -m benchmarks.micro.records                 a table
    python -m benchmarks.micro.records --json FILE     and the numbers with versions and machine, to compare two commits

Each number is the best of several rounds, each after a garbage collection and with the collector off: the least disturbed
run says most about the code. Before an operation is timed its answer is checked.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import fastavro

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.log.fencing import START, step
from holdfast.records.log.header import decode_header, encode_header
from holdfast.records.log.single_object import SingleObject
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.codec import (
    Codec,
    Kind,
    decode_key,
    decode_record,
    encode_key,
    peek_kind,
    value_encoder,
)
from holdfast.records.share.combining import combine
from holdfast.records.share.keys import SharePartitionKey, format_key, java_string_hash, log_partition
from holdfast.records.share.redundant_offsets import RedundantOffsetTracker
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot, Update

ROUNDS = 7
ROUND_MS = 40

KEY = SharePartitionKey("orders-eu-west", bytes(range(16)), 12)
BATCHES = (StateBatch(1000110, 1000119, 2, 1), StateBatch(1000120, 1000129, 0, 2), StateBatch(1000135, 1000139, 4, 5))
SNAPSHOT = Snapshot(3, 2, 5, 1000110, 4, 1735689600000, 1735689600000, BATCHES, 5, 2)
UPDATE = Update(3, 5, 1000110, 4, BATCHES)
STATE = ShareState(*SNAPSHOT, update_count=0)._replace(state_batches=combine((), BATCHES, -1))
CHECKPOINT = Checkpoint(1, bytes(16), "node-1", 1, "cluster", bytes(16), 50, None)


class Operation(NamedTuple):
    """What is timed, and what it must answer."""

    name: str
    run: Callable[[], Any]
    answer: Any


def codec_operations(codec: Codec) -> list[Operation]:
    """Return the operations of one codec."""
    name = codec.value
    snapshot_key, update_key = encode_key(codec, KEY, Kind.SNAPSHOT), encode_key(codec, KEY, Kind.UPDATE)
    snapshot, update = value_encoder(codec)(SNAPSHOT), value_encoder(codec)(UPDATE)
    return [
        Operation(f"{name}: encode key", partial(encode_key, codec, KEY, Kind.UPDATE), update_key),
        Operation(f"{name}: encode update of 3 batches", partial(value_encoder(codec), UPDATE), update),
        Operation(f"{name}: encode snapshot of 3 batches", partial(value_encoder(codec), SNAPSHOT), snapshot),
        Operation(f"{name}: decode key", partial(decode_key, update_key), KEY),
        Operation(f"{name}: decode record, update", partial(decode_record, update_key, update), (KEY, UPDATE, 0)),
        Operation(
            f"{name}: decode record, snapshot", partial(decode_record, snapshot_key, snapshot), (KEY, SNAPSHOT, 0)
        ),
        Operation(f"{name}: peek at the kind", partial(peek_kind, update_key, update), Kind.UPDATE),
    ]


def fastavro_operations() -> list[Operation]:
    """Return fastavro's share of the Avro codec, for comparison; to and from our types comes on top."""
    schema = SingleObject("share_update")
    fields = UPDATE._asdict() | {"state_batches": [batch._asdict() for batch in BATCHES]}
    data = avro.encode_value(UPDATE)
    return [
        Operation("fastavro alone: encode update from a dict", partial(schema.encode, fields), data),
        Operation("fastavro alone: decode update to a dict", partial(schema.decode, "value", data), fields),
    ]


def combine_operations() -> list[Operation]:
    """Return combining by what the incoming batches meet."""
    state = combine((), BATCHES, -1)
    long = combine((), [StateBatch(20 * n, 20 * n + 9, 0, 1) for n in range(200)], -1)
    after, tail = (StateBatch(1000140, 1000149, 0, 1),), (StateBatch(1000135, 1000139, 2, 6),)
    after_long, tail_of_long = (StateBatch(4000, 4009, 0, 1),), (StateBatch(3980, 3989, 2, 2),)
    touching = (StateBatch(1000140, 1000149, 4, 5),)
    three = (StateBatch(1000140, 1000149, 0, 1), StateBatch(1000150, 1000159, 2, 1), StateBatch(1000160, 1000169, 0, 1))
    overlapping = tuple(StateBatch(1000100 + 3 * n, 1000109 + 3 * n, 2 * (n % 3), n % 4) for n in range(12))
    return [
        Operation("combine: 1 batch into nothing", partial(combine, (), after, 100), after),
        Operation("combine: 1 batch behind 3", partial(combine, state, after, 1000110), (*BATCHES, *after)),
        Operation("combine: 3 batches behind 3", partial(combine, state, three, 1000110), (*BATCHES, *three)),
        Operation("combine: 1 batch behind 200", partial(combine, long, after_long, -1), (*long, *after_long)),
        Operation(
            "combine: the start offset cuts, 1 behind", partial(combine, state, after, 1000120), (*BATCHES[1:], *after)
        ),
        Operation("combine: replace the last of 3", partial(combine, state, tail, 1000110), (*BATCHES[:2], *tail)),
        Operation(
            "combine: replace the last of 200", partial(combine, long, tail_of_long, -1), (*long[:-1], *tail_of_long)
        ),
        Operation(
            "combine: prolong the last of 3",
            partial(combine, state, touching, 1000110),
            (*BATCHES[:2], StateBatch(1000135, 1000149, 4, 5)),
        ),
        Operation(
            "combine: 12 that overlap each other",
            partial(combine, (), overlapping, -1),
            combine(overlapping[:6], overlapping[6:], -1),
        ),
    ]


def other_operations() -> list[Operation]:
    """Return replay, keys, headers and the reader's rule."""
    text = format_key(KEY)
    update = UPDATE._replace(state_batches=(StateBatch(1000140, 1000149, 0, 1),))
    updated = STATE._replace(state_batches=(*BATCHES, *update.state_batches), update_count=1)
    header = encode_header(7, 123456)
    position, _ = step(START, 7, 123455, CHECKPOINT)
    tracker = RedundantOffsetTracker()
    return [
        Operation("replay: update, 1 batch behind 3", partial(replay, STATE, update, 500), updated),
        Operation("replay: snapshot", partial(replay, STATE, SNAPSHOT, 500), STATE),
        Operation("java hash of 40 characters", partial(java_string_hash, text), java_string_hash(text)),
        Operation("log partition of a key", partial(log_partition, KEY, 50), log_partition(KEY, 50)),
        Operation("header: encode", partial(encode_header, 7, 123456), header),
        Operation("header: decode", partial(decode_header, header), (7, 123456)),
        Operation(
            "who counts: one record",
            partial(step, position, 7, 123456, None),
            (position._replace(next_sequence=123457), True),
        ),
        Operation("offsets: one snapshot", partial(tracker.update, KEY, 1, False), None),
    ]


def time_us(run: Callable[[], Any]) -> float:
    """Return the microseconds one call takes, the best of several rounds."""
    count = 1
    while (taken := _seconds(run, count)) * 1000 < ROUND_MS / 4:
        count *= 2
    count = max(1, int(count * ROUND_MS / 1000 / taken))
    return min(_seconds(run, count) for _ in range(ROUNDS)) / count * 1e6


def _seconds(run: Callable[[], Any], count: int) -> float:
    gc.collect()
    gc.disable()
    try:
        start = perf_counter()
        for _ in range(count):
            run()
        return perf_counter() - start
    finally:
        gc.enable()


def main(arguments: list[str]) -> int:
    """Check, time and print every operation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    options = parser.parse_args(arguments)
    results = {}
    operations = [
        *codec_operations(Codec.AVRO),
        *codec_operations(Codec.KAFKA),
        *fastavro_operations(),
        *combine_operations(),
        *other_operations(),
    ]
    for name, run, answer in operations:
        if run() != answer:
            print(f"{name}: the answer is {run()!r}, not {answer!r}", file=sys.stderr)
            return 1
        results[name] = time_us(run)
        print(f"{name:46}{results[name]:8.2f} µs")
    if options.json is not None:
        versions = {"python": platform.python_version(), "fastavro": fastavro.__version__}
        machine = {"machine": platform.machine(), "cpus": os.cpu_count()}
        options.json.write_text(json.dumps({"us": results, **versions, **machine}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
