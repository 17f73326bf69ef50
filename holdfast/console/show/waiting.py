"""The display of a command that waits for brokers: after a while, a line on standard error that names them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from holdfast.console.show.output import say

#: Brokers that answer need less, also where they are busy.
_SAY_AFTER_S: Final = 2.0


@contextmanager
def waiting_for(bootstrap_servers: str) -> Iterator[None]:
    """Say whom the block waits for, once, if it takes longer than brokers that answer need."""
    timer = Timer(_SAY_AFTER_S, say, (f"Waiting for Kafka at {bootstrap_servers} …",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
