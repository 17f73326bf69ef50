"""One broker for all tests of this folder that a process runs."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.real.secured.secured_kafka import PASSWORD, SecuredKafka, secured_kafka


@pytest.fixture(scope="module", autouse=True)
def connections_end_with_their_module() -> Iterator[None]:
    """Collect the connections that still waited for the broker's goodbye; else a later test fails for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredKafka]:
    """Give a Kafka with every way in, and a user that has nothing allowed."""
    with secured_kafka() as kafka:
        kafka.set_password(PASSWORD)
        yield kafka
