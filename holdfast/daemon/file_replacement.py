"""Files that commands keep and a running node reads: replaced at once, for those who could read them before; what is wrong with one."""

import os
import stat
from pathlib import Path
from typing import Final

#: While it is written, nobody else reads it.
_DRAFT_MODE: Final = 0o600


def replace_file(path: Path, text: str, *, mode: int, mode_max: int) -> None:
    """Replace a file by one with this text, in one step; its owner and mode stay.

    Args:
        path: of the file, which need not exist.
        text: written as UTF-8.
        mode: of a file that did not exist.
        mode_max: what of the mode of a file that did exist may stay.

    Raises:
        OSError: it cannot be written; the former file stays, and nothing beside it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _DRAFT_MODE), "w", encoding="utf-8") as file:
            if path.exists():
                former = path.stat()
                os.fchown(file.fileno(), former.st_uid, former.st_gid)
                mode = stat.S_IMODE(former.st_mode) & mode_max
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def explain_unreadable(what: str, error: OSError | UnicodeDecodeError) -> str:
    """Return that a file, as `what` names it, cannot be read, with why and the next step."""
    if isinstance(error, UnicodeDecodeError):
        return f"{what} is not UTF-8; write it so, or name another."
    fix = "name a file that this user may read" if isinstance(error, PermissionError) else "name another"
    return f"{what} cannot be read ({error.strerror}); {fix}."


def explain_unwritable(what: str, error: OSError) -> str:
    """Return that a file, as `what` names it, cannot be written, with why and the next step."""
    return f"{what} cannot be written ({error.strerror}); name one in a directory that this user may write to."
