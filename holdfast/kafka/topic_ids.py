"""Topic ids: 16 bytes inside, and text only through this module, because other libraries print another alphabet.

Source: Apache Kafka's `Uuid`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

TOPIC_ID_SIZE = 16

# The last of 22 characters carries two bits; Java ignores its other four bits.
_TOPIC_ID = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")


class InvalidTopicId(ValueError):
    """A text that is not a topic id."""

    def __init__(self, text: str) -> None:
        self.reason = "a topic id is 22 characters of base64url (A-Z a-z 0-9 - _)"
        super().__init__(f"The key {text!r} is not valid: {self.reason}.")


def format_topic_id(topic_id: bytes) -> str:
    """Return the 22 characters of unpadded base64url that stand for the 16 bytes of `topic_id`."""
    return urlsafe_b64encode(topic_id)[:22].decode("ascii")


def parse_topic_id(text: str) -> bytes:
    """Return the 16 bytes of a topic id given as base64url, with or without its padding.

    Raises:
        InvalidTopicId: `text` is anything else.
    """
    match = _TOPIC_ID.fullmatch(text)
    if match is None:
        raise InvalidTopicId(text)
    return urlsafe_b64decode(match[1] + "==")
