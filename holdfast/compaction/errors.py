"""Errors of the job."""

from __future__ import annotations

from typing import Final

#: Of a directory that another job writes to at the same time; takes its setting.
OTHER_JOB: Final = (
    "Another job runs with the same {}; stop one of the two, or give each a checkpoint directory of its own."
)


class CompactionError(Exception):
    """What keeps the job from going on; the text says why."""


class TopicRecreated(CompactionError):
    """The state topic does not have the id any more that the job began to fold."""


class LogReplaced(CompactionError):
    """A log partition lost what the job had read, and something else lies there; the fold must begin at the log's start.

    Args:
        log_partition: of the state topic.
        offset: of the record that the job had read last.
        why: a clause about that record.
    """

    def __init__(self, log_partition: int, offset: int, why: str) -> None:
        super().__init__(f"Log partition {log_partition} was read to the record at offset {offset}, which {why}.")
        self.log_partition = log_partition
        self.offset = offset
        self.why = why


class DamagedFile(CompactionError):
    """A small file of the job's that cannot be parsed.

    Args:
        path: of the file.
        reason: what is wrong with it, without a full stop.
        cure: what to do, as a sentence without its first capital and full stop.
    """

    def __init__(self, path: str, reason: object, cure: str) -> None:
        super().__init__(f"{path} is damaged ({reason}); {cure}.")


def cure_of_own(path: str) -> str:
    """Return the cure of a damaged file in the directory of one query."""
    return f"stop the job and remove {path}, and it reads the log again from its start"
