"""Imports of much at once, without Python's collector: it would look through all of that several times, and all of it stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Switch the collector off, and then have it leave out what there is by then, for as long as the process lives.

    Without this an eighth of the time that a node takes for its imports is the collector's (benchmarks/findings/node.md, "Start").
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_on:
            gc.enable()
