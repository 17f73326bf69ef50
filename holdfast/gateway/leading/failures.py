"""Share partitions that could not be served: each is left alone for a moment.

The cause may be here for days: records of an old format, a log that ends below what was acquired, a state that another leader has
fenced. Each fetch would load the share partition again, and clients fetch as often as they are answered.
"""

from __future__ import annotations

from typing import Final

from holdfast.api.share_errors import FENCED
from holdfast.gateway.leading.led_partition import Ended
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey

#: How long a share partition that failed is left alone: a client waits as long for records by itself.
PAUSE_MS: Final = 500


class Failures:
    """The share partitions of a node that failed a moment ago."""

    def __init__(self) -> None:
        #: In the order in which they failed, and when.
        self._failed: dict[SharePartitionKey, tuple[Ended, float]] = {}

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._failed)

    def find(self, key: SharePartitionKey, now_ms: float) -> Ended | None:
        """Return why a share partition is left alone; None: it may be loaded."""
        if not self._failed:
            return None
        found = self._failed.get(key)
        return None if found is None or now_ms - found[1] >= PAUSE_MS else found[0]

    def add(self, key: SharePartitionKey, ended: Ended, now_ms: float) -> None:
        """Leave a share partition alone for a moment."""
        failed = self._failed
        for other, (_, failed_ms) in list(failed.items()):
            if now_ms - failed_ms < PAUSE_MS:
                break
            del failed[other]
        failed.pop(key, None)
        # At these a client asks at once who leads the partition, and would be told the same again.
        code = ErrorCode.KAFKA_STORAGE_ERROR if ended.error_code in FENCED else ended.error_code
        failed[key] = (ended._replace(error_code=code), now_ms)
