"""Single looks into topics from the loop of a node, which a purse pays for."""

from __future__ import annotations

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.page.reading import Looks, TimelineRead
from holdfast.share.page.purse import Purse


class PacedLooks(Looks):
    """Looks that pay, and rest for longer when nothing is left."""

    def __init__(self, options: ConnectionOptions, purse: Purse) -> None:
        """Connect to nothing yet."""
        super().__init__(options)
        self._purse = purse

    async def _read_on(self, read: TimelineRead, end: int) -> None:
        read.rest = self._purse.rest
        await self._purse.timed(super()._read_on(read, end))
