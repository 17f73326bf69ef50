"""A signal sets an event, whatever the command does at that moment, and its own handler is there again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from signal import SIGINT, SIGTERM, SIGUSR1, getsignal, signal

from holdfast.console.interrupts import set_by
from tests.waiting import PATIENCE_S

#: A command waits for its event most of the time; on its way into the wait and out of it the thread holds the event's lock.
IN_THE_LOCK = """
import os, signal
from holdfast.console.interrupts import set_by

with set_by(signal.SIGINT) as event:
    with event._cond:
        os.kill(os.getpid(), signal.SIGINT)
    print(event.wait())
"""


def test_a_signal_that_comes_while_the_events_lock_is_held_sets_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_THE_LOCK], capture_output=True, text=True, timeout=PATIENCE_S / 10, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_each_of_the_signals_sets_it_and_their_handlers_come_back() -> None:
    def own(*_: object) -> None:
        raise AssertionError("the handler of before")

    before = {number: signal(number, own) for number in (SIGINT, SIGTERM, SIGUSR1)}
    try:
        for number in (SIGINT, SIGTERM):
            with set_by(SIGINT, SIGTERM) as event:
                assert not event.is_set()
                os.kill(os.getpid(), number)
                assert event.wait(PATIENCE_S)
            assert [getsignal(each) for each in before] == [own] * 3
    finally:
        for number, handler in before.items():
            signal(number, handler)
