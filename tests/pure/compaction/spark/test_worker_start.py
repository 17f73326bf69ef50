"""Spark gives Python ten seconds to start; a busy machine needs more, and the job tries again."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

pytest.importorskip("pyspark")

from holdfast.compaction.errors import CompactionError
from holdfast.compaction.spark.worker_start import TOO_SLOW, run_with_slow_starts

SLOW = CompactionError(f"The query ended: [STREAM_FAILED] {TOO_SLOW}.")


class Query:
    """Ends in the given ways, one after the other."""

    def __init__(self, *ends: bool | Exception) -> None:
        self.ends = list(ends)

    def run(self) -> bool:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


@pytest.mark.parametrize("is_all_done", [True, False])
def test_a_query_whose_python_starts_too_slowly_is_run_again(is_all_done: bool) -> None:
    query = Query(SLOW, SLOW, is_all_done, True)
    with capture_logs() as lines:
        assert run_with_slow_starts(query.run, 3) is is_all_done
    assert [line["attempt"] for line in lines] == [1, 2]
    assert query.ends == [True]


@pytest.mark.parametrize("attempts_max", [1, 3])
def test_the_tries_are_bounded(attempts_max: int) -> None:
    query = Query(*[SLOW] * 5)
    with pytest.raises(CompactionError, match=TOO_SLOW):
        run_with_slow_starts(query.run, attempts_max)
    assert len(query.ends) == 5 - attempts_max


def test_another_failure_is_reported_at_once() -> None:
    query = Query(CompactionError("no topic"), True)
    with pytest.raises(CompactionError, match="no topic"):
        run_with_slow_starts(query.run, 3)
    assert query.ends == [True]
