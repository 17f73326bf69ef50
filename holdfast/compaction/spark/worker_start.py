"""Retries of a query that Spark gave up because Python was slow to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from pyspark.errors import StreamingQueryException

from holdfast.compaction.errors import CompactionError

#: Spark's words for a Python process that has not connected within ten seconds of its start, a bound that is fixed.
TOO_SLOW: Final = "Python worker failed to connect back"

_log = structlog.get_logger(__name__)


def run_with_slow_starts(run_query: Callable[[], bool], attempts_max: int) -> bool:
    """Run a query, and again while Spark gives it up because Python starts slowly, as on a busy machine.

    Such a query has folded nothing, so nothing is lost by another attempt.

    Args:
        run_query: runs it to its end, and returns whether all is done.
        attempts_max: bound of attempts, the first included.

    Raises:
        CompactionError: the query failed for another reason, or every attempt failed.
        StreamingQueryException: the same.
    """
    for attempt in range(1, attempts_max):
        try:
            return run_query()
        except (CompactionError, StreamingQueryException) as error:
            if TOO_SLOW not in str(error):
                raise
            _log.warning("python_start_retried", attempt=attempt, attempts_max=attempts_max)
    return run_query()
