"""The small files that say how far a history reaches: an offset of each log partition, below which every change is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

#: Directory of the files, beside those of the days; readers of the Parquet files pass over it.
DIRECTORY: Final = "_covered"
#: Ending of the names of the files; a file with another, or whose name begins with an underscore or a dot, is none of them.
ENDING: Final = ".json"
#: How often a reader lists the files again because one of the list is gone. A job removes a file only when it has written the next
#: one, some seconds after the last, so the second list is nearly always whole.
LISTS_MAX: Final = 10
#: The cure of a damaged file.
CURE: Final = (
    "remove it, and the job finds out by the rows what is covered, and reads the log again where it is not sure"
)


class DamagedCovered(Exception):
    """A file that was not written by `encode_covered`, or not to its end.

    Args:
        path: of the file.
        reason: what is wrong with it, without a full stop.
    """

    def __init__(self, path: str, reason: object) -> None:
        super().__init__(f"{path} is damaged ({reason}); {CURE}.")
        self.path = path
        self.reason = reason


def encode_covered(covered: Mapping[int, int]) -> str:
    """Return the text of a file: the offset by log partition, exclusive, below which every change is in the history."""
    return json.dumps({str(log_partition): offset for log_partition, offset in sorted(covered.items())})


def is_covered_file(name: str) -> bool:
    """Tell by its name whether a file is one of these; others are being written, or a file system's own."""
    return name.endswith(ENDING) and not name.startswith(("_", "."))


def merge_covered(texts: Mapping[str, str]) -> dict[int, int]:
    """Return what several files cover together: the highest offset of each log partition.

    Args:
        texts: of the files, by their paths.

    Raises:
        DamagedCovered: one of them was not written by `encode_covered`, or not to its end.
    """
    merged: dict[int, int] = {}
    for path, text in texts.items():
        try:
            for log_partition, offset in json.loads(text).items():
                number = int(log_partition)
                merged[number] = max(int(offset), merged.get(number, 0))
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedCovered(path, error) from None
    return merged
