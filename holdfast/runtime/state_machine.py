"""The interfaces of a state machine and of an operation on it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from holdfast.records.native import maker


class Decision(NamedTuple):
    """The result of an operation's decision: records for the log, and the answer that is sent when they count."""

    #: (key, value), decoded, in log order; () for an answer without records.
    records: tuple[tuple[Any, Any], ...]
    response: Any
    #: The answer refuses a malformed request; it depends on no state and is sent at once.
    is_malformed: bool = False


#: Makes a Decision of its three values in order; one is made for every write.
make_decision: Final[Callable[[tuple[tuple[tuple[Any, Any], ...], object, bool]], Decision]] = maker(Decision)


@mypyc_attr(allow_interpreted_subclasses=True)
class StateMachine:
    """The state of one log partition.

    The calls of an instance are restore? → (load_record, fold_loaded)* → on_loaded → (replay, committed, revert, images)* →
    on_unloaded → discard*, and none after that. When `on_loaded` is called, everything is folded.
    Operations decide: they read the machine and change nothing. Only `replay` changes state.

    It is a base class for the same reason as `Operation`.
    """

    def restore(self, content: Any) -> None:  # noqa: ANN401 - the machine's own type
        """Begin to load with `RestorePoint.content`; `fold_loaded` may find that it cannot be used."""
        raise NotImplementedError

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Load one raw record that counts; records come in offset order."""
        raise NotImplementedError

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        """Fold the records loaded so far, until all are folded (True) or the time slice is over (False); more may be loaded after it.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's base is missing; names key and offset.
        """
        raise NotImplementedError

    def on_log_accepted(self) -> None:
        """Skip the records loaded so far that cannot be read or have no base, because an admin accepted the log as it is."""
        raise NotImplementedError

    def encode(self, key: Any, value: Any) -> tuple[bytes, bytes | None]:  # noqa: ANN401 - the machine's own types
        """Return the bytes of a record's key and value (None for a tombstone)."""
        raise NotImplementedError

    def replay(self, key: Any, value: Any, position: int) -> None:  # noqa: ANN401
        """Apply one record; `position` is its sequence, above all earlier ones."""
        raise NotImplementedError

    def revert(self, position: int) -> None:
        """Undo every replay above `position`."""
        raise NotImplementedError

    def committed(self, key: Any, value: Any, offset: int, position: int, size_bytes: int) -> None:  # noqa: ANN401
        """Handle the commit of the record replayed at `position`, which is at `offset`; nothing up to it will be reverted."""
        raise NotImplementedError

    def on_loaded(self, image: object) -> None:
        """Begin to serve, with the newest metadata image."""
        raise NotImplementedError

    def on_new_metadata_image(self, image: object) -> None:
        """Handle a newer metadata image."""
        raise NotImplementedError

    def on_unloaded(self) -> None:
        """Handle the end of this instance; only `discard` follows."""
        raise NotImplementedError

    def discard(self, is_time_up: Callable[[], bool]) -> bool:
        """Free memory, at least a part in each call; returns True when all is freed, and False when the time slice is over."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation:
    """One operation on one partition; the runtime sets its fields and completes it exactly once.

    It is a base class, not a protocol, so that compiled code reaches fields and methods without a lookup by name.
    """

    __slots__ = ("deadline_ms", "has_records", "is_done")

    deadline_ms: int
    is_done: bool
    #: Set once it has decided: it has records, which may count after its deadline, too.
    has_records: bool

    @property
    def name(self) -> str:
        """Return its name for log lines."""
        raise NotImplementedError

    def decide(self, machine: Any, now_ms: int) -> Decision:  # noqa: ANN401
        """Decide from the newest state, without a change to it."""
        raise NotImplementedError

    def complete(self, outcome: object) -> None:
        """Complete with the decision's response, or with a CoordinatorError as a value."""
        raise NotImplementedError

    def overdue(self, timeout_ms: int) -> str:
        """Return the error text for the case that its time is up while it waits for the log."""
        if self.has_records:
            return f"not committed within {timeout_ms} ms; the outcome is unknown"
        return f"no answer within {timeout_ms} ms: the log did not confirm the state that the answer depends on; this call changed nothing"
