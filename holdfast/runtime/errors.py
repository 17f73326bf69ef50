"""Failures of the runtime: one class per distinct reaction of the caller.

They are values as much as exceptions: an operation's outcome is its response or one of these.
`share/errors.py` alone turns them into Kafka's error codes.
"""


class CoordinatorError(Exception):
    """An operation did not succeed; the text says why in one sentence."""


class NotCoordinator(CoordinatorError):
    """The refusal of a node that does not own the log partition (any more)."""


class LoadInProgress(CoordinatorError):
    """The log partition is being loaded; try again soon."""


class NotAvailable(CoordinatorError):
    """The coordinator cannot take this operation now; nothing was written."""


class TimedOut(CoordinatorError):
    """The operation's deadline passed; whether its records count, if it has any, is not known."""


class OutcomeUnknown(CoordinatorError):
    """The records were handed to the log and then failed; they may still be appended."""


class RecordTooLarge(CoordinatorError):
    """A record is larger than the log takes; of this operation, those before it were written."""

    def __init__(self, text: str, key: object = None) -> None:
        super().__init__(text)
        #: Of the record, as the machine names it.
        self.key = key


class OperationFailed(CoordinatorError):
    """Deciding or replaying raised; a bug of ours, and nothing was written."""


class AppendRefused(Exception):
    """The log refused a record before it left; it uses up no sequence."""

    def __init__(self, reason: str, *, is_too_large: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_too_large = is_too_large


class LoadFailed(Exception):
    """The log cannot be loaded as it is; the text names offset and cause."""


class Alarm(LoadFailed):
    """Something only an admin can clear stops this partition; the text names the command that ends it."""
