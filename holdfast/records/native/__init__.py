"""The functions of every call and every load that are written in C, as twins of those in Python, and whether this build has them.

Each answers as its twin does, or leaves an unusual case to it; `twins.pyi` says what each takes and gives.
The files in C are cut as the modules in Python are, and `native.h` is what they know of each other.
They know of batches, values and the layouts of share-state calls alone, so what has a twin may import this package.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

try:
    from holdfast.records.native import twins
except ImportError:  # the build without a C compiler
    twins = None  # type: ignore[assignment]

__all__ = ["maker", "twins"]

_T = TypeVar("_T", bound=tuple[Any, ...])


def maker(kind: type[_T]) -> Callable[[tuple[Any, ...]], _T]:
    """Return what makes a named tuple of a tuple of all its fields, without the constructor that it has in Python.

    The number of fields is not checked. `share.batches` and `share.values` cannot have it, because the module in C imports them.
    """
    return partial(tuple.__new__, kind) if twins is None else twins.maker(kind)
