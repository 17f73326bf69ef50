"""The build of the package that runs."""

from typing import Final

from holdfast.runtime.partition import serving

#: `compiled` if setup.py has compiled the hot path into C, `pure` if all of it is Python.
BUILD: Final = "pure" if serving.__file__.endswith(".py") else "compiled"
