"""Signals that end a command, as an event that it polls and waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals, signal
from threading import Event, Thread


@contextmanager
def set_by(*numbers: Signals, event: Event | None = None) -> Iterator[Event]:
    """Give an event that these signals set, until the block ends; they do nothing else meanwhile.

    Only the main thread may do so.

    Args:
        numbers: the signals.
        event: the one to set; None: a new one.
    """
    event = event or Event()

    def receive(*_: object) -> None:
        # A handler interrupts its thread anywhere, even where the thread holds the lock of this very event. The lock is not
        # re-entrant, so `set` would wait for ever.
        Thread(target=event.set, name="holdfast-signal").start()

    earlier = {number: signal(number, receive) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in earlier.items():
            signal(number, handler)


@contextmanager
def one_interrupt(*numbers: Signals) -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals, until the block ends; those after it do nothing.

    So what was begun can be ended in good order, however often Ctrl-C is pressed. Only the main thread may do so.
    """

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal(number, lambda *_: None)
        raise KeyboardInterrupt

    earlier = {number: signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal(number, handler)
