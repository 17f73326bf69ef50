"""Password checks that wait for their turn: one is made at a time, addresses take turns, and each has a bound.

A check takes a processor for milliseconds, and whoever reaches the listener can have one made.
So a check waits for the one that is being made and for one of each other address that has any, however many those have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

#: What a check finds; None: it was not made, because too many wait.
Finding = bool | None


class Begin(Protocol):
    """Makes a check elsewhere than on the event loop."""

    def __call__(self, check: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """Begin a check; `done` gets what it finds, on the event loop and not before this returns."""


class PasswordCheck:
    """A check that is asked for once."""

    __slots__ = ("address", "check", "found")

    def __init__(self, address: str, check: Callable[[], bool], found: Callable[[Finding], None]) -> None:
        #: Whence the password came, without a port.
        self.address: Final = address
        self.check: Final = check
        self.found: Final = found


class PasswordChecks:
    """All checks of a listener, without threads and without a clock."""

    def __init__(self, begin: Begin, waiting_max: int, waiting_per_address_max: int) -> None:
        """Have checks made by `begin`; so many may wait, and so many of one address."""
        self._begin = begin
        self._waiting_max = waiting_max
        self._waiting_per_address_max = waiting_per_address_max
        #: By address, the one whose turn is next first; each in the order in which they came.
        self._waiting: dict[str, dict[PasswordCheck, None]] = {}
        #: Whether one is being made, and which; None: nobody waits for what it finds.
        self._is_busy = False
        self._current: PasswordCheck | None = None
        #: How many wait.
        self.waiting = 0

    def add(self, check: PasswordCheck) -> None:
        """Have a check made in its turn; without a place it finds None at once, or the newest one does of whoever has more of them."""
        crowded = check if self._count(check.address) >= self._waiting_per_address_max else None
        if crowded is None and self.waiting >= self._waiting_max:
            crowded = self._find_newest_of_most(check)
        if crowded is not check:
            self._waiting.setdefault(check.address, {})[check] = None
            self.waiting += 1
        if crowded is not None:
            self.cancel(crowded)
            crowded.found(None)
        self._begin_next()

    def cancel(self, check: PasswordCheck) -> None:
        """Forget a check, because its client is gone; what one finds that is being made, nobody gets. Again is harmless."""
        if check is self._current:
            self._current = None
        elif check in (own := self._waiting.get(check.address, {})):
            self._drop(check.address, own, check)

    def _count(self, address: str) -> int:
        return len(self._waiting.get(address, ()))

    def _find_newest_of_most(self, check: PasswordCheck) -> PasswordCheck:
        most = max(self._waiting, key=self._count)
        return check if self._count(most) <= self._count(check.address) + 1 else next(reversed(self._waiting[most]))

    def _drop(self, address: str, own: dict[PasswordCheck, None], check: PasswordCheck) -> None:
        del own[check]
        self.waiting -= 1
        if not own:
            del self._waiting[address]

    def _begin_next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        address, own = next(iter(self._waiting.items()))
        self._current = check = next(iter(own))
        self._drop(address, own, check)
        if own:  # the other addresses come first
            self._waiting[address] = self._waiting.pop(address)
        self._is_busy = True
        self._begin(check.check, self._end)

    def _end(self, is_right: bool) -> None:
        check, self._current, self._is_busy = self._current, None, False
        self._begin_next()
        if check is not None:
            check.found(is_right)
