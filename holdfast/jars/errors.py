"""What is raised where Java or jars are missing, or a lock is held, and what says which file was in the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class JarsUnavailable(Exception):
    """Java or a set of jars that this machine lacks; the text is one sentence that names the fix."""


class LockHeld(Exception):
    """A lock that other processes held for the whole timeout; the text is one sentence that names the fix."""


@contextmanager
def refusing(place: Path | str, remedy: str, refusal: type[Exception]) -> Iterator[None]:
    """Raise what the file system refuses meanwhile as a `refusal` of one sentence.

    Args:
        place: what was to be used, where the error names no path.
        remedy: what to do; the end of the sentence.
        refusal: takes the sentence.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise refusal(f"{error.filename or place} cannot be made, read or written ({why}); {remedy}.") from None
