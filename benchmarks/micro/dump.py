"""Microseconds that `holdfast dump` takes to print a record: as a row of a table, and beside it as a line of JSON.

    python -m benchmarks.micro.dump

The records are made here and printed to a file in alternating rounds, so neither Kafka nor a terminal is in the figures. The time is the
least of all rounds; memory is the most that was in use at once, which must not grow with the records.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import count, islice
from tempfile import TemporaryFile
from time import perf_counter

from holdfast.console.commands.dump import entry_data, print_entries
from holdfast.console.show.output import print_json
from holdfast.console.sources.log_reader import LogEntry
from holdfast.console.sources.topic_names import TopicNameCache
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Update

RECORDS = 10_000
ROUNDS = 7


def entries() -> Iterator[LogEntry]:
    """Yield updates of 64 share partitions, without an end."""
    for offset in count():
        batches = (StateBatch(offset, offset + 9, ACKNOWLEDGED, 1), StateBatch(offset + 10, offset + 19, AVAILABLE, 2))
        key = SharePartitionKey(f"orders-workers-{offset % 64}", bytes(16), offset % 8)
        value = Update(offset, 1, offset, offset, batches)
        yield LogEntry(3, offset, 1_769_904_000_000 + offset, "update", "avro", True, 1, offset, 80, key, value, None)


def print_as_table(found: Iterator[LogEntry]) -> None:
    """Print them as `holdfast dump` does."""
    print_entries(found, TopicNameCache(None))


def print_as_json(found: Iterator[LogEntry]) -> None:
    """Print them as `holdfast dump --json` does."""
    for entry in found:
        print_json(entry_data(entry), is_line=True)


def seconds(show: Callable[[Iterator[LogEntry]], None], records: int) -> float:
    """Return how long it takes to print so many records."""
    with TemporaryFile("w") as file, redirect_stdout(file):
        gc.collect()
        began_s = perf_counter()
        show(islice(entries(), records))
        took_s = perf_counter() - began_s
        file.flush()
        size = file.tell()
    assert size > records * 80, "what was to be printed is there"
    return took_s


def most_bytes(show: Callable[[Iterator[LogEntry]], None], records: int) -> int:
    """Return the most memory that printing took above what there was before."""
    tracemalloc.start()
    try:
        seconds(show, records)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> int:
    """Time both, and print them."""
    shows = {"table": print_as_table, "json": print_as_json}
    best = dict.fromkeys(shows, float("inf"))
    for _ in range(ROUNDS):
        for name, show in shows.items():
            best[name] = min(best[name], seconds(show, RECORDS))
    for name, took_s in best.items():
        memory = most_bytes(shows[name], RECORDS // 10), most_bytes(shows[name], RECORDS)
        print(
            f"{name:6}{took_s / RECORDS * 1e6:8.1f} µs a record, {took_s:.2f} s for {RECORDS:,}; "
            f"at most {memory[0] / 1_024:,.0f} KiB for {RECORDS // 10:,} records and {memory[1] / 1_024:,.0f} KiB for {RECORDS:,}"
        )
    print(f"ratio {best['table'] / best['json']:7.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
