"""What all connections of one client have in common: their requests in flight and their time are counted together.

A client is a principal, or without login an address. So it gains nothing by opening more connections: they share its turns
(`turns`) and its quota, and what is over the quota is not begun until some of the rest is answered.
They share its backlog, too: what waited for an event goes on in its turns, however much of it one event sets free.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.daemon.server.wire.requests import ANONYMOUS, RequestMemory
from holdfast.daemon.server.wire.turns import Backlog, Payer, Turns, Worker
from holdfast.daemon.settings.components.listener import LimitSettings


class Account:
    """The connections of one client."""

    def __init__(
        self,
        name: str,
        limits: LimitSettings,
        node_memory: RequestMemory,
        turns: Turns,
        report_bug: Callable[[Exception], None],
    ) -> None:
        self.name = name
        #: What the requests in flight of all of them take.
        self.memory = RequestMemory(node_memory)
        self.payer = Payer()
        self.backlog = Backlog(self.payer, turns, report_bug)
        #: How many connections it has.
        self.connections = 0
        #: Those whose next request is over the quota, in the order in which they came.
        self.waiting: dict[Worker, None] = {}
        self.reconfigure(limits)

    def reconfigure(self, limits: LimitSettings) -> None:
        """Keep to another quota from now on."""
        self._requests_max = limits.requests_in_flight_per_principal_max
        self._bytes_max = limits.requests_in_flight_bytes_per_principal_max

    def has_room(self, is_large: bool) -> bool:
        """Return whether one more request may be begun; a large one only while there are bytes left, too."""
        memory = self.memory
        return memory.requests < self._requests_max and not (is_large and memory.work_bytes >= self._bytes_max)

    def take_ready(self) -> list[Worker]:
        """Return the connections that may try again, each once: as many as there is room for requests."""
        room = self._requests_max - self.memory.requests
        if self.memory.work_bytes >= self._bytes_max:
            room = min(room, 1)
        ready = list(self.waiting)[: max(0, room)]
        for worker in ready:
            del self.waiting[worker]
        return ready


class Accounts:
    """The clients of one server that have connections."""

    def __init__(
        self, limits: LimitSettings, node_memory: RequestMemory, turns: Turns, report_bug: Callable[[Exception], None]
    ) -> None:
        """Begin without a client.

        Args:
            limits: the quota of each.
            node_memory: what the requests of all of them take.
            turns: they take them.
            report_bug: takes what a request raised that waited for an event and went on.
        """
        self._limits = limits
        self._node_memory = node_memory
        self._turns = turns
        self._report_bug = report_bug
        self._open: dict[str, Account] = {}
        #: Those with connections that wait, or without any and with requests that have not ended.
        self._watched: dict[Account, None] = {}

    def reconfigure(self, limits: LimitSettings) -> None:
        """Keep to another quota from now on."""
        self._limits = limits
        for account in self._open.values():
            account.reconfigure(limits)

    def enter(self, principal: str, host: str) -> Account:
        """Return the account of a client, with one more connection."""
        name = host if principal == ANONYMOUS else principal
        account = self._open.get(name)
        if account is None:
            account = self._open[name] = Account(name, self._limits, self._node_memory, self._turns, self._report_bug)
        account.connections += 1
        return account

    def leave(self, account: Account, worker: Worker) -> None:
        """Take note that a connection is gone, or belongs to another account."""
        account.connections -= 1
        account.waiting.pop(worker, None)
        if not account.connections:
            # What it began counts until it ends, also for who comes back meanwhile.
            self._watched[account] = None

    def wait(self, account: Account, worker: Worker) -> None:
        """Have a connection try again when requests of its client are answered."""
        account.waiting[worker] = None
        self._watched[account] = None

    def take_ready(self) -> list[Worker]:
        """Return the connections of all clients that may try again, each once; to be called when a request or a connection ends."""
        if not self._watched:
            return []
        ready = [worker for account in self._watched for worker in account.take_ready()]
        for account in [each for each in self._watched if not each.waiting]:
            if account.connections or not account.memory.requests:
                del self._watched[account]
            if not account.connections and not account.memory.requests:
                del self._open[account.name]
        return ready
