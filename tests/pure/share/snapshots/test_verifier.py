"""The memory of an owner about the manifests that it has verified."""

from typing import Any, cast

import pytest

from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.entries import EntryKey, ManifestKey
from holdfast.share.snapshots.verifier import PartitionVerifier
from tests.pure.records.logs import LOG_PARTITION
from tests.pure.share.snapshots.world import World, followed, grow, some_log

LOG, KEY = b"l" * 16, SharePartitionKey("workers", b"t" * 16, 0)


def verifier_of_nothing() -> PartitionVerifier:
    unused = cast("Any", None)
    return PartitionVerifier(unused, unused, unused, unused)


@pytest.mark.parametrize(
    ("about", "still_verified"),
    [
        (EntryKey(LOG, KEY, 3), []),
        (EntryKey(LOG, KEY, 4), []),
        (EntryKey(LOG, KEY, 5), [4]),
        (EntryKey(LOG, KEY, 9), [4]),
        (EntryKey(LOG, KEY, 10), [9, 4]),
        (ManifestKey(LOG, 0, 9), [4]),
        (ManifestKey(LOG, 0, 12), [9, 4]),
    ],
)
def test_manifest_stays_verified_until_one_of_its_entries_comes_again(
    about: EntryKey | ManifestKey, still_verified: list[int]
) -> None:
    verifier = verifier_of_nothing()
    verifier.verified = [9, 4]
    verifier.record_read(about, b"whatever it says")
    assert verifier.verified == still_verified


def test_there_is_work_while_anything_waits_to_be_compared_or_verified() -> None:
    for about in (EntryKey(LOG, KEY, 3), ManifestKey(LOG, 0, 9)):
        verifier = verifier_of_nothing()
        assert not verifier.has_work
        verifier.record_read(about, b"whatever it says")
        assert verifier.has_work
    verifier = verifier_of_nothing()
    verifier.end_reached()
    assert verifier.has_work


class FullWorld(World):
    """One that takes no removal while it is full."""

    is_full = False

    def remove(self, partition: int, key: bytes) -> bool:
        return not self.is_full and super().remove(partition, key)


def test_a_removal_that_could_not_be_taken_counts_for_no_rate() -> None:
    world, log = FullWorld(removals_per_second_max=2), some_log()
    job = followed(world, log)
    grow(world, log, job, 8)
    log.log_start = world.partitions[LOG_PARTITION].log_start = len(log.records)
    world.is_full = True
    for ms in (1_000, 0, 0):
        world.pass_time(ms)
    world.is_full = False
    assert world.removed == []
    world.pass_time(0)
    assert len(world.removed) == 2


def test_a_removal_leaves_what_is_verified() -> None:
    verifier = verifier_of_nothing()
    verifier.verified = [9, 4]
    verifier.record_read(EntryKey(LOG, KEY, 3), None)
    assert verifier.verified == [9, 4]
