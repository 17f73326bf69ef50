r"""From the distinguished name in a client's certificate to the name of its principal, by rules in Kafka's syntax.

    RULE:^CN=([^,]*),OU=Nodes.*$/$1/L, DEFAULT

Rules are separated by commas, and the first whose pattern is the whole name decides.
A rule is a pattern and a replacement, in which `$1` is the first group; `L` or `U` behind it changes the case.
`DEFAULT` is the whole name. A slash within a part is written `\/`.

Source: Kafka's `SslPrincipalMapper`, and KIP-371 and KIP-398.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: One rule; the parts between the slashes may hold escaped characters.
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP: Final = re.compile(r"\\(.)|\$(\d)|(\\|\$)")


class RulesWrong(ValueError):
    """Rules that cannot be read; the text says what is wrong."""


class NoRuleFits(Exception):
    """No rule gives a principal for a name."""


class _Rule(NamedTuple):
    #: None: the name as it is.
    pattern: re.Pattern[str] | None
    #: Text, and numbers of groups.
    replacement: Sequence[str | int]
    change_case: Callable[[str], str]


class PrincipalRules:
    """The rules of a listener."""

    def __init__(self, text: str) -> None:
        """Read rules; no text is the rule DEFAULT.

        Raises:
            RulesWrong: it is not of their form.
        """
        self._rules = _parse(text or "DEFAULT")

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal.

        Raises:
            NoRuleFits: no rule has a pattern that fits.
        """
        for pattern, replacement, change_case in self._rules:
            if pattern is None:
                return distinguished_name
            if found := pattern.fullmatch(distinguished_name):
                parts = [part if isinstance(part, str) else found[part] or "" for part in replacement]
                return change_case("".join(parts))
        raise NoRuleFits(f"no rule fits the certificate of {distinguished_name!r} (ssl.principal.mapping.rules)")


def _parse(text: str) -> list[_Rule]:
    rules, position = [], 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise RulesWrong(f"{text[position:].strip()!r} is not RULE:pattern/replacement/[LU] or DEFAULT")
        rules.append(_Rule(None, (), str) if found[1] else _make_rule(*found.group(2, 3, 4)))
        position = found.end()
    return rules


def _make_rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RulesWrong(f"the pattern {pattern!r} is wrong: {error}") from None
    parts = _parse_replacement(replacement)
    missing = [part for part in parts if isinstance(part, int) and part > compiled.groups]
    if missing:
        raise RulesWrong(f"the replacement {replacement!r} names a group ${missing[0]} that {pattern!r} has not")
    return _Rule(compiled, parts, {"L": str.lower, "U": str.upper}.get(case, str))


def _parse_replacement(text: str) -> list[str | int]:
    parts: list[str | int] = []
    position = 0
    for found in _GROUP.finditer(text):
        parts.append(text[position : found.start()])
        escaped, group, alone = found.groups()
        parts.append(int(group) if group else escaped or alone)
        position = found.end()
    return [part for part in (*parts, text[position:]) if part != ""]
