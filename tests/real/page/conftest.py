"""A share group with a stuck record."""

from __future__ import annotations

import pytest

from tests.real.page.stuck import PARTITIONS, Stuck, make_stuck
from tests.real.shared_kafka import NewTopicFactory


@pytest.fixture
def stuck(kafka: str, new_topic: NewTopicFactory) -> Stuck:
    """Give a share group on the shared Kafka, of which one record was given back after its fourth delivery."""
    return make_stuck(kafka, new_topic(PARTITIONS))
