"""What Spark itself keeps of a query in its checkpoint directory: which batches it has behind it, and how far they read.

Source: `OffsetSeqLog` and `CommitLog` of Spark's structured streaming; a file per batch, named by its number.
"""

from __future__ import annotations

import json
from typing import Final

from holdfast.compaction.errors import DamagedFile, cure_of_own
from holdfast.compaction.spark.files import Directory

#: Where a query's checkpoint lies in the directory of its own.
QUERY: Final = "query"


class QueryLog:
    """Read the checkpoint of one query.

    Args:
        own: directory of the query's own files.
    """

    def __init__(self, own: Directory) -> None:
        self._own = own

    def is_behind(self, batch_id: int) -> bool:
        """Tell whether Spark will not repeat a batch."""
        return self._own.exists(f"{QUERY}/commits/{batch_id}")

    def next_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset that comes next of each partition of a topic, after the newest batch that Spark has behind it.

        Raises:
            DamagedFile: Spark's file about that batch cannot be understood.
        """
        numbers = [int(name) for name in self._own.files(f"{QUERY}/commits") if name.isdecimal()]
        if not numbers:
            return {}
        name = f"{QUERY}/offsets/{max(numbers)}"
        try:
            text = self._own.read_text(name)
            if text is None:
                return {}
            # A version, what held for the batch, and a line for each source, of which the query has one.
            offsets = json.loads(text.splitlines()[2]).get(topic, {})
            return {int(partition): int(offset) for partition, offset in offsets.items()}
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise DamagedFile(f"{self._own.path}/{name}", error, cure_of_own(self._own.path)) from None
