"""Errors of the job."""

from __future__ import annotations


class CompactionError(Exception):
    """What keeps the job from going on; the text says why."""


class TopicRecreated(CompactionError):
    """The state topic does not have the id any more that the job began to fold."""


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
