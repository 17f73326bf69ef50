"""One broker for all tests of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.secured.secured_kafka import PASSWORD, SecuredKafka, secured_kafka


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredKafka]:
    """Give a Kafka with every way in, and a user that has nothing allowed."""
    with secured_kafka() as kafka:
        kafka.set_password(PASSWORD)
        yield kafka
