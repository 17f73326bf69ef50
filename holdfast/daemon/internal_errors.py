"""Bugs of ours beside which something else goes on: each is counted, and is a line with its traceback."""

import structlog

from holdfast.metrics.instruments import Counter

_log = structlog.get_logger(__name__)


class InternalErrors:
    """The one place to which the parts of a node take a bug that they survive."""

    def __init__(self, count: Counter) -> None:
        """Count there, as in the metric `internal_errors` of the runtime."""
        self._count = count

    def note_bug(self, event: str, bug: BaseException, **fields: object) -> None:
        """Count a bug and log it with its traceback; `event` and `fields` say what failed, an `error` among them in more words.

        Clients may cause one again and again: `TracebackLimit` bounds the lines of one event in a minute.
        """
        self._count.value += 1
        _log.error(event, **{"error": repr(bug)} | fields, exc_info=bug)
