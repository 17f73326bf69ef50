"""Whether processes run, for tests that end them."""

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not collected yet by who took over an orphan does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
