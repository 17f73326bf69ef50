"""The log start in one reading of a log partition: cuts of any owner, and the bytes that they remove."""

import pytest

from holdfast.runtime.partition.reading import Reading
from tests.simulated.memory_log import MemoryTopic


@pytest.fixture
def reading() -> Reading:
    return Reading(0, MemoryTopic().identity, 1, 0)


@pytest.mark.parametrize(
    ("known", "offset"),
    [
        ("log_start", 5),
        ("restored_from_offset", 9),
        ("cut_offset", 12),
    ],
)
def test_a_log_start_above_all_that_is_known_is_not_ours(reading: Reading, known: str, offset: int) -> None:
    setattr(reading, known, offset)
    reading.serve()
    reading.records_deleted(offset)
    assert not reading.is_missing_records()
    reading.records_deleted(offset + 1)
    assert reading.is_missing_records()


def test_a_cut_that_an_owner_before_us_named_is_known(reading: Reading) -> None:
    reading.serve()
    reading.ownership.cut_offset = 7
    reading.records_deleted(7)
    assert not reading.is_missing_records()
    reading.records_deleted(8)
    assert reading.is_missing_records()


def test_bytes_below_our_checkpoint_are_cut_when_log_starts_there(reading: Reading) -> None:
    """The log start may be known before the checkpoint: another program may have emptied the log before it was appended."""
    reading.bytes_counted = 100
    reading.records_deleted(3)
    assert reading.bytes_cut == 0
    reading.found_own_checkpoint(3)
    assert reading.bytes_cut == 100
    reading.bytes_counted = 150
    reading.found_own_checkpoint(9)
    assert reading.bytes_cut == 100
    reading.records_deleted(9)
    assert reading.bytes_cut == 150


def test_a_log_start_that_a_broker_tells_late_takes_nothing_back(reading: Reading) -> None:
    reading.log_start_moved(7)
    reading.log_start_moved(3)
    assert reading.log_start_seen == 7
