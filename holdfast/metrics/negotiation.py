"""The format that a client of `/metrics` prefers, by its header `Accept`.

`prometheus_client` takes the first format that it knows, with any weight, and fails at a version that is no number.
Source: RFC 9110, 12.4.2 and 12.5.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_OPENMETRICS: Final = "application/openmetrics-text"
_TEXT: Final = "text/plain"
#: The kinds that any format, or the text of Prometheus, is one of.
_WILDCARDS: Final = ("*/*", "text/*")
#: The versions that have a form of their own; those without one are written as if none was named.
_VERSIONS: Final = {_OPENMETRICS: ("", "1.0.0"), _TEXT: ("1.0.0",)}


class _Range(NamedTuple):
    """One of the kinds that a client takes."""

    kind: str
    parameters: dict[str, str]
    weight: float


def preferred_format(accept: str) -> str:
    """Return the format that a header `Accept` prefers, as `prometheus_client` is told of it; empty for the text of Prometheus.

    Among formats with the same weight the first one counts; a weight of 0 excludes one. If the client accepts none of our formats, or
    sends no header, it gets the text of Prometheus.
    """
    ranges = [_parse(each) for each in accept.split(",")]
    excluded = {each.kind for each in ranges if not each.weight}
    for kind, parameters, _ in sorted((each for each in ranges if each.weight), key=lambda each: -each.weight):
        if kind in _WILDCARDS:
            takes_only_openmetrics = kind == "*/*" and _TEXT in excluded and _OPENMETRICS not in excluded
            return _OPENMETRICS if takes_only_openmetrics else ""
        version, escaping = parameters.get("version", ""), parameters.get("escaping", "")
        if version in _VERSIONS.get(kind, ()):
            named = {"version": version, "escaping": escaping}
            return ";".join((kind, *(f"{name}={value}" for name, value in named.items() if value)))
        if kind == _TEXT:
            return ""
    return ""


def _parse(text: str) -> _Range:
    kind, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for each in rest:
        name, _, value = each.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return _Range(kind.lower(), parameters, _weight(parameters.pop("q", "1")))


def _weight(text: str) -> float:
    """Return a weight from 0 to 1; one that is malformed counts as 1."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0
