"""Which build of the package runs."""

from typing import Final

from holdfast.runtime.partition import serving

#: `compiled` where setup.py turned the hot path into C, `pure` where all of it is Python.
BUILD: Final = "pure" if serving.__file__.endswith(".py") else "compiled"
