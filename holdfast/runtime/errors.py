"""Failures of the runtime: one class for each distinct reaction of the caller.

They are used as values as well as raised: the outcome of an operation is its response or one of them.
`share/errors.py` alone turns them into Kafka's error codes.
"""


class CoordinatorError(Exception):
    """An operation did not succeed; the text says why in one sentence."""


class NotCoordinator(CoordinatorError):
    """This node does not own the log partition (any more)."""


class LoadInProgress(CoordinatorError):
    """The log partition is being loaded; try again soon."""


class NotAvailable(CoordinatorError):
    """The coordinator cannot take this operation now; nothing was written."""


class TimedOut(CoordinatorError):
    """The operation's deadline passed; it is not known whether its records count, if it has any."""


class OutcomeUnknown(CoordinatorError):
    """The records were handed to the log and then failed; they may still be appended."""


class RecordTooLarge(CoordinatorError):
    """A record is larger than the log accepts; the records of this operation before it were written."""

    def __init__(self, text: str, key: object = None) -> None:
        super().__init__(text)
        #: Key of the record, as the machine names it.
        self.key = key


class OperationFailed(CoordinatorError):
    """Deciding or replaying raised, which is a bug of ours; nothing was written."""


class AppendRefused(Exception):
    """The log refused a record before it was sent; the record uses no sequence."""

    def __init__(self, reason: str, *, is_too_large: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_too_large = is_too_large


class LoadFailed(Exception):
    """The log cannot be loaded as it is; the text names offset and cause."""


class Alarm(LoadFailed):
    """A condition that only an admin can clear stops this partition; the text names the command for it."""
