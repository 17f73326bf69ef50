"""Errors of the job."""

from __future__ import annotations


class CompactionError(Exception):
    """The job cannot go on; the text says why."""


class TopicMadeAgain(CompactionError):
    """The state topic is not the one that the job began to fold."""


class DamagedFile(CompactionError):
    """A small file of the job's is there and cannot be understood.

    Args:
        path: of the file.
        reason: what is wrong with it, without a full stop.
        cure: what to do, as a sentence without its first capital and full stop.
    """

    def __init__(self, path: str, reason: object, cure: str) -> None:
        super().__init__(f"{path} is damaged ({reason}); {cure}.")


def cure_of_own(path: str) -> str:
    """Return what to do where a file is damaged in the directory that a query has for itself."""
    return f"stop the job and remove {path}, and it reads the log again from its start"
