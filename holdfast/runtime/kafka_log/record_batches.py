"""Record batches as a fetch brings them, taken apart and checked.

Source: Apache Kafka's record batch format, magic 2.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final

from holdfast.kafka.aiokafka_parts import MAGIC, read_batch
from holdfast.records.header import find_header
from holdfast.runtime.log import LogRecord, make_log_record

#: base offset, length, leader epoch, magic, crc, attributes, last offset delta, …, record count
BATCH_HEAD: Final = Struct(">qiibIhiqqqhii")
BATCH_HEAD_BYTES: Final = 61
#: A batch's length does not count its base offset and itself.
LENGTH_OFFSET: Final = 12
CONTROL: Final = 0x20


class DamagedBatch(Exception):
    """A record batch cannot be taken apart; the text says why."""


def decode(batch: bytes, from_offset: int) -> Iterator[LogRecord]:
    """Return the records of one whole batch at or behind an offset, to be taken with `take`; none of a control batch.

    Raises:
        DamagedBatch: it is not what was written.
    """
    head = BATCH_HEAD.unpack_from(batch)
    if head[3] != MAGIC:
        raise DamagedBatch(f"its magic is {head[3]}")
    try:
        decoded = read_batch(batch)
        is_whole = decoded is not None and decoded.validate_crc()
        if is_whole and not head[5] & CONTROL:
            return (
                make_log_record((record.offset, record.key, record.value, find_header(record.headers)))
                for record in decoded
                if record.offset >= from_offset
            )
    except Exception as error:  # the library raises what it likes
        raise DamagedBatch(repr(error)) from error
    if not is_whole:
        raise DamagedBatch("its checksum is wrong")
    return iter(())


def take(records: Iterator[LogRecord], count: int, last_offset: int) -> list[LogRecord]:
    """Return the next records of a batch, `count` at most.

    Raises:
        DamagedBatch: they cannot be decompressed or decoded, or lie behind the batch's last offset.
    """
    try:
        found = list(islice(records, count))
        # Whether the batch holds what it says shows at its end, and nothing is told of the last ones before.
        found += islice(records, 1 if found and found[-1].offset == last_offset else 0)
    except Exception as error:  # as above
        raise DamagedBatch(repr(error)) from error
    if found and found[-1].offset > last_offset:
        raise DamagedBatch(f"it ends at offset {last_offset} and holds offset {found[-1].offset}")
    return found
