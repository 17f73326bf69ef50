"""What the runtime requires of a state machine and of an operation on it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from holdfast.records.native import maker


class Decision(NamedTuple):
    """What an operation decided: records for the log, and the answer that leaves when they count."""

    #: (key, value), decoded, in log order; () for an answer without records.
    records: tuple[tuple[Any, Any], ...]
    response: Any
    #: The refusal of a malformed request, which rests on no state and leaves at once.
    is_malformed: bool = False


#: Make a decision of its three fields; one is made for every write.
make_decision: Final[Callable[[tuple[tuple[tuple[Any, Any], ...], object, bool]], Decision]] = maker(Decision)


@mypyc_attr(allow_interpreted_subclasses=True)
class StateMachine:
    """The state behind one log partition.

    Every instance sees restore? → (load_record, fold_loaded)* → on_loaded → (replay, committed, revert, images)* →
    on_unloaded → discard*, and nothing after. Nothing is left to be folded when it is told that it is loaded.
    Decisions are made by operations, which look at the machine and change nothing; only `replay` changes state.

    It is a base class for the reason that `Operation` is one.
    """

    def restore(self, content: Any) -> None:  # noqa: ANN401 - the machine's own type
        """Begin to load with what `RestorePoint.content` holds; `fold_loaded` may find that it cannot be used."""
        raise NotImplementedError

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take one raw record that counts, in offset order, while loading."""
        raise NotImplementedError

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        """Fold what was loaded so far until done (True) or until the time of this slice is up (False); more may come after it.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's base is missing; names key and offset.
        """
        raise NotImplementedError

    def on_log_accepted(self) -> None:
        """Learn, while loading, that an admin accepted the log as it is: what cannot be read or has no base so far is left out."""
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
        """Learn that the record replayed at `position` counts and is at `offset`; nothing up to it will be reverted."""
        raise NotImplementedError

    def on_loaded(self, image: object) -> None:
        """Begin to serve, with the newest metadata image."""
        raise NotImplementedError

    def on_new_metadata_image(self, image: object) -> None:
        """Learn of a newer metadata image."""
        raise NotImplementedError

    def on_unloaded(self) -> None:
        """Learn that this instance is done."""
        raise NotImplementedError

    def discard(self, is_time_up: Callable[[], bool]) -> bool:
        """Free what is held, something each time; returns True when nothing is left, and False when the time of this slice is up."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation:
    """One operation on one partition; the runtime sets its fields and completes it exactly once.

    It is a base class and no protocol: then compiled code reaches fields and methods without looking for them by name.
    """

    __slots__ = ("deadline_ms", "has_records", "is_done")

    deadline_ms: int
    is_done: bool
    #: Known once it has decided: its records may count after its deadline, too.
    has_records: bool

    @property
    def name(self) -> str:
        """Say in the log which one it is."""
        raise NotImplementedError

    def decide(self, machine: Any, now_ms: int) -> Decision:  # noqa: ANN401
        """Look at the newest state and decide, changing nothing."""
        raise NotImplementedError

    def complete(self, outcome: object) -> None:
        """Take the decision's response, or a CoordinatorError as a value."""
        raise NotImplementedError

    def overdue(self, timeout_ms: int) -> str:
        """Say what is known of it when its time is up while it waits for the log."""
        if self.has_records:
            return f"not committed within {timeout_ms} ms; the outcome is unknown"
        return f"no answer within {timeout_ms} ms: what it rests on was not confirmed by the log; this call itself changed nothing"
