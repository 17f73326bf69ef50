"""Which build of the package runs."""

from typing import Final

from holdfast.runtime import partition

#: `compiled` where setup.py turned the hot path into C, `pure` where all of it is Python.
BUILD: Final = "pure" if partition.__file__.endswith(".py") else "compiled"
