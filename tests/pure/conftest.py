"""Settings of the tests that need nothing: the time of those that ask for it is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.virtual_loop import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give a test that is marked so a loop in which no stall of the machine is seen."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}
