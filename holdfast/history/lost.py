"""The sentences about changes that are neither in the history nor in the log: commands and the page say them alike."""

from __future__ import annotations


def cut_before(log_partition: int, end: int) -> str:
    """Return the sentence about a gap of the history, in front of an offset."""
    return _sentence(log_partition, f"the log was cut before the job had read what lay below {end}")


def ends_before_log(log_partition: int, end: int, start: int) -> str:
    """Return the sentence about a history that ends before an offset, and a log that begins later."""
    return _sentence(log_partition, f"the history ends before offset {end}, and the log starts at {start}")


def _sentence(log_partition: int, why: str) -> str:
    return (
        f"Log partition {log_partition}: {why}; "
        "what was between is lost, and a share partition is certain again only from its next change on."
    )
