"""Under which name and version this package is installed, and how to install what an extra of it needs.

The name `holdfast` belongs to another project on the Python package index, and nothing of ours is published there: what one installs
is a wheel that `make wheel` has built.
"""

from email import message_from_string
from importlib.metadata import distribution
from typing import Final

NAME: Final = "holdfast-kafka"
_INSTALLED: Final = distribution(NAME)
VERSION: Final = _INSTALLED.version


def how_to_install(extra: str) -> str:
    """Return the end of a sentence about something that is not installed: the extra that brings it, and the command."""
    # The wheel that this one was installed from, for one of another build would take its place.
    tag = message_from_string(_INSTALLED.read_text("WHEEL") or "").get("Tag", "py3-none-any")
    wheel = f"dist/{NAME.replace('-', '_')}-{VERSION}-{tag}.whl"
    return f"install the extra [{extra}] of {NAME}, from the wheel that `make wheel` builds: pip install '{wheel}[{extra}]'"
