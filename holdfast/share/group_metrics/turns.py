"""Long work in turns with all else that the loop has to do."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yield items; before the first and after each `size` of them the loop has its turn."""
    for number, item in enumerate(items):
        if number % size == 0:
            await asyncio.sleep(0)
        yield item
