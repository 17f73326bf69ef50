"""Answers of the page that are kept while the moment of which they were cut is the newest: readers of one view share its making."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.types import Message, Send

from holdfast.daemon.access.rules import Rules
from holdfast.page.moment import Moment

#: Answers that are kept, and bytes of the body of each: some megabytes in all.
_ANSWERS_MAX: Final = 32
_BODY_BYTES_MAX: Final = 256 << 10


class Version(NamedTuple):
    """All that decides about an answer beside the question."""

    moment: Moment
    rules: Rules

    def is_same(self, other: Version | None) -> bool:
        """Tell whether the other one is of the same moment, and of the same access rules."""
        return other is not None and self.moment is other.moment and self.rules is other.rules


class Asked(NamedTuple):
    """A question, and who asks it."""

    path: str
    query: bytes
    principal: str
    host: str


class KeptAnswers:
    """The answers cut from one moment."""

    def __init__(self) -> None:
        self._of: Version | None = None
        self._answers: dict[Asked, tuple[Message, ...]] = {}

    def find(self, version: Version, asked: Asked) -> tuple[Message, ...] | None:
        """Return the messages of an answer of a version."""
        return self._answers.get(asked) if version.is_same(self._of) else None

    def keep(self, version: Version, asked: Asked, answer: tuple[Message, ...]) -> None:
        """Keep an answer of a version, if it is whole, good and not large."""
        if len(answer) != 2 or answer[0].get("status") != 200 or answer[1].get("more_body"):
            return
        if len(answer[1].get("body", b"")) > _BODY_BYTES_MAX:
            return
        if not version.is_same(self._of):
            self._of = version
            self._answers.clear()
        if len(self._answers) < _ANSWERS_MAX:
            self._answers[asked] = answer

    def forget(self) -> None:
        """Keep nothing."""
        self._of = None
        self._answers.clear()


class Recorder:
    """Sends messages on, and remembers them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.sent: list[Message] = []

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        self.sent.append(message)
        await self._send(message)
