"""The settings of the share gateway."""

import re
from collections.abc import Iterable
from typing import ClassVar, Final, Self

from pydantic import model_validator

from holdfast.daemon.settings.declarations import Component, Names, setting

#: All topics but internal ones and those of the node itself.
ALL_TOPICS: Final = "*"

#: Characters of topic names, and those that stand for others.
_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?-]{1,249}")
_WILDCARDS: Final = re.compile(r"[*?]")
_MEANINGS: Final = {"*": ".*", "?": "."}
_PATTERNS_MAX: Final = 1_000


class GatewaySettings(Component):
    """The share gateway, by which stock share consumers take records from the cluster that holds the log."""

    name_prefix: ClassVar[str] = "gateway."

    topics: Names = setting(
        (),
        "Topics whose records share consumers may take through this node, by name; `*` and `?` stand for any characters, and every other "
        "character for itself. Internal topics and those of the node itself are never among them. The same on all nodes. Empty: this "
        "node is no gateway.",
        max_length=_PATTERNS_MAX,
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for pattern in self.topics:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(
                    f"gateway.topics has the pattern {pattern!r}; a pattern is at most 249 of a-z A-Z 0-9 . _ - and the wildcards * and ?"
                )
        return self

    def why_refused(self, own_topics: Iterable[str]) -> str:
        """Return why the patterns cannot be used on a node with these topics of its own; empty if they can."""
        for pattern in self.topics:
            matched = [topic for topic in own_topics if topic and match_topics((pattern,)).fullmatch(topic)]
            if matched and pattern != ALL_TOPICS:
                return (
                    f"gateway.topics has the pattern {pattern}, which matches {matched[0]}, a topic of the node itself; "
                    "share consumers must not take its records"
                )
        return ""


def is_literal(pattern: str) -> bool:
    """Tell whether a pattern is the name of one topic."""
    return not _WILDCARDS.search(pattern)


def match_topics(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what matches, by `fullmatch`, the names that any of the patterns stands for."""
    return re.compile("|".join("".join(_MEANINGS.get(each, re.escape(each)) for each in text) for text in patterns))
