"""The form of the history: Parquet files of every record that counted.

    <history dir>/state_topic_id=<22 characters>/day=<UTC date>/batch_id=<job>-<number>-<run>/*.parquet

A day is that of the record's timestamp in the log. A batch of a job is written beside, under a name that readers ignore
(it begins with an underscore), and then renamed day by day; nothing has the new name before. `coverage` describes the rest.
A record is there once per job that folded it. A job leaves out what is there already, so twice only if two jobs ran at once:
a reader takes one row of each (state_topic_id, log_partition, offset, kind), and any will do.
A row of the kind `gap` means that the records below its offset and behind the row before it are lost.
"""

from typing import Final

#: Columns of the files and their types as Spark SQL names them, in this order. The directories add three more.
COLUMNS: Final = {
    "log_partition": "int",
    "offset": "bigint",
    #: When the record was appended, by the broker's clock.
    "timestamp_ms": "bigint",
    "owner_epoch": "int",
    "sequence": "bigint",
    #: One of `KINDS`, or `GAP`.
    "kind": "string",
    "group_id": "string",
    #: Unpadded base64url, 22 characters.
    "topic_id": "string",
    "partition": "int",
    #: As in the log, in either codec.
    "key": "binary",
    "value": "binary",
}

SNAPSHOT: Final = "snapshot"
UPDATE: Final = "update"
TOMBSTONE: Final = "tombstone"
KINDS: Final = (SNAPSHOT, UPDATE, TOMBSTONE)

#: The kind of a row that is no record: it has neither key nor value, and the time of the record behind the gap.
GAP: Final = "gap"
