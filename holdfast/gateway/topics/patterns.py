"""Patterns of topic names, as the setting `gateway.topics` has them, and what they offer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final

from holdfast.kafka.metadata import is_topic_name

_WILDCARDS: Final = re.compile(r"[*?]")
_MEANINGS: Final = {"*": ".*", "?": "."}


def is_literal(pattern: str) -> bool:
    """Tell whether a pattern is the name of one topic."""
    return not _WILDCARDS.search(pattern)


def match_topics(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what matches, by `fullmatch`, the names that any of the patterns stands for."""
    return re.compile("|".join("".join(_MEANINGS.get(each, re.escape(each)) for each in text) for text in patterns))


class Offer:
    """The names that are offered, if there are topics of them that are not internal."""

    def __init__(self, patterns: Collection[str], own_topics: Collection[str]) -> None:
        """Offer what matches a pattern.

        Args:
            patterns: those of the setting.
            own_topics: names of the node's own topics, which are never offered.
        """
        self.own_topics: Final = frozenset(own_topics)
        #: Patterns without wildcards.
        self.names: Final = frozenset(filter(is_literal, patterns))
        #: The others, each with a function that matches names.
        self.wildcards: Final[dict[str, Callable[[str], object]]] = {
            each: match_topics((each,)).fullmatch for each in patterns if each not in self.names
        }
        self._is_match = match_topics(self.wildcards).fullmatch

    def has(self, name: str) -> bool:
        """Tell whether a topic of this name would be offered."""
        is_match = name in self.names or self._is_match(name) is not None
        return is_match and is_topic_name(name) and name not in self.own_topics
