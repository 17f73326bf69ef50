"""What goes wrong with the embedded broker."""

from contextlib import AbstractContextManager
from pathlib import Path

from holdfast.jars.errors import refusing


class BrokerError(Exception):
    """An embedded broker that could not be started or stopped; the text is one sentence that names the fix."""


def in_directory(place: Path | str) -> AbstractContextManager[None]:
    """Raise what the file system refuses in a directory of data meanwhile as a `BrokerError`."""
    remedy = "make room there and see that this user may write it, or name another directory by --data-dir"
    return refusing(place, remedy, BrokerError)
