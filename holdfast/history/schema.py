"""The form of the history: Parquet files of every record that counted.

    <history dir>/state_topic_id=<22 characters>/day=<UTC date>/<job>-<number>-<run>-<file>.parquet
    <history dir>/state_topic_id=<22 characters>/day=<UTC date>/joined-<32 characters>.parquet

A day is that of the record's timestamp in the log. A batch of a job is written next to the days, in a directory that readers ignore
(its name begins with an underscore). Then its files are renamed into their days, one by one, the earlier days first.
`compaction.history.joining` puts one file in the place of several of a day, and `covered` describes the rest.
A record is there once per job that folded it. A job leaves out what is there already, so twice only if two jobs ran at once,
or while files are joined: a reader takes one row of each (state_topic_id, log_partition, offset, kind), and any will do.
A row of the kind `gap` means that the records below its offset and after the row before it are lost.
"""

from collections.abc import Iterable
from hashlib import blake2b
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

#: The kind of a row that is no record: it has neither key nor value, and the time of the record that follows the gap.
GAP: Final = "gap"

#: Ending of the names of the files.
ENDING: Final = ".parquet"
#: How the name of a day's directory begins.
DAY: Final = "day="
#: How the name of a directory begins in which files of a day are joined.
JOINING: Final = "_join-"
_JOINED: Final = "joined"


def batch_file(batch: str, number: int) -> str:
    """Return the name of a file of a batch in a day."""
    return f"{batch}-{number}{ENDING}"


def joined_file(sources: Iterable[str]) -> str:
    """Return the name of the file that has the rows of some others: two jobs that join the same files choose the same name."""
    return f"{_JOINED}-{blake2b('/'.join(sorted(sources)).encode(), digest_size=16).hexdigest()}{ENDING}"


def batch_of(file: str) -> str:
    """Return the batch of a file by its name."""
    return file.removesuffix(ENDING).rpartition("-")[0]
