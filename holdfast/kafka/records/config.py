"""The bounds of a reader of records."""

from typing import NamedTuple


class ReaderConfig(NamedTuple):
    """Bounds of a reader."""

    #: Read up to the last stable offset alone, and list what was aborted below it.
    is_committed: bool = False
    #: Bytes that are read ahead of one partition. The last answer may go beyond it by `partition_bytes_max`, or by a larger batch.
    ahead_bytes_max: int = 2 << 20
    #: Bytes of an answer, and less where the room is small; a single larger batch comes whole.
    answer_bytes_max: int = 8 << 20
    #: Bytes of a partition in an answer, and less where many share the room.
    partition_bytes_max: int = 1 << 20
    #: How long a broker may hold a request at the ends of logs.
    wait_ms: int = 500
    #: Bounds connecting, and an answer beyond the time for which it may be held.
    timeout_ms: int = 30_000
    #: The longest that a broker is left alone because it says so.
    throttle_max_ms: int = 10_000
    #: Before a leader is looked up again.
    retry_backoff_ms: int = 100
