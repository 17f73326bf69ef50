"""Single looks into topics from the loop of a node, for which the reader pays who asks first."""

from __future__ import annotations

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.page.past import History
from holdfast.page.reading import Looks, TimelineRead
from holdfast.share.page.purse import Account, Purse
from holdfast.share.page.rights import READER


class PacedLooks(Looks):
    """Looks that pay, and rest for longer when nothing is left."""

    def __init__(self, options: ConnectionOptions, purse: Purse, history: History | None = None) -> None:
        """Connect to nothing yet."""
        super().__init__(options, self._pause, history)
        self._purse = purse

    async def _read_on(self, read: TimelineRead, end: int) -> None:
        await self._account.timed(super()._read_on(read, end))

    def _pay(self, worked_s: float) -> None:
        # A processor is a processor, also where another thread has it.
        self._account.pay(worked_s)

    async def _pause(self) -> None:
        await self._account.rest()

    @property
    def _account(self) -> Account:
        return self._purse.account(READER.get().principal)
