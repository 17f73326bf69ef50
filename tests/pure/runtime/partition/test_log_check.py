"""The findings of a load, and the checkpoint by which an admin accepts them."""

import pytest

from holdfast.records.log.checkpoint import Checkpoint, Placement
from holdfast.records.log.header import encode_header
from holdfast.runtime.errors import Alarm, LoadFailed
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.settings import LogIdentity

OURS = LogIdentity("cluster", b"t" * 16, 50)


def checkpoint(log: LogIdentity = OURS, reason: str | None = None) -> Checkpoint:
    return Checkpoint(1, b"a" * 16, "b", 1, *log[:3], reason, placement=log.placement)


@pytest.fixture
def check() -> LogCheck:
    return LogCheck(7, OURS)


def finding(check: LogCheck) -> str:
    assert isinstance(check.finding, Alarm)
    return str(check.finding)


def test_checkpoint_of_this_log_is_fine(check: LogCheck) -> None:
    assert not check.judge_checkpoint(checkpoint(), 0)
    assert check.finding is None


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (OURS._replace(cluster_id="x"), "names cluster_id x where this log has cluster; `holdfast partitions accept 7"),
        (
            OURS._replace(topic_id=b"\x01" * 16),
            f"names topic_id {'01' * 16} where this log has {'74' * 16}; `holdfast partitions accept 7",
        ),
        (
            OURS._replace(partition_count=49),
            "names partition_count 49 where this log has 50; copy the log to a topic with that number",
        ),
        (
            OURS._replace(placement=Placement.BY_TOPIC_PARTITION),
            "names placement by topic partition where this log has by group; nodes with different placements have written it",
        ),
    ],
)
@pytest.mark.parametrize("reason", [None, "restored"])
def test_checkpoint_of_another_log_is_an_alarm(
    check: LogCheck, log: LogIdentity, text: str, reason: str | None
) -> None:
    assert not check.judge_checkpoint(checkpoint(log, reason), 3)
    assert "the checkpoint at offset 3 " + text in finding(check)


@pytest.mark.parametrize("header", [None, b"", b"header"])
@pytest.mark.parametrize("log_start", [0, 5])
def test_foreign_record_before_the_first_checkpoint_is_an_alarm(
    check: LogCheck, log_start: int, header: bytes | None
) -> None:
    check.judge_before_checkpoint(LogRecord(5, b"key", b"value", header), log_start)
    assert "offset 5 has no `hf` header" in finding(check)


@pytest.mark.parametrize(("log_start", "is_alarm"), [(0, False), (1, True)])
def test_log_without_a_checkpoint_at_its_start_is_an_alarm_if_it_was_cut(
    check: LogCheck, log_start: int, is_alarm: bool
) -> None:
    check.judge_before_checkpoint(LogRecord(5, b"key", b"value", encode_header(1, 0)), log_start)
    assert (check.finding is not None) is is_alarm
    empty = LogCheck(7, OURS)
    empty.judge_start(log_start)
    assert (empty.finding is not None) is is_alarm


def test_first_finding_is_kept(check: LogCheck) -> None:
    first = LoadFailed("first")
    check.found(first)
    check.found(LoadFailed("second"))
    check.judge_checkpoint(checkpoint(OURS._replace(partition_count=49)), 3)
    assert check.finding is first


def test_acceptance_clears_what_was_found_before_it_and_nothing_after(check: LogCheck) -> None:
    check.found(LoadFailed("before"))
    assert check.judge_checkpoint(checkpoint(reason="broken disk"), 3)
    assert check.finding is None
    check.found(LoadFailed("after"))
    assert str(check.finding) == "after"


def test_lost_end_is_accepted_only_where_it_was_lost_or_later(check: LogCheck) -> None:
    check.judge_lost_end(lost_from=5, committed_offset=9)
    assert "ended at 5 but was committed to 9" in finding(check)
    assert check.judge_checkpoint(checkpoint(reason="earlier"), 4)
    assert check.finding is not None
    assert check.judge_checkpoint(checkpoint(reason="now"), 5)
    assert check.finding is None
