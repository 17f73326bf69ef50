"""The event loops of simulated processes."""

from __future__ import annotations

import asyncio

from tests.simulated.cluster.timeline import Timeline


def test_a_task_that_was_cancelled_before_its_process_ends_is_ended_with_it() -> None:
    loop = Timeline().make_loop()

    async def end_slowly() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)

    task = loop.create_task(end_slowly())
    loop.turn()
    task.cancel()
    loop.turn()
    assert loop.tasks
    loop.dispose()
    assert not loop.tasks


def test_nothing_is_left_of_a_process_that_makes_tasks_while_it_ends() -> None:
    """Such a task would be collected later, and its end would be written to standard error: the loop is closed by then."""
    loop = Timeline().make_loop()

    async def begin_anew() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            loop.create_task(asyncio.sleep(1))

    loop.create_task(begin_anew())
    loop.turn()
    assert loop.tasks
    loop.dispose()
    assert not loop.tasks
