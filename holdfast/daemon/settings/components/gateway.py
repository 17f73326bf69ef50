"""The settings of the share gateway."""

import re
from collections.abc import Collection, Iterable
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

    def why_refused(self, state_topic: str, own_topics: Collection[str]) -> str:
        """Return why the patterns cannot be used on a node with this state topic and these topics of its own; empty if they can.

        They must not name a topic of the node. A wildcard leaves those out, but for the state topic only one that stands for all topics:
        any other that matches it was meant to.
        """
        for pattern in self.topics:
            aims_at_state = pattern != ALL_TOPICS and match_topics((pattern,)).fullmatch(state_topic)
            named = state_topic if aims_at_state else pattern
            if named in own_topics:
                return (
                    f"gateway.topics has the pattern {pattern}, which matches {named}, a topic of the node itself; "
                    "share consumers must not take its records"
                )
        return ""


def is_literal(pattern: str) -> bool:
    """Tell whether a pattern is the name of one topic."""
    return not _WILDCARDS.search(pattern)


def match_topics(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what matches, by `fullmatch`, the names that any of the patterns stands for."""
    return re.compile("|".join("".join(_MEANINGS.get(each, re.escape(each)) for each in text) for text in patterns))
