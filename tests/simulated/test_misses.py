"""The copy of a share partition that is asked in its place."""

from __future__ import annotations

import pytest

from holdfast.delivery.share_partition.batches import DeliveryRun
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.window import Window
from tests.simulated.gateway import misses


@pytest.mark.pure_build("compiled classes do not tell their attributes")
def test_a_copy_leaves_no_attribute_out() -> None:
    made = {"_leader_epoch", "config", "window", "_locks"}
    assert made.union(misses._OF_PARTITION) == set(SharePartition.__slots__)
    assert {"batches", "firsts", "given_up"}.union(misses._OF_WINDOW) == set(Window.__slots__)
    assert {"first", "last", "state", "count"}.union(misses._OF_RUN) == set(DeliveryRun.__slots__)
