"""Errors of the job."""


class CompactionError(Exception):
    """The job cannot go on; the text says why."""


class TopicMadeAgain(CompactionError):
    """The state topic is not the one that the job began to fold."""
