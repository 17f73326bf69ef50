"""The files of one query: Spark's own checkpoint, a mark where the fold has stopped, and what the history writer keeps there.

Source: `OffsetSeqLog` and `CommitLog` of Spark's structured streaming; a file per batch, named by its number.
"""

from __future__ import annotations

import json
from typing import Final

from holdfast.compaction.errors import DamagedFile, cure_of_own
from holdfast.compaction.spark.files import Directory

#: Spark's checkpoint, below the directory of the query.
_CHECKPOINT: Final = "query"
#: There when the fold of a log partition has stopped.
_STOPPED_FILE: Final = "stopped"


class QueryFiles:
    """The directory of one query.

    Args:
        directory: what lies in it is the query's alone.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        #: Where Spark keeps the checkpoint.
        self.checkpoint_path = f"{directory.path}/{_CHECKPOINT}"

    def remove(self) -> None:
        """Remove all files, so that the query begins at the log's start."""
        self.directory.remove()

    def mark_stopped(self) -> None:
        """Note that the fold of a log partition has stopped, while Spark reads on."""
        if not self.is_stopped():
            self.directory.write_text(_STOPPED_FILE, "")

    def is_stopped(self) -> bool:
        """Tell whether the fold of a log partition has stopped."""
        return self.directory.exists(_STOPPED_FILE)

    def is_finished(self, batch_id: int) -> bool:
        """Tell whether Spark has finished a batch, so that it will not repeat it."""
        return self.directory.exists(f"{_CHECKPOINT}/commits/{batch_id}")

    def remove_empty(self) -> list[str]:
        """Remove what a machine that lost its power left without content, so that Spark goes on; returns the paths.

        A batch whose end is not noted is repeated, and one that is not planned is planned again, over the same records or more, of
        which nothing is written twice. Where a batch has lost both, or none is left, the query begins at the log's start.
        """
        finished, removed = self._batches("commits"), list[int]()
        while finished and self._is_empty("commits", finished[-1]):
            removed.append(finished.pop())
        newest = finished[-1] if finished else -1
        planned = [number for number in self._batches("offsets") if number > newest]
        empty = [number for number in planned if self._is_empty("offsets", number)]
        if set(removed) & set(empty) or (not finished and (removed or empty) and planned == empty):
            self.remove()
            return [self.directory.path]
        names = [f"{_CHECKPOINT}/commits/{number}" for number in removed]
        names += [f"{_CHECKPOINT}/offsets/{number}" for number in empty]
        for name in names:
            self.directory.remove(name)
        return [f"{self.directory.path}/{name}" for name in names]

    def _batches(self, kind: str) -> list[int]:
        """Return the numbers of the batches that Spark has a file of this kind about, ascending."""
        return sorted(int(name) for name in self.directory.files(f"{_CHECKPOINT}/{kind}") if name.isdecimal())

    def _is_empty(self, kind: str, number: int) -> bool:
        try:
            text = self.directory.read_text(f"{_CHECKPOINT}/{kind}/{number}")
        except ValueError:  # it has content, which is damaged
            return False
        return text is not None and not text.strip("\0\n ")

    def state_partitions(self) -> int | None:
        """Return the partitions of the state, which are fixed with the checkpoint; None: there is none, or it does not say."""
        numbers = self._batches("offsets")
        if not numbers:
            return None
        try:
            text = self.directory.read_text(f"{_CHECKPOINT}/offsets/{numbers[-1]}") or ""
            return int(json.loads(text.splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])
        except (ValueError, TypeError, LookupError):
            return None

    def lost_path(self) -> str:
        """Return a path that Spark keeps in its checkpoint and at which nothing is, as after a move; empty if there is none.

        Spark writes down the whole path of the schema of its state, and reads it there.
        Source: `StateSchemaCompatibilityChecker` and `OperatorStateMetadataV2` of Spark's structured streaming.
        """
        for operator in self.directory.directories(f"{_CHECKPOINT}/state"):
            place = f"{_CHECKPOINT}/state/{operator}/_metadata/v2"
            numbers = [int(name) for name in self.directory.files(place) if name.isdecimal()]
            try:
                text = self.directory.read_text(f"{place}/{max(numbers)}") or ""
                stores = json.loads(text.split("\n", 1)[1])["stateStoreInfo"]
                paths = [str(path) for store in stores for path in store["stateSchemaFilePaths"]]
            except (ValueError, TypeError, LookupError):  # there is none, or Spark says itself that it cannot be read
                continue
            for path in paths:
                if not self.directory.reaches(path):
                    return path
        return ""

    def next_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset that comes next of each partition of a topic, after the newest batch that Spark has finished.

        Raises:
            DamagedFile: Spark's file about that batch cannot be parsed.
        """
        numbers = self._batches("commits")
        if not numbers:
            return {}
        name = f"{_CHECKPOINT}/offsets/{numbers[-1]}"
        try:
            text = self.directory.read_text(name)
            if text is None:
                return {}
            # A version, metadata of the batch, and a line for each source, of which the query has one.
            offsets = json.loads(text.splitlines()[2]).get(topic, {})
            return {int(partition): int(offset) for partition, offset in offsets.items()}
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            path = self.directory.path
            raise DamagedFile(f"{path}/{name}", error, cure_of_own(path)) from None
