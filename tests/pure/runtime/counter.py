"""A counter as a state machine: the smallest one that can be loaded, replayed, undone and committed.

The value of a record is a number to add, as text; the number 13 cannot be replayed.
"""

from collections.abc import Callable

from holdfast.runtime.errors import LoadFailed, NotAvailable
from holdfast.runtime.state_machine import Decision, Operation, StateMachine

UNLUCKY = 13

Tell = Callable[[str], None]


class Bugs:
    """The methods of the machines that raise at their next call; `slices` is how often a load asks for another turn."""

    def __init__(self) -> None:
        self.armed: list[str] = []
        self.slices = 0

    def strike(self, method: str) -> None:
        """Raise if this method was armed."""
        if method in self.armed:
            self.armed.remove(method)
            raise RuntimeError(f"a bug in {method}")


class Counter(StateMachine):
    """A counter with an undo log, which reports every call."""

    def __init__(self, name: str, tell: Tell, bugs: Bugs) -> None:
        bugs.strike("make")
        self.name = name
        self._tell = tell
        self._bugs = bugs
        self.value = 0
        self.undo: list[tuple[int, int]] = []  #: (position, value before), ascending
        self.committed_value = 0
        self._loaded: list[tuple[int, bytes | None]] = []
        self._is_unloaded = False

    def restore(self, content: int) -> None:
        self._bugs.strike("restore")
        self.value = content

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        self._bugs.strike("load_record")
        self._loaded.append((offset, value))

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        self._bugs.strike("fold_loaded")
        if self._bugs.slices:
            self._bugs.slices -= 1
            return False
        for offset, value in self._loaded:
            if value is None:
                raise LoadFailed(f"offset {offset}: a number cannot be null")
            self.value += int(value)
        self._loaded.clear()
        self.committed_value = self.value
        return True

    def on_log_accepted(self) -> None:
        self._tell(f"{self.name} leaves out what it cannot read so far")
        self._loaded = [(offset, value) for offset, value in self._loaded if value is not None]

    def encode(self, key: str, value: int) -> tuple[bytes, bytes]:
        self._bugs.strike("encode")
        return key.encode(), b"%+d" % value

    def replay(self, key: str, value: int, position: int) -> None:
        assert not self._is_unloaded
        if value == UNLUCKY:
            raise RuntimeError("13 cannot be replayed")
        self._tell(f"{self.name} replays {value:+d} at {position}")
        self.undo.append((position, self.value))
        self.value += value

    def revert(self, position: int) -> None:
        self._bugs.strike("revert")
        self._tell(f"{self.name} reverts to {position}")
        while self.undo and self.undo[-1][0] > position:
            self.value = self.undo.pop()[1]

    def committed(self, key: str, value: int, offset: int, position: int, size_bytes: int) -> None:
        assert not self._is_unloaded
        self._bugs.strike("committed")
        self._tell(f"{self.name} commits {position} at offset {offset}")
        self.undo = [change for change in self.undo if change[0] > position]
        self.committed_value += value

    def on_loaded(self, image: object) -> None:
        self._bugs.strike("on_loaded")
        self._tell(f"{self.name} serves from {self.value}, image {image}")

    def on_new_metadata_image(self, image: object) -> None:
        assert not self._is_unloaded
        self._bugs.strike("image")
        self._tell(f"{self.name} sees image {image}")

    def on_unloaded(self) -> None:
        assert not self._is_unloaded
        self._is_unloaded = True
        self._tell(f"{self.name} is unloaded")
        self._bugs.strike("on_unloaded")

    def discard(self, is_time_up: Callable[[], bool]) -> bool:
        assert self._is_unloaded
        self._bugs.strike("discard")
        self.undo.clear()
        self._loaded.clear()
        return True


class Add(Operation):
    """An operation that adds numbers, one record each, and answers with the sum; without numbers it only reads."""

    name = ""

    def __init__(self, name: str, numbers: list[int], kind: str, completed: Callable[["Add", object], None]) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self.name = name
        self._numbers = numbers
        self._kind = kind
        self._completed = completed

    def decide(self, machine: Counter, now_ms: int) -> Decision:
        if self._kind == "bug":
            raise RuntimeError("a bug in decide")
        if self._kind == "refused":
            raise NotAvailable("not today")
        records = tuple(("n", number) for number in self._numbers)
        return Decision(records, machine.value + sum(self._numbers), is_malformed=self._kind == "malformed")

    def complete(self, outcome: object) -> None:
        self._completed(self, outcome)
